//! The layout of access points: their interfaces, and the addresses of their users.
//!
//! An access point is a link whose far end is at users. Access point *n* has the prefix
//! `10.128.0.0/23 + 512n`. The node has the first address, the access point the second, users the
//! others. A user keeps the same address when other users are added or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{mac_of, place_end};
use crate::document::{Document, End};
use crate::host_part::{EndPart, InterfaceAddress, InterfacePart, VnetId};

/// An access point with its interface and the places of its users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaidAccess {
    /// Name of the access point, as in the document.
    pub name: String,
    /// The node and interface where the access point is.
    pub end: EndPart,
    /// For each user, the number of the user's address in the prefix.
    #[serde(default)]
    places: BTreeMap<String, u32>,
}

impl LaidAccess {
    /// The node's interface for this access point, whose link has this `number` in network `vnet`.
    #[must_use]
    pub(super) fn interface(&self, vnet: VnetId, number: u32) -> InterfacePart {
        let address = prefix_of(number);
        let peer = Ipv4Addr::from_bits(address.address().to_bits() + 1);
        InterfacePart {
            name: self.end.interface.clone(),
            mac: mac_of(vnet, number, 0),
            address,
            peer,
            address6: None,
            mtu: MTU,
            link: number,
        }
    }

    /// The address of each user, if this access point's link has this `number`.
    #[must_use]
    pub fn addresses(&self, number: u32) -> BTreeMap<String, Ipv4Addr> {
        let node = prefix_of(number).address().to_bits();
        let places = self.places.iter();
        let address = |place: &u32| Ipv4Addr::from_bits(node - 1 + place);
        places
            .map(|(user, place)| (user.clone(), address(place)))
            .collect()
    }
}

/// The access points of `before` that stay: the document still has them at the same node, and their
/// interfaces are not in `taken`. Adds their interfaces to `taken`.
pub(super) fn stay(
    document: &Document,
    before: &BTreeMap<u32, LaidAccess>,
    taken: &mut BTreeSet<EndPart>,
) -> BTreeMap<u32, LaidAccess> {
    let is_wanted = |laid: &LaidAccess| {
        let wanted = document.access.get(&laid.name);
        wanted.is_some_and(|wanted| wanted.node == laid.end.node)
    };
    let wanted = before.iter().filter(|(_, laid)| is_wanted(laid));
    let free = wanted.filter(|(_, laid)| taken.insert(laid.end.clone()));
    free.map(|(number, laid)| (*number, laid.clone())).collect()
}

/// Lays out the access points of a document. Those in `points` keep their numbers, interfaces and
/// users' addresses; the others get new ones.
pub(super) fn lay(
    document: &Document,
    mut points: BTreeMap<u32, LaidAccess>,
    taken: &mut BTreeSet<EndPart>,
) -> BTreeMap<u32, LaidAccess> {
    let known: BTreeSet<String> = points.values().map(|laid| laid.name.clone()).collect();
    let mut number = FIRST;
    for (name, wanted) in document
        .access
        .iter()
        .filter(|(it, _)| !known.contains(*it))
    {
        while points.contains_key(&number) {
            number += 1;
        }
        let end = End {
            node: wanted.node.clone(),
            interface: None,
        };
        let laid = LaidAccess {
            name: name.clone(),
            end: place_end(&end, taken),
            places: BTreeMap::new(),
        };
        points.insert(number, laid);
    }
    for laid in points.values_mut() {
        let users = &document.access[&laid.name].users;
        laid.places.retain(|user, _| users.contains(user));
        let mut taken: BTreeSet<u32> = laid.places.values().copied().collect();
        let mut place = FIRST_USER;
        for user in users {
            if !laid.places.contains_key(user) {
                while !taken.insert(place) {
                    place += 1;
                }
                laid.places.insert(user.clone(), place);
            }
        }
    }
    points
}

/// The node's address, with its prefix, at the access point whose link has this `number`.
pub(super) fn prefix_of(number: u32) -> InterfaceAddress {
    let first = Ipv4Addr::new(10, 128, 0, 1).to_bits();
    let node = first + PREFIX_ADDRESSES * number.saturating_sub(FIRST);
    InterfaceAddress::new(Ipv4Addr::from_bits(node), 23).expect("23 bits are a prefix")
}

/// Link number of the first access point, above all numbers of ordinary links.
const FIRST: u32 = 1 << 20;
/// Place of the first user in the prefix, after the node and the access point.
const FIRST_USER: u32 = 3;
/// Addresses of a prefix: twice as many as a list can have users.
const PREFIX_ADDRESSES: u32 = 512;
/// MTU of an access point: 1500 bytes less 40 + 8 + 32 for IPv6, UDP and WireGuard. Over IPv4 20
/// more bytes would fit; they are left unused so that the MTU does not depend on where a user is.
const MTU: u16 = 1420;

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;
    use crate::document::Form;

    fn document(links: &str, users: &str) -> Document {
        let text = format!(
            "[vnet]\nname = \"x\"\n[node.a]\n[node.b]\n[node.c]\n{links}\
             [access.home]\nnode = \"a\"\nusers = [{users}]\n"
        );
        Document::read(&text, Form::Toml).unwrap()
    }

    const CHAIN: &str = "[[link]]\nends = [\"a\", \"b\"]\nrate = \"1Mbps\"\n\
                         [[link]]\nends = [\"b\", \"c\"]\nrate = \"1Mbps\"\n";

    #[test]
    fn access_point_is_an_interface_that_other_nodes_reach() {
        let layout = Layout::of(&document(CHAIN, "\"alice\""), &Layout::default());
        let interfaces = layout.interfaces(VnetId::new(0), "a");
        let names: Vec<&str> = interfaces
            .iter()
            .map(|interface| interface.name.as_str())
            .collect();
        assert_eq!(names, ["eth0", "eth1"]);
        assert_eq!(interfaces[1].address.to_string(), "10.128.0.1/23");
        assert_eq!(interfaces[1].peer.to_string(), "10.128.0.2");
        let routes = layout.routes();
        let to_users = |node: &str| {
            let mut all = routes[node].iter();
            let found = all.find(|candidate| candidate.to.to_string() == "10.128.0.0/23");
            found.map(|route| route.via.to_string())
        };
        assert_eq!(to_users("a"), None);
        assert_eq!(to_users("b").as_deref(), Some("10.0.0.1"));
        assert_eq!(to_users("c").as_deref(), Some("10.0.0.5"));
    }

    #[test]
    fn users_keep_their_addresses_when_others_come_and_go() {
        let of = |layout: &Layout| {
            let (number, laid) = layout.access().next().unwrap();
            let all = laid.addresses(number).into_iter();
            all.map(|(user, address)| format!("{user} {address}"))
                .collect::<Vec<_>>()
        };
        let first = Layout::of(&document(CHAIN, "\"alice\", \"bob\""), &Layout::default());
        assert_eq!(of(&first), ["alice 10.128.0.3", "bob 10.128.0.4"]);
        let second = Layout::of(&document(CHAIN, "\"carol\", \"bob\""), &first);
        assert_eq!(of(&second), ["bob 10.128.0.4", "carol 10.128.0.3"]);
        // A link that is added later finds the access point's interface taken.
        let more = format!("{CHAIN}[[link]]\nends = [\"a\", \"c\"]\nrate = \"1Mbps\"\n");
        let third = Layout::of(&document(&more, "\"bob\""), &second);
        assert_eq!(third.access().next().unwrap().1.end.interface, "eth1");
        assert_eq!(of(&third), ["bob 10.128.0.4"]);
    }
}
