//! The layout of a network: numbers, interfaces and addresses of links, which the document leaves
//! open.
//!
//! Link `n` has the prefix `10.0.0.0/30 + 4n`. Its ends have the first and the second address of
//! the prefix, and MAC addresses `02:` uid `:` link `:` end. An end for which the document names no
//! interface gets the next free one of `eth0`, `eth1`, … A layout takes the previous one into
//! account: a link that was in it keeps its number, interfaces and addresses, whatever other links
//! are added or removed.

mod access;
mod nics;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use carina_wire::ether::Mac;
use serde::{Deserialize, Serialize};

use crate::document::{Carrier, Document, End};
use crate::host_part::{EndPart, InterfaceAddress, InterfacePart, RoutePart, VnetId};

pub use self::access::LaidAccess;
pub use self::nics::LaidNic;

/// The links of a network with their numbers and interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The links, by number.
    links: BTreeMap<u32, LaidLink>,
    /// The access points, by the numbers of their links.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    access: BTreeMap<u32, LaidAccess>,
    /// The physical cards, by the numbers of their links.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nics: BTreeMap<u32, LaidNic>,
}

/// A link with the interfaces at its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaidLink {
    /// The ends as the document writes them. They identify the link in the next document.
    written: [End; 2],
    /// The ends, each with its interface.
    pub ends: [EndPart; 2],
    /// Index of the link in the document's list of links.
    pub place: usize,
    /// MTU of the link: bytes of the largest IP packet.
    pub mtu: u16,
}

/// MTU of the substrate's own links.
const MTU: u16 = 1500;

/// If all routes to all links were more than this, the nodes of the network get none.
const ROUTES_MAX: usize = 200_000;

impl Layout {
    /// Lays out a document. Links of `before` that the document still has keep their numbers and
    /// interfaces.
    #[must_use]
    pub fn of(document: &Document, before: &Layout) -> Layout {
        let mut old: BTreeMap<&[End; 2], VecDeque<(u32, &LaidLink)>> = BTreeMap::new();
        for (number, link) in &before.links {
            let known = old.entry(&link.written).or_default();
            known.push_back((*number, link));
        }
        let mut layout = Layout::default();
        let mut fresh = Vec::new();
        for (place, link) in document.link.iter().enumerate() {
            let mtu = mtu_of(link.carrier);
            let known = old.get_mut(&link.ends).and_then(VecDeque::pop_front);
            match known {
                None => fresh.push((place, mtu, &link.ends)),
                Some((number, laid)) => {
                    let laid = laid.clone();
                    layout.links.insert(number, LaidLink { place, mtu, ..laid });
                }
            }
        }
        let mut taken = layout.interfaces_with(&fresh);
        let points = access::stay(document, &before.access, &mut taken);
        let mut number = 0;
        for (place, mtu, written) in fresh {
            while layout.links.contains_key(&number) {
                number += 1;
            }
            let ends = [0, 1].map(|side| place_end(&written[side], &mut taken));
            let written = written.clone();
            let laid = LaidLink {
                written,
                ends,
                place,
                mtu,
            };
            layout.links.insert(number, laid);
        }
        layout.access = access::lay(document, points, &mut taken);
        layout.nics = nics::lay(document, &before.nics, &mut taken);
        layout
    }

    /// The interfaces that no automatic choice may take: those of links that stay, and those that
    /// the new links `fresh` name in the document.
    fn interfaces_with(&self, fresh: &[(usize, u16, &[End; 2])]) -> BTreeSet<EndPart> {
        let stay = self.links.values().flat_map(|link| link.ends.clone());
        let named = fresh.iter().flat_map(|(_, _, ends)| ends.iter());
        let named = named.filter_map(|end| {
            let node = end.node.clone();
            let interface = end.interface.clone()?;
            Some(EndPart { node, interface })
        });
        stay.chain(named).collect()
    }

    /// The links with their numbers.
    pub fn links(&self) -> impl Iterator<Item = (u32, &LaidLink)> {
        self.links.iter().map(|(number, link)| (*number, link))
    }

    /// The access points with the numbers of their links.
    pub fn access(&self) -> impl Iterator<Item = (u32, &LaidAccess)> {
        self.access.iter().map(|(number, laid)| (*number, laid))
    }

    /// The physical cards with the numbers of their links.
    pub fn nics(&self) -> impl Iterator<Item = (u32, &LaidNic)> {
        self.nics.iter().map(|(number, laid)| (*number, laid))
    }

    /// The interfaces of a node, sorted by name.
    #[must_use]
    pub fn interfaces(&self, vnet: VnetId, node: &str) -> Vec<InterfacePart> {
        let mut found = Vec::new();
        for (number, link) in self.links() {
            for (side, end) in link.ends.iter().enumerate() {
                if end.node == node {
                    found.push(InterfacePart {
                        name: end.interface.clone(),
                        mac: mac_of(vnet, number, side),
                        address: address_of(number, side),
                        peer: address_of(number, 1 - side).address(),
                        mtu: link.mtu,
                        link: number,
                    });
                }
            }
        }
        let points = self.access().filter(|(_, laid)| laid.end.node == node);
        found.extend(points.map(|(number, laid)| laid.interface(vnet, number)));
        let nics = self.nics().filter(|(_, laid)| laid.end.node == node);
        found.extend(nics.map(|(number, laid)| laid.interface(vnet, number)));
        found.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
        found
    }

    /// For each node, routes to the links at which it has no interface, each along a path with the
    /// fewest links. Empty if the network would need more than 200,000 routes.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<String, Vec<RoutePart>> {
        let mut at: BTreeMap<&str, Vec<(u32, usize)>> = BTreeMap::new();
        for (number, link) in self.links() {
            for (side, end) in link.ends.iter().enumerate() {
                at.entry(&end.node).or_default().push((number, side));
            }
        }
        if at.len().saturating_mul(self.links.len()) > ROUTES_MAX {
            return BTreeMap::new();
        }
        let nodes = at.keys();
        let routes = nodes.map(|node| ((*node).to_owned(), self.routes_of(node, &at)));
        routes.collect()
    }

    /// The routes of one node, by breadth-first search: finds the first hop to every other node,
    /// and through it the links of that node.
    fn routes_of(&self, node: &str, at: &BTreeMap<&str, Vec<(u32, usize)>>) -> Vec<RoutePart> {
        let mut via: BTreeMap<&str, Option<Ipv4Addr>> = BTreeMap::from([(node, None)]);
        let mut left = VecDeque::from([node]);
        let mut known: BTreeSet<u32> = at[node].iter().map(|(number, _)| *number).collect();
        let mut routes = Vec::new();
        while let Some(here) = left.pop_front() {
            for (number, side) in &at[here] {
                let next = self.links[number].ends[1 - side].node.as_str();
                let first = via[here].unwrap_or(address_of(*number, 1 - side).address());
                if !via.contains_key(next) {
                    via.insert(next, Some(first));
                    left.push_back(next);
                }
                if known.insert(*number) {
                    let to = address_of(*number, 0).prefix();
                    routes.push(RoutePart { to, via: first });
                }
            }
            if let Some(via) = via[here] {
                let points = self.access().filter(|(_, laid)| laid.end.node == here);
                let prefixes = points.map(|(number, _)| access::prefix_of(number).prefix());
                routes.extend(prefixes.map(|to| RoutePart { to, via }));
                let cards = self.nics().filter(|(_, laid)| laid.end.node == here);
                let prefixes = cards.map(|(number, _)| nics::prefix_of(number).prefix());
                routes.extend(prefixes.map(|to| RoutePart { to, via }));
            }
        }
        routes
    }
}

/// The end with the interface that the document names, or with the next free interface.
fn place_end(end: &End, taken: &mut BTreeSet<EndPart>) -> EndPart {
    let at = |interface: String| EndPart {
        node: end.node.clone(),
        interface,
    };
    if let Some(interface) = &end.interface {
        return at(interface.clone());
    }
    let mut numbers = 0..;
    loop {
        // A node has at most as many interfaces as there are links.
        let number: u32 = numbers.next().unwrap_or_default();
        let free = at(format!("eth{number}"));
        if taken.insert(free.clone()) {
            return free;
        }
    }
}

/// MTU of a link with this carrier over an Ethernet substrate. (RFC 2003; RFC 2784 with the key of
/// RFC 2890 and an Ethernet header inside; RFC 7348)
fn mtu_of(carrier: Carrier) -> u16 {
    match carrier {
        Carrier::Ipip => MTU - 20,
        Carrier::Gre => MTU - 20 - 8 - 14,
        Carrier::Vxlan => MTU - 20 - 8 - 8 - 14,
        // Room for EFCP's header, delimiting and SDU protection of a DIF over Ethernet.
        Carrier::Dif => MTU - 100,
    }
}

fn address_of(link: u32, side: usize) -> InterfaceAddress {
    let first = Ipv4Addr::new(10, 0, 0, 1).to_bits();
    let address = first + 4 * link + u32::from(side == 1);
    InterfaceAddress::new(Ipv4Addr::from_bits(address), 30).expect("30 bits are a prefix")
}

fn mac_of(vnet: VnetId, link: u32, side: usize) -> Mac {
    let [a, b, ..] = vnet.number().to_be_bytes();
    let [_, c, d, e] = (2 * link + u32::from(side == 1)).to_be_bytes();
    Mac([0x02, a, b, c, d, e])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Form;

    fn document(links: &[&str]) -> Document {
        let mut text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n[node.d]\n".to_owned();
        for link in links {
            let (one, other) = link.split_once(' ').unwrap();
            text.push_str(&format!(
                "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Mbps\"\n"
            ));
        }
        Document::read(&text, Form::Toml).unwrap()
    }

    fn ends(layout: &Layout) -> Vec<String> {
        let text = |(number, link): (u32, &LaidLink)| {
            let [one, other] = &link.ends;
            format!("{number} {one} {other}")
        };
        layout.links().map(text).collect()
    }

    #[test]
    fn ends_get_interfaces_that_no_other_end_has() {
        let layout = Layout::of(&document(&["a b", "a:eth0 c", "a b"]), &Layout::default());
        assert_eq!(
            ends(&layout),
            ["0 a:eth1 b:eth0", "1 a:eth0 c:eth0", "2 a:eth2 b:eth1"]
        );
        let interfaces = layout.interfaces(VnetId::new(0xabcd << 48), "a");
        let names: Vec<&str> = interfaces.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1", "eth2"]);
        assert_eq!(interfaces[0].address.to_string(), "10.0.0.5/30");
        assert_eq!(interfaces[0].peer.to_string(), "10.0.0.6");
        assert_eq!(interfaces[0].mac.to_string(), "02:ab:cd:00:00:02");
        assert_eq!((interfaces[0].mtu, interfaces[0].link), (1480, 1));
    }

    #[test]
    fn links_keep_their_numbers_when_others_come_and_go() {
        let first = Layout::of(&document(&["a b", "b c", "c d"]), &Layout::default());
        let second = Layout::of(&document(&["d a", "c d", "a b"]), &first);
        assert_eq!(
            ends(&second),
            ["0 a:eth0 b:eth0", "1 d:eth1 a:eth1", "2 c:eth1 d:eth0"]
        );
        let places: Vec<usize> = second.links().map(|(_, link)| link.place).collect();
        assert_eq!(places, [2, 0, 1]);
        assert_eq!(
            ends(&Layout::of(&document(&["d a", "c d", "a b"]), &second)),
            ends(&second)
        );
    }

    #[test]
    fn routes_lead_over_the_fewest_links() {
        let links = ["a b", "b c", "c d", "d a"];
        let layout = Layout::of(&document(&links[..3]), &Layout::default());
        let routes = |layout: &Layout, node: &str| -> Vec<String> {
            let all = layout.routes();
            let text = |route: &RoutePart| format!("{} {}", route.to, route.via);
            all[node].iter().map(text).collect()
        };
        assert_eq!(
            routes(&layout, "a"),
            ["10.0.0.4/30 10.0.0.2", "10.0.0.8/30 10.0.0.2"]
        );
        assert_eq!(
            routes(&layout, "d"),
            ["10.0.0.4/30 10.0.0.9", "10.0.0.0/30 10.0.0.9"]
        );
        let ring = Layout::of(&document(&links), &layout);
        assert_eq!(
            routes(&ring, "a"),
            ["10.0.0.4/30 10.0.0.2", "10.0.0.8/30 10.0.0.13"]
        );
    }
}
