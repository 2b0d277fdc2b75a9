//! The neighbours that the agent sets in a namespace: the ends of its links at other nodes of this
//! host.
//!
//! Linux counts the neighbours that it has learned by ARP in one table for all namespaces, and
//! learns no more above `net.ipv4.neigh.default.gc_thresh3`, 1024 by default. A network with more
//! than 512 links would lose packets. Neighbours that a program has set do not count. They change
//! like learned ones if another MAC address answers.

use std::net::IpAddr;

use carina_vnet::document::Kind;
use carina_vnet::host_part::{EndPart, Far, HostPart, InterfacePart, NodePart};
use carina_wire::ether::Mac;

/// What is at the other end of an interface's link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Neighbour {
    /// Name of the interface in the node.
    pub(super) interface: String,
    pub(super) addresses: Vec<IpAddr>,
    pub(super) mac: Mac,
}

/// The neighbours of a node whose MAC addresses are known: those on links within this host. On the
/// segment of a bridge, nodes find each other by ARP.
pub(super) fn neighbours(part: &NodePart, whole: &HostPart) -> Vec<Neighbour> {
    let known = part.interfaces.iter().filter_map(|interface| {
        let far = far_interface(part, interface, whole)?;
        let address6 = far.address6.map(|address6| IpAddr::V6(address6.address()));
        let address = IpAddr::V4(far.address.address());
        Some(Neighbour {
            interface: interface.name.clone(),
            addresses: std::iter::once(address).chain(address6).collect(),
            mac: far.mac,
        })
    });
    known.collect()
}

fn far_interface<'a>(
    part: &NodePart,
    interface: &InterfacePart,
    whole: &'a HostPart,
) -> Option<&'a InterfacePart> {
    let link = whole.link(interface.link)?;
    let Far::Here(far) = &link.far else {
        return None;
    };
    let is_own = |end: &EndPart| end.node == part.name && end.interface == interface.name;
    let end = if is_own(far) { &link.near } else { far };
    let node = whole.node(&end.node)?;
    let is_bridged = [node.kind, part.kind].contains(&Kind::Bridge);
    node.interface(&end.interface).filter(|_| !is_bridged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn neighbours_are_the_far_ends_of_links() {
        let mut whole = part(&["a b", "b c"]);
        let of = |whole: &HostPart, name: &str| {
            let part = whole.node(name).unwrap();
            let all = neighbours(part, whole).into_iter();
            let words = all.map(|neighbour| {
                format!(
                    "{} {} {}",
                    neighbour.interface, neighbour.addresses[0], neighbour.mac
                )
            });
            words.collect::<Vec<_>>()
        };
        assert_eq!(
            of(&whole, "b"),
            [
                "eth0 10.0.0.1 02:00:00:00:00:00",
                "eth1 10.0.0.6 02:00:00:00:00:03"
            ]
        );
        whole.nodes[0].kind = Kind::Bridge;
        assert_eq!(of(&whole, "b").len(), 1);
        assert!(of(&whole, "a").is_empty());
    }
}
