//! Writes a manifest in GENI RSpec, version 3 (`manifest.xsd`). Names contain nothing that XML
//! would need quoted.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::{address, address6};
use carina_vnet::impairment::Impairment;
use carina_vnet::report::{InterfaceReport, LinkReport, NodeReport, VnetReport};

pub(super) fn write(report: &VnetReport) -> String {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<rspec type=\"manifest\" \
                    xmlns=\"http://www.geni.net/resources/rspec/3\">\n"
        .to_owned();
    for node in &report.nodes {
        write_node(&mut text, report, node);
    }
    for link in &report.links {
        write_link(&mut text, link);
    }
    text.push_str("</rspec>\n");
    text
}

fn write_node(text: &mut String, report: &VnetReport, node: &NodeReport) {
    let (name, kind) = (&node.name, node.kind.word());
    let _ = writeln!(
        text,
        "  <node client_id=\"{name}\" sliver_id=\"urn:publicid:IDN+carina+sliver+{}:{name}\" \
         exclusive=\"false\">\n    <sliver_type name=\"{kind}\"/>",
        report.vnet
    );
    for interface in &node.interfaces {
        let _ = writeln!(
            text,
            "    <interface client_id=\"{name}:{}\" mac_address=\"{}\">\n      <ip address=\"{}\" \
             netmask=\"{}\" type=\"ipv4\"/>",
            interface.name,
            interface.mac,
            address(interface),
            netmask(interface)
        );
        if let Some(address) = address6(interface) {
            let _ = writeln!(text, "      <ip address=\"{address}\" type=\"ipv6\"/>");
        }
        text.push_str("    </interface>\n");
    }
    text.push_str("  </node>\n");
}

fn write_link(text: &mut String, link: &LinkReport) {
    let ([one, other], kbps) = (&link.ends, link.rate.bps().div_ceil(1000));
    let _ = writeln!(text, "  <link client_id=\"link-{}\">", link.number);
    for end in [one, other] {
        let _ = writeln!(text, "    <interface_ref client_id=\"{end}\"/>");
    }
    for (side, (from, to)) in [(one, other), (other, one)].into_iter().enumerate() {
        let shaping = link
            .impairment
            .of_side(side)
            .map(|impairment| shaping(&impairment));
        let _ = writeln!(
            text,
            "    <property source_id=\"{from}\" dest_id=\"{to}\" capacity=\"{kbps}\"{}/>",
            shaping.unwrap_or_default()
        );
    }
    let carrier = link.carrier.word();
    let _ = writeln!(text, "    <link_type name=\"{carrier}\"/>\n  </link>");
}

/// The attributes of a property for the delay, in ms, and the loss, as a share of 1. An RSpec has
/// none for the other impairments.
fn shaping(impairment: &Impairment) -> String {
    let mut text = String::new();
    if let Some(delay) = impairment.delay {
        let ms = delay.duration().as_nanos() as f64 / 1e6;
        let _ = write!(text, " latency=\"{ms}\"");
    }
    if let Some(loss) = impairment.loss {
        let share = f64::from(loss.millionths()) / 1e6;
        let _ = write!(text, " packet_loss=\"{share}\"");
    }
    text
}

fn netmask(interface: &InterfaceReport) -> Ipv4Addr {
    let bits = interface
        .address
        .split_once('/')
        .and_then(|(_, bits)| bits.parse().ok());
    let bits: u32 = bits.unwrap_or(32);
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0))
}
