//! Exports a network in formats of other tools, without anything of the substrate.

mod containerlab;
mod dot;
mod rfc8345;
mod rspec;

use carina_vnet::report::{InterfaceReport, LinkReport, VnetReport};

/// A format of exported networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// A manifest in GENI RSpec, version 3.
    Rspec,
    /// A network of `ietf-network`, `ietf-network-topology` (RFC 8345) and
    /// `ietf-l3-unicast-topology` (RFC 8346), in JSON (RFC 7951).
    Rfc8345,
    /// The language of Graphviz.
    Dot,
    /// A topology of containerlab, in YAML.
    Containerlab,
}

impl ExportFormat {
    /// All formats.
    pub const ALL: [ExportFormat; 4] = [
        ExportFormat::Rspec,
        ExportFormat::Rfc8345,
        ExportFormat::Dot,
        ExportFormat::Containerlab,
    ];

    /// The keyword of the format.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ExportFormat::Rspec => "rspec",
            ExportFormat::Rfc8345 => "rfc8345",
            ExportFormat::Dot => "dot",
            ExportFormat::Containerlab => "containerlab",
        }
    }

    /// Writes a network in this format.
    #[must_use]
    pub fn write(self, report: &VnetReport) -> String {
        match self {
            ExportFormat::Rspec => rspec::write(&between_nodes(report)),
            ExportFormat::Rfc8345 => rfc8345::write(&between_nodes(report)),
            ExportFormat::Dot => dot::write(report),
            ExportFormat::Containerlab => containerlab::write(&between_nodes(report)),
        }
    }
}

/// The network without links that end outside of it (access points, cards, other hosts), for
/// formats that cannot express them.
fn between_nodes(report: &VnetReport) -> VnetReport {
    let mut inner = report.clone();
    inner
        .links
        .retain(|link| link.ends.iter().all(|end| end.contains(':')));
    inner
}

/// The node and the interface at an end of a link.
fn end(link: &LinkReport, side: usize) -> (&str, &str) {
    link.ends[side]
        .split_once(':')
        .unwrap_or((&link.ends[side], ""))
}

/// The IPv4 address of an interface without its prefix length.
fn address(interface: &InterfaceReport) -> &str {
    without_bits(&interface.address)
}

/// The IPv6 address of an interface without its prefix length; `None` if it has none.
fn address6(interface: &InterfaceReport) -> Option<&str> {
    interface.address6.as_deref().map(without_bits)
}

fn without_bits(address: &str) -> &str {
    let (address, _) = address.split_once('/').unwrap_or((address, ""));
    address
}

#[cfg(test)]
mod tests {
    use carina_vnet::document::{Carrier, Kind};
    use carina_vnet::host_part::{LinkState, NodeState, VnetId};

    use super::*;
    use carina_vnet::report::{NodeReport, VnetState};

    fn report() -> VnetReport {
        let interface = |number: u32| InterfaceReport {
            name: "eth0".into(),
            address: format!("10.0.0.{number}/30"),
            address6: Some(format!("2001:db8::{number}/64")),
            mac: format!("02:00:00:00:00:0{number}"),
            mtu: 1480,
            link: 0,
        };
        let node = |name: &str, kind, number| NodeReport {
            name: name.into(),
            kind,
            state: NodeState::Up,
            is_console_ready: true,
            interfaces: vec![interface(number)],
            position: None,
        };
        VnetReport {
            name: "two".into(),
            vnet: VnetId::new(0xab),
            generation: 1,
            state: VnetState::Ready,
            obstacles: Vec::new(),
            nodes: vec![node("a", Kind::Vm, 1), node("b", Kind::Namespace, 2)],
            links: vec![LinkReport {
                number: 0,
                ends: ["a:eth0".into(), "b:eth0".into()],
                carrier: Carrier::Gre,
                rate: "5Mbps".parse().unwrap(),
                path: None,
                state: LinkState::Absent,
                rtt_ns: None,
                passed: Default::default(),
                impairment: Default::default(),
            }],
            phases: Vec::new(),
            ready_after_ms: None,
        }
    }

    #[test]
    fn manifest_has_nodes_interfaces_and_links() {
        let text = ExportFormat::Rspec.write(&report());
        for part in [
            "type=\"manifest\"",
            "<node client_id=\"a\" sliver_id=\"urn:publicid:IDN+carina+sliver+00000000000000ab:a\"",
            "<interface client_id=\"b:eth0\" mac_address=\"02:00:00:00:00:02\">",
            "<ip address=\"10.0.0.2\" netmask=\"255.255.255.252\" type=\"ipv4\"/>",
            "<ip address=\"2001:db8::2\" type=\"ipv6\"/>",
            "<property source_id=\"a:eth0\" dest_id=\"b:eth0\" capacity=\"5000\"/>",
            "<link_type name=\"gre\"/>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let mut impaired = report();
        impaired.links[0].impairment.back =
            serde_json::from_str(r#"{"delay": "10.5ms", "loss": "1%", "jitter": "1ms"}"#).unwrap();
        let text = ExportFormat::Rspec.write(&impaired);
        for part in [
            "dest_id=\"b:eth0\" capacity=\"5000\"/>",
            "dest_id=\"a:eth0\" capacity=\"5000\" latency=\"10.5\" packet_loss=\"0.01\"/>",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let tree = carina_vnet::document::xml_tree::parse_foreign(&text).unwrap();
        assert_eq!(tree.children.len(), 3);
    }

    #[test]
    fn topology_has_a_link_for_each_direction() {
        let text = ExportFormat::Rfc8345.write(&report());
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let network = &json["ietf-network:networks"]["network"][0];
        assert_eq!(network["network-id"], "two");
        let links = &network["ietf-network-topology:link"];
        assert_eq!(links[1]["source"]["source-node"], "b");
        assert_eq!(links[1]["destination"]["dest-tp"], "eth0");
        let point = &network["node"][0]["ietf-network-topology:termination-point"][0];
        assert_eq!(
            point["ietf-l3-unicast-topology:l3-termination-point-attributes"]["ip-address"][0],
            "10.0.0.1"
        );
        assert_eq!(
            point["ietf-l3-unicast-topology:l3-termination-point-attributes"]["ip-address"][1],
            "2001:db8::1"
        );
    }

    #[test]
    fn containerlab_has_the_addresses_as_commands() {
        let mut switched = report();
        switched.nodes[1].kind = Kind::Bridge;
        let text = ExportFormat::Containerlab.write(&switched);
        for part in [
            "name: \"two\"\n",
            "    \"a\":\n      kind: linux\n      image: alpine:3\n      exec:\n",
            "        - \"ip address replace 10.0.0.1/30 dev eth0\"\n",
            "        - \"ip address replace 2001:db8::1/64 dev eth0\"\n",
            "    \"b\":\n      kind: bridge\n",
            "    - endpoints: [\"a:eth0\", \"b:eth0\"]\n      mtu: 1480\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn dot_dashes_what_is_not_up() {
        let text = ExportFormat::Dot.write(&report());
        assert!(text.starts_with("graph \"two\" {\n"), "{text}");
        assert!(text.contains("\"a\" -- \"b\""), "{text}");
        assert_eq!(text.matches("dashed").count(), 1, "{text}");
    }
}
