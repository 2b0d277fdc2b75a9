//! The layout of physical cards: the interfaces of nodes that have them.
//!
//! A card is a link whose far end is a physical card of the host. Card *n* of a network has the
//! prefix `10.160.0.0/30 + 4n`, of which the node has the first address. Devices beyond the card
//! are not part of the network and have addresses of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::mac_of;
use crate::document::Document;
use crate::host_part::{EndPart, InterfaceAddress, InterfacePart, VnetId};

/// A physical card of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaidNic {
    /// The node and interface where the card is.
    pub end: EndPart,
    /// Index of the card among the node's cards, from 0.
    place: u32,
}

impl LaidNic {
    /// The node's interface for this card, whose link has this `number` in network `vnet`.
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
            mtu: super::MTU,
            link: number,
        }
    }
}

/// Lays out the cards of a document. Cards that stay keep their numbers and interfaces.
pub(super) fn lay(
    document: &Document,
    before: &BTreeMap<u32, LaidNic>,
    taken: &mut BTreeSet<EndPart>,
) -> BTreeMap<u32, LaidNic> {
    let count = |node: &str| document.resolved(node).map_or(0, |node| node.nics.count);
    let wanted = before
        .iter()
        .filter(|(_, laid)| laid.place < count(&laid.end.node));
    let free = wanted.filter(|(_, laid)| taken.insert(laid.end.clone()));
    let mut nics: BTreeMap<u32, LaidNic> =
        free.map(|(number, laid)| (*number, laid.clone())).collect();
    let known: BTreeSet<(String, u32)> = nics
        .values()
        .map(|nic| (nic.end.node.clone(), nic.place))
        .collect();
    let mut number = FIRST;
    for node in document.node.keys() {
        for place in (0..count(node)).filter(|place| !known.contains(&(node.clone(), *place))) {
            while nics.contains_key(&number) {
                number += 1;
            }
            let end = free_end(node, taken);
            nics.insert(number, LaidNic { end, place });
        }
    }
    nics
}

/// The node's address, with its prefix, at the card whose link has this `number`.
pub(super) fn prefix_of(number: u32) -> InterfaceAddress {
    let first = Ipv4Addr::new(10, 160, 0, 1).to_bits() + 4 * number.saturating_sub(FIRST);
    InterfaceAddress::new(Ipv4Addr::from_bits(first), 30).expect("30 bits are a prefix")
}

/// The next free interface of `nic0`, `nic1`, …, which is added to `taken`.
fn free_end(node: &str, taken: &mut BTreeSet<EndPart>) -> EndPart {
    let mut number = 0;
    loop {
        let end = EndPart {
            node: node.to_owned(),
            interface: format!("nic{number}"),
        };
        if taken.insert(end.clone()) {
            return end;
        }
        number += 1;
    }
}

/// Link number of the first card, above all numbers of links and access points.
const FIRST: u32 = 1 << 21;

#[cfg(test)]
mod tests {
    use super::super::Layout;
    use super::*;
    use crate::document::Form;

    fn document(nics: [u32; 2]) -> Document {
        let text = format!(
            "[vnet]\nname = \"x\"\n[node.a]\nnics = {{ count = {} }}\n[node.b]\n\
             nics = {{ count = {} }}\n[[link]]\nends = [\"a:nic0\", \"b\"]\nrate = \"1Mbps\"\n",
            nics[0], nics[1]
        );
        Document::read(&text, Form::Toml).unwrap()
    }

    fn ends(layout: &Layout) -> Vec<String> {
        let text = |(number, laid): (u32, &LaidNic)| format!("{} {}", number - FIRST, laid.end);
        layout.nics().map(text).collect()
    }

    #[test]
    fn cards_have_interfaces_and_keep_them() {
        let first = Layout::of(&document([2, 1]), &Layout::default());
        assert_eq!(ends(&first), ["0 a:nic1", "1 a:nic2", "2 b:nic0"]);
        let interfaces = first.interfaces(VnetId::new(0), "b");
        assert_eq!(interfaces[1].name, "nic0");
        assert_eq!(interfaces[1].address.to_string(), "10.160.0.9/30");
        let second = Layout::of(&document([1, 2]), &first);
        assert_eq!(ends(&second), ["0 a:nic1", "1 b:nic1", "2 b:nic0"]);
    }
}
