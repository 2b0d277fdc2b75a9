//! Writes a topology of containerlab (containerlab, `docs/manual/topo-def-file.md`). Names contain
//! nothing that YAML would need quoted beyond quotes.
//!
//! Nodes become containers of a small Linux, with the addresses of their interfaces as commands,
//! and bridges become bridges. Rates and impairments have no place in such a file:
//! `containerlab tools netem set` sets them once the topology runs.

use std::fmt::Write;

use carina_vnet::document::Kind;
use carina_vnet::report::{InterfaceReport, LinkReport, NodeReport, VnetReport};

use super::end;

pub(super) fn write(report: &VnetReport) -> String {
    let mut text = format!("name: \"{}\"\ntopology:\n  nodes:\n", report.name);
    for node in &report.nodes {
        write_node(&mut text, node);
    }
    if !report.links.is_empty() {
        text.push_str("  links:\n");
    }
    for link in &report.links {
        let [one, other] = &link.ends;
        let _ = writeln!(text, "    - endpoints: [\"{one}\", \"{other}\"]");
        if let Some(interface) = interface(report, link) {
            let _ = writeln!(text, "      mtu: {}", interface.mtu);
        }
    }
    text
}

fn write_node(text: &mut String, node: &NodeReport) {
    let _ = writeln!(text, "    \"{}\":", node.name);
    if node.kind == Kind::Bridge {
        text.push_str("      kind: bridge\n");
        return;
    }
    let _ = writeln!(text, "      kind: linux\n      image: {IMAGE}");
    if !node.interfaces.is_empty() {
        text.push_str("      exec:\n");
    }
    for interface in &node.interfaces {
        let addresses = [Some(&interface.address), interface.address6.as_ref()];
        for address in addresses.into_iter().flatten() {
            let name = &interface.name;
            let command = format!("ip address replace {address} dev {name}");
            let _ = writeln!(text, "        - \"{command}\"");
        }
    }
}

/// The interface at the first end of a link.
fn interface<'a>(report: &'a VnetReport, link: &LinkReport) -> Option<&'a InterfaceReport> {
    let (node, name) = end(link, 0);
    let node = report
        .nodes
        .iter()
        .find(|candidate| candidate.name == node)?;
    node.interfaces
        .iter()
        .find(|interface| interface.name == name)
}

/// Image of the containers: it has a shell and `ip`.
const IMAGE: &str = "alpine:3";
