//! The ports of links: veths to namespaces, taps for machines.

use carina_vnet::document::Kind;
use carina_vnet::host_part::{EndPart, HostPart, LinkPart};

use crate::error::Result;
use crate::names::{node_namespace, port, ports_namespace};
use crate::namespace;

/// Makes the namespaces of a part that are not among `existing`: that of the ports, and those that
/// are nodes.
pub fn make_namespaces(part: &HostPart, existing: &[String]) -> Result<()> {
    namespace::make(existing, &ports_namespace(part.vnet))?;
    let nodes = part.nodes.iter();
    let mut nodes = nodes.filter(|node| node.kind == Kind::Namespace);
    nodes.try_for_each(|node| namespace::make(existing, &node_namespace(part.vnet, &node.name)))
}

/// Makes the ports of links.
pub fn make_ports(part: &HostPart, numbers: &[u32]) -> Result<()> {
    let links = part.links.iter();
    let links = links.filter(|link| numbers.contains(&link.number));
    let lines: Vec<String> = links.flat_map(|link| lines_of(part, link)).collect();
    namespace::batch(&ports_namespace(part.vnet), &lines)
}

/// The lines of `ip` that make the ports of a link.
fn lines_of(part: &HostPart, link: &LinkPart) -> Vec<String> {
    let ends = link.ends().enumerate();
    ends.flat_map(|(side, end)| lines_of_end(part, link.number, side, end))
        .collect()
}

fn lines_of_end(part: &HostPart, link: u32, side: usize, end: &EndPart) -> Vec<String> {
    let port = port(link, side);
    let mtu = part.interface(end).map_or(MTU, |interface| interface.mtu);
    let kind = part.node(&end.node).map(|node| node.kind);
    let make = match kind {
        Some(Kind::Namespace) => {
            let (inside, name) = (node_namespace(part.vnet, &end.node), &end.interface);
            format!(
                "link add name {port} mtu {mtu} type veth peer name {name} mtu {mtu} \
                 netns {inside}"
            )
        }
        _ => format!("tuntap add dev {port} mode tap"),
    };
    vec![make, format!("link set dev {port} mtu {mtu} up")]
}

/// Removes the ports of links, as far as they are there.
pub fn remove_ports(part: &HostPart, numbers: &[u32]) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    let inside = ports_namespace(part.vnet);
    let existing = namespace::interfaces(&inside)?;
    let ports = numbers
        .iter()
        .flat_map(|number| [0, 1].map(|side| port(*number, side)));
    let there = ports.filter(|port| existing.contains(port));
    let lines: Vec<String> = there.map(|port| format!("link del dev {port}")).collect();
    namespace::batch(&inside, &lines)
}

/// The MTU of an end that is not in the part, which no part that was checked has.
const MTU: u16 = 1500;
