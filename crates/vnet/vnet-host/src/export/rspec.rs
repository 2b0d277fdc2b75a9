//! Writes a manifest in GENI RSpec, version 3 (`manifest.xsd`). Names contain nothing that XML
//! would need quoted.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::address;
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
             netmask=\"{}\" type=\"ipv4\"/>\n    </interface>",
            interface.name,
            interface.mac,
            address(interface),
            netmask(interface)
        );
    }
    text.push_str("  </node>\n");
}

fn write_link(text: &mut String, link: &LinkReport) {
    let ([one, other], kbps) = (&link.ends, link.rate.bps().div_ceil(1000));
    let _ = writeln!(text, "  <link client_id=\"link-{}\">", link.number);
    for end in [one, other] {
        let _ = writeln!(text, "    <interface_ref client_id=\"{end}\"/>");
    }
    for (from, to) in [(one, other), (other, one)] {
        let _ = writeln!(
            text,
            "    <property source_id=\"{from}\" dest_id=\"{to}\" capacity=\"{kbps}\"/>"
        );
    }
    let carrier = link.carrier.word();
    let _ = writeln!(text, "    <link_type name=\"{carrier}\"/>\n  </link>");
}

fn netmask(interface: &InterfaceReport) -> Ipv4Addr {
    let bits = interface
        .address
        .split_once('/')
        .and_then(|(_, bits)| bits.parse().ok());
    let bits: u32 = bits.unwrap_or(32);
    Ipv4Addr::from_bits(u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0))
}
