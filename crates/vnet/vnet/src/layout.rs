//! The layout of a network: numbers, interfaces and addresses of links, which the document leaves
//! open.
//!
//! Link `n` has the prefix `10.0.0.0/30 + 4n`, unless the document gives it addresses. Its ends
//! have the first and the second address of the prefix, and MAC addresses `02:` uid `:` link `:`
//! end. An end for which the document names no interface gets the next free one of `eth0`, `eth1`,
//! … A layout takes the previous one into account: a link that was in it keeps its number,
//! interfaces and addresses, whatever other links are added or removed. The links of a bridge, and
//! of bridges that are joined, are one segment with one prefix (`segments.rs`).

mod access;
mod aggregation;
mod nics;
mod routes;
mod segments;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;

use carina_wire::ether::Mac;
use serde::{Deserialize, Serialize};

use crate::document::{Document, End, InterfaceAddress, InterfaceAddress6, Link};
use crate::host_part::{EndPart, InterfacePart, VnetId};

pub use self::access::LaidAccess;
pub use self::nics::LaidNic;
use self::segments::LaidSegment;

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
    /// IPv4 addresses of the ends, if the document gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    addresses: Option<[InterfaceAddress; 2]>,
    /// IPv6 addresses of the ends, if the document gives them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    addresses6: Option<[InterfaceAddress6; 2]>,
    /// The Ethernet segment of which the link is a part; `None` if no end is at a bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    segment: Option<LaidSegment>,
}

impl LaidLink {
    /// Takes from the document what does not identify the link.
    fn described(self, place: usize, link: &Link) -> LaidLink {
        LaidLink {
            place,
            mtu: link.mtu.unwrap_or(link.carrier.mtu()),
            addresses: link.addresses,
            addresses6: link.addresses6,
            ..self
        }
    }

    /// The interface at an end of this link, which has this `number` in network `vnet`.
    fn interface(&self, vnet: VnetId, number: u32, side: usize) -> InterfacePart {
        InterfacePart {
            name: self.ends[side].interface.clone(),
            mac: mac_of(vnet, number, side),
            address: self.address(number, side),
            peer: self.address(number, 1 - side).address(),
            address6: self.addresses6.map(|pair| pair[side]),
            mtu: self.mtu,
            link: number,
        }
    }

    /// The IPv4 address of an end of this link, which has this `number`.
    fn address(&self, number: u32, side: usize) -> InterfaceAddress {
        let own = self.addresses.map(|pair| pair[side]);
        let of_segment = self.segment.as_ref().map(|segment| segment.address(side));
        own.or(of_segment)
            .unwrap_or_else(|| address_of(number, side))
    }
}

/// MTU of cards.
const MTU: u16 = 1500;

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
            let known = old.get_mut(&link.ends).and_then(VecDeque::pop_front);
            match known {
                None => fresh.push((place, link)),
                Some((number, laid)) => {
                    let laid = laid.clone().described(place, link);
                    layout.links.insert(number, laid);
                }
            }
        }
        let mut taken = layout.interfaces_with(&fresh);
        let points = access::stay(document, &before.access, &mut taken);
        let mut number = 0;
        for (place, link) in fresh {
            while layout.links.contains_key(&number) {
                number += 1;
            }
            let laid = LaidLink {
                written: link.ends.clone(),
                ends: [0, 1].map(|side| place_end(&link.ends[side], &mut taken)),
                place,
                mtu: 0,
                addresses: None,
                addresses6: None,
                segment: None,
            };
            layout.links.insert(number, laid.described(place, link));
        }
        segments::lay(document, &mut layout.links);
        layout.access = access::lay(document, points, &mut taken);
        layout.nics = nics::lay(document, &before.nics, &mut taken);
        layout
    }

    /// The interfaces that no automatic choice may take: those of links that stay, and those that
    /// the new links `fresh` name in the document.
    fn interfaces_with(&self, fresh: &[(usize, &Link)]) -> BTreeSet<EndPart> {
        let stay = self.links.values().flat_map(|link| link.ends.clone());
        let named = fresh.iter().flat_map(|(_, link)| link.ends.iter());
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
                    found.push(link.interface(vnet, number, side));
                }
            }
        }
        let points = self.access().filter(|(_, laid)| laid.end.node == node);
        found.extend(points.map(|(number, laid)| laid.interface(vnet, number)));
        let nics = self.nics().filter(|(_, laid)| laid.end.node == node);
        found.extend(nics.map(|(number, laid)| laid.interface(vnet, number)));
        sort(&mut found);
        found
    }

    /// The interfaces of all nodes that have some, each node's sorted by name, in one pass over the
    /// links.
    #[must_use]
    pub fn interfaces_of_all(&self, vnet: VnetId) -> BTreeMap<&str, Vec<InterfacePart>> {
        let mut all: BTreeMap<&str, Vec<InterfacePart>> = BTreeMap::new();
        for (number, link) in self.links() {
            for (side, end) in link.ends.iter().enumerate() {
                let found = all.entry(&end.node).or_default();
                found.push(link.interface(vnet, number, side));
            }
        }
        for (number, laid) in self.access() {
            let found = all.entry(&laid.end.node).or_default();
            found.push(laid.interface(vnet, number));
        }
        for (number, laid) in self.nics() {
            let found = all.entry(&laid.end.node).or_default();
            found.push(laid.interface(vnet, number));
        }
        all.values_mut().for_each(|found| sort(found));
        all
    }
}

/// Sorts interfaces by name, `eth2` before `eth10`.
fn sort(interfaces: &mut [InterfacePart]) {
    interfaces.sort_by(|a, b| (a.name.len(), &a.name).cmp(&(b.name.len(), &b.name)));
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
    use crate::host_part::RoutePart;

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
        let names: Vec<&str> = interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
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

    #[test]
    fn links_with_addresses_keep_them_and_are_routed_to() {
        let text = "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n\
                    [[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\nas = \"gre\"\nmtu = 9000\n\
                    addresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n\
                    addresses6 = [\"2001:db8:1::1/64\", \"2001:db8:1::2/64\"]\n\
                    [[link]]\nends = [\"b\", \"c\"]\nrate = \"1Mbps\"\nas = \"gre\"\n\
                    addresses6 = [\"2001:db8:2::1/64\", \"2001:db8:2::2/64\"]\n";
        let document = Document::read(text, Form::Toml).unwrap();
        let layout = Layout::of(&document, &Layout::default());
        let end = &layout.interfaces(VnetId::new(1), "b")[0];
        assert_eq!(
            (end.address.to_string(), end.mtu),
            ("10.9.0.2/24".into(), 9000)
        );
        assert_eq!(end.peer.to_string(), "10.9.0.1");
        assert_eq!(end.address6.unwrap().to_string(), "2001:db8:1::2/64");
        let [routes, routes6] = [&layout.routes()["c"], &layout.routes()["a"]];
        assert_eq!(routes[0].to.to_string(), "10.9.0.0/24");
        assert_eq!(routes6[0].via.to_string(), "10.9.0.2");
        let routes6 = &layout.routes6()["a"];
        assert_eq!(routes6[0].to.to_string(), "2001:db8:2::/64");
        assert_eq!(routes6[0].via.to_string(), "2001:db8:1::2");
        // Without them, the link has those of its number.
        let bare = text.replace("addresses = [\"10.9.0.1/24\", \"10.9.0.2/24\"]\n", "");
        let document = Document::read(&bare, Form::Toml).unwrap();
        let after = Layout::of(&document, &layout);
        let end = &after.interfaces(VnetId::new(1), "b")[0];
        assert_eq!(end.address.to_string(), "10.0.0.2/30");
    }
}
