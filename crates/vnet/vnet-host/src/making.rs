//! Creates and removes the ports of links: veths to namespaces, taps for machines.

use std::collections::BTreeSet;

use carina_namespaces::NamespaceAccess;
use carina_vnet::document::Kind;
use carina_vnet::host_part::{EndPart, HostPart, LinkPart};

use crate::error::Result;
use crate::names::{node_namespace, port, ports_namespace};
use crate::namespace;
use crate::port_selection::both_ports;
use carina_vnet::host_part::LinkEnd;

/// Creates the namespaces of a part that are not in `existing`: the one for ports, and those of
/// nodes. In those of nodes, the loopback interface is down until the node is configured.
pub(crate) fn make_namespaces(part: &HostPart, existing: &[String]) -> Result<()> {
    namespace::make(existing, &ports_namespace(part.vnet))?;
    let nodes = part.nodes.iter();
    let nodes = nodes.filter(|node| node.kind.has_namespace());
    let names = nodes.map(|node| node_namespace(part.vnet, &node.name));
    let existing: BTreeSet<&String> = existing.iter().collect();
    let missing = names.filter(|name| !existing.contains(name));
    let lines: Vec<String> = missing.map(|name| format!("netns add {name}")).collect();
    Ok(NamespaceAccess::of_root().ip_lines_in_any_order(&lines)?)
}

/// Creates the ports at both ends of links.
pub(crate) fn make_ports(part: &HostPart, numbers: &[u32]) -> Result<()> {
    let numbers: BTreeSet<&u32> = numbers.iter().collect();
    let links = part.links.iter();
    let links = links.filter(|link| numbers.contains(&link.number));
    let ends = links.flat_map(ends_of);
    make(part, ends)
}

fn ends_of(link: &LinkPart) -> impl Iterator<Item = (LinkEnd, &EndPart)> {
    let ends = link.ends().enumerate();
    ends.map(|(side, end)| ((link.number, side), end))
}

/// Creates the ports of single ends.
pub(crate) fn make_ends(part: &HostPart, ends: &[LinkEnd]) -> Result<()> {
    let all = part.links.iter().flat_map(ends_of);
    make(part, all.filter(|(end, _)| ends.contains(end)))
}

/// Creates the ports of ends, with indices that no interface of a node has.
///
/// Linux handles a carrier change of a veth at once if its index differs from that of its peer,
/// which is in another namespace here. If the two are equal, Linux takes the veth for a physical
/// interface, may wait for a second, and drops frames meanwhile.
fn make<'a>(part: &HostPart, ends: impl Iterator<Item = (LinkEnd, &'a EndPart)>) -> Result<()> {
    let ends: Vec<(LinkEnd, &EndPart)> = ends.collect();
    if ends.is_empty() {
        return Ok(());
    }
    let inside = ports_namespace(part.vnet);
    let lines = indices(&inside, &ends)?.into_iter().zip(ends);
    let lines = lines.flat_map(|(index, (end, node))| lines_of_end(part, end, node, index));
    namespace::batch(&inside, &lines.collect::<Vec<String>>())
}

/// Indices for the ports of ends, which no interface of the ports' namespace has: for a few ends,
/// those that follow from the number of the link, if they are free.
fn indices(inside: &str, ends: &[(LinkEnd, &EndPart)]) -> Result<Vec<u32>> {
    let of_end = |((link, side), _): &(LinkEnd, &EndPart)| {
        let side = u32::from(*side == 1);
        INDEX_BEFORE + 1 + 2 * (link % INDEX_LINKS) + side
    };
    let indices: Vec<u32> = ends.iter().map(of_end).collect();
    if indices.len() <= FEW && namespace::are_free(inside, &indices)? {
        return Ok(indices);
    }
    let first = namespace::last_index(inside)?.max(INDEX_BEFORE) + 1;
    Ok((first..).take(ends.len()).collect())
}

/// Renames ports. They stay connected. Kernels before Linux 6.2 rename only ports that are down;
/// there, a port loses its carrier for a moment.
pub(crate) fn rename(part: &HostPart, names: &[(String, String)]) -> Result<()> {
    let inside = ports_namespace(part.vnet);
    for (old, new) in names {
        if namespace::rename(&inside, old, new).is_err() {
            let lines = [
                format!("link set dev {old} down"),
                format!("link set dev {old} name {new}"),
                format!("link set dev {new} up"),
            ];
            namespace::batch(&inside, &lines)?;
        }
    }
    Ok(())
}

/// The `ip` commands that create the port of an end.
fn lines_of_end(part: &HostPart, (link, side): LinkEnd, end: &EndPart, index: u32) -> Vec<String> {
    let port = port(link, side);
    let mtu = part.interface(end).map_or(MTU, |interface| interface.mtu);
    let kind = part.node(&end.node).map(|node| node.kind);
    let make = match kind {
        Some(Kind::Vm) | None => return lines_of_tap(&port, mtu).into(),
        Some(Kind::Namespace | Kind::Bridge) => {
            let (inside, name) = (node_namespace(part.vnet, &end.node), &end.interface);
            format!(
                "link add name {port} index {index} mtu {mtu} type veth peer name {name} mtu {mtu} \
                 netns {inside}"
            )
        }
    };
    vec![make, format!("link set dev {port} mtu {mtu} up")]
}

/// Creates taps with the given names for ends of links at machines, configured like the taps that
/// the machines have.
pub(crate) fn make_taps(part: &HostPart, taps: &[(LinkEnd, String)]) -> Result<()> {
    let lines: Vec<String> = taps
        .iter()
        .flat_map(|((link, side), tap)| {
            let links = part.links.iter();
            let mut links = links.filter(|candidate| candidate.number == *link);
            let end = links.find_map(|link| link.ends().nth(*side));
            let interface = end.and_then(|end| part.interface(end));
            lines_of_tap(tap, interface.map_or(MTU, |interface| interface.mtu))
        })
        .collect();
    namespace::batch(&ports_namespace(part.vnet), &lines)
}

/// Sets ports up or down; ports that do not exist are skipped.
pub(crate) fn switch(part: &HostPart, ports: &[(String, bool)]) -> Result<()> {
    let inside = ports_namespace(part.vnet);
    let names: Vec<String> = ports.iter().map(|(port, _)| port.clone()).collect();
    let existing = namespace::existing(&inside, &names)?;
    let found = ports.iter().filter(|(port, _)| existing.contains(port));
    let lines: Vec<String> = found
        .map(|(port, is_up)| {
            let word = if *is_up { "up" } else { "down" };
            format!("link set dev {port} {word}")
        })
        .collect();
    namespace::batch(&inside, &lines)
}

/// Removes ports; ports that do not exist are skipped.
pub(crate) fn remove_named(part: &HostPart, ports: &[String]) -> Result<()> {
    let inside = ports_namespace(part.vnet);
    let mut tries = TRIES;
    loop {
        let existing = namespace::existing(&inside, ports)?;
        let found = ports.iter().filter(|port| existing.contains(*port));
        let lines: Vec<String> = found.map(|port| format!("link del dev {port}")).collect();
        match namespace::batch(&inside, &lines) {
            // A veth whose peer's namespace was just removed may vanish at the same time.
            Err(_) if tries > 1 => tries -= 1,
            done => return done,
        }
    }
}

fn lines_of_tap(tap: &str, mtu: u16) -> [String; 2] {
    [
        format!("tuntap add dev {tap} mode tap"),
        format!("link set dev {tap} mtu {mtu} up"),
    ]
}

/// Removes the ports of links; ports that do not exist are skipped.
pub(crate) fn remove_ports(part: &HostPart, numbers: &[u32]) -> Result<()> {
    if numbers.is_empty() {
        return Ok(());
    }
    remove_named(part, &ports_of(numbers))
}

/// All possible names of the ports of links.
pub(crate) fn ports_of(numbers: &[u32]) -> Vec<String> {
    let ports = numbers
        .iter()
        .flat_map(|number| [0, 1].map(|side| both_ports((*number, side))));
    ports.flatten().collect()
}

/// MTU of an end that is not in the part; does not occur in checked parts.
const MTU: u16 = 1500;
/// Indices of ports are larger; those of a node's interfaces are small.
const INDEX_BEFORE: u32 = 10_000;
/// Links whose ports have indices of their own, before the indices repeat.
const INDEX_LINKS: u32 = 1 << 24;
/// Largest number of ends whose indices follow from their links.
const FEW: usize = 32;
/// How often the removal is retried if ports vanish at the same time.
const TRIES: u32 = 5;
