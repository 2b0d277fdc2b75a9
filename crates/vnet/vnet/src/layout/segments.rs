//! Ethernet segments: bridges that are joined, and all ends of their links.
//!
//! Segment `n` has the prefix `10.64.0.0/21 + 2048n`, unless the document gives the links of the
//! segment addresses. Nodes get the first free host numbers of the prefix, bridges the last free
//! ones. A segment and its ends keep their numbers while other links come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{LaidLink, Layout};
use crate::document::{Document, InterfaceAddress};

/// The segment of a link, and the numbers of the link's ends in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LaidSegment {
    number: u32,
    /// Host numbers of the ends in the prefix of the segment.
    hosts: [u32; 2],
    /// For each side of the link, whether its end is at a bridge.
    bridged: [bool; 2],
    /// Whether the bridges of the segment form a loop.
    has_loop: bool,
}

impl LaidSegment {
    pub(super) fn address(&self, side: usize) -> InterfaceAddress {
        // A layout that was read from a file may have any number.
        let number = self.number.min(SEGMENTS_MAX - 1);
        let first = Ipv4Addr::from(FIRST).to_bits() + (number << HOST_BITS);
        let host = self.hosts[side] & (HOSTS_MAX + 1);
        let address = Ipv4Addr::from_bits(first + host);
        InterfaceAddress::new(address, 32 - HOST_BITS as u8).expect("21 bits are a prefix")
    }
}

impl Layout {
    /// Whether a node is a bridge of a segment whose bridges form a loop.
    #[must_use]
    pub fn has_loop(&self, node: &str) -> bool {
        self.links().any(|(_, link)| {
            let is_bridge = |segment: &LaidSegment| {
                let ends = link.ends.iter().zip(segment.bridged);
                let mut ends = ends.filter(|(_, is_bridge)| *is_bridge);
                segment.has_loop && ends.any(|(end, _)| end.node == node)
            };
            link.segment.as_ref().is_some_and(is_bridge)
        })
    }
}

impl LaidLink {
    /// The number of the link's segment; `None` if no end is at a bridge.
    pub(super) fn segment(&self) -> Option<u32> {
        self.segment.as_ref().map(|segment| segment.number)
    }

    /// Whether an end is at a bridge.
    pub(super) fn is_bridged(&self, side: usize) -> bool {
        let segment = self.segment.as_ref();
        segment.is_some_and(|segment| segment.bridged[side])
    }
}

/// The links of one segment, by number.
struct Members {
    links: BTreeSet<u32>,
    has_loop: bool,
}

/// Assigns links with bridges to segments. The links still have the segments of the layout before.
pub(super) fn lay(document: &Document, links: &mut BTreeMap<u32, LaidLink>) {
    let bridged = |link: &LaidLink| {
        link.ends
            .each_ref()
            .map(|end| document.is_bridge(&end.node))
    };
    let by_place: BTreeMap<usize, u32> = links.iter().map(|(it, link)| (link.place, *it)).collect();
    let segments = document.segments().into_iter();
    let all = segments.map(|segment| Members {
        links: segment.links.iter().map(|place| by_place[place]).collect(),
        has_loop: segment.has_loop,
    });
    let all: Vec<Members> = all.collect();
    let numbers = numbers(&all, links);
    let mut laid = BTreeMap::new();
    for (members, number) in all.iter().zip(numbers) {
        let mut hosts = Hosts::default();
        // Ends that stay keep their numbers, before new ends get theirs.
        for is_new in [false, true] {
            for place in &members.links {
                let link = &links[place];
                let before = link
                    .segment
                    .as_ref()
                    .filter(|segment| segment.number == number);
                for (side, is_bridge) in bridged(link).into_iter().enumerate() {
                    let before = before.map(|before| before.hosts[side]);
                    let end = &link.ends[side];
                    // All links of a bridge share its address.
                    let interface = if is_bridge { "" } else { &end.interface };
                    hosts.place((&end.node, interface), before, is_new);
                }
            }
        }
        for place in &members.links {
            let link = &links[place];
            let bridged = bridged(link);
            let host = |side: usize| {
                let end = &link.ends[side];
                let interface = if bridged[side] { "" } else { &end.interface };
                hosts.of.get(&(end.node.as_str(), interface)).copied()
            };
            let segment = LaidSegment {
                number,
                hosts: [0, 1].map(|side| host(side).unwrap_or_default()),
                bridged,
                has_loop: members.has_loop,
            };
            laid.insert(*place, segment);
        }
    }
    for (place, link) in links.iter_mut() {
        link.segment = laid.remove(place);
    }
}

/// The number of each segment: that of its links before, if no earlier segment has it.
fn numbers(all: &[Members], links: &BTreeMap<u32, LaidLink>) -> Vec<u32> {
    let mut taken = BTreeSet::new();
    let before = |members: &Members, taken: &mut BTreeSet<u32>| {
        let mut numbers = members
            .links
            .iter()
            .filter_map(|link| links[link].segment());
        numbers.find(|number| *number < SEGMENTS_MAX && taken.insert(*number))
    };
    let kept: Vec<Option<u32>> = all
        .iter()
        .map(|segment| before(segment, &mut taken))
        .collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    let number = |kept: Option<u32>| kept.or_else(|| free.next()).unwrap_or_default();
    kept.into_iter().map(number).collect()
}

/// Host numbers of the ends in a segment.
#[derive(Default)]
struct Hosts<'a> {
    of: BTreeMap<(&'a str, &'a str), u32>,
    taken: BTreeSet<u32>,
    /// The largest number that a new node has got, and how many numbers new bridges have passed.
    first: u32,
    last: u32,
}

impl<'a> Hosts<'a> {
    /// Gives an end the number `before` if it is free; with `is_new` else a free one.
    fn place(&mut self, end: (&'a str, &'a str), before: Option<u32>, is_new: bool) {
        if self.of.contains_key(&end) {
            return;
        }
        let before = before.filter(|before| (1..=HOSTS_MAX).contains(before));
        let host = match before.filter(|before| !self.taken.contains(before)) {
            Some(host) => host,
            None if is_new => self.free(end.1.is_empty()),
            None => return,
        };
        self.taken.insert(host);
        self.of.insert(end, host);
    }

    fn free(&mut self, is_bridge: bool) -> u32 {
        loop {
            let host = if is_bridge {
                self.last += 1;
                HOSTS_MAX.saturating_sub(self.last - 1)
            } else {
                self.first += 1;
                self.first
            };
            // The check of documents bounds the ends of a segment.
            if !self.taken.contains(&host) || !(1..=HOSTS_MAX).contains(&host) {
                return host;
            }
        }
    }
}

/// The first address of segments. All segments together have the range `10.64.0.0/10`.
const FIRST: [u8; 4] = [10, 64, 0, 0];
/// Bits of a host number.
const HOST_BITS: u32 = 11;
/// The largest host number of a segment.
const HOSTS_MAX: u32 = (1 << HOST_BITS) - 2;
/// The segments in the range; a document has fewer bridges.
const SEGMENTS_MAX: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Form;
    use crate::host_part::VnetId;

    fn document(links: &[&str]) -> Document {
        let mut text = "[vnet]\nname = \"x\"\n[defaults]\nkind = \"namespace\"\n".to_owned();
        for node in ["a", "b", "c", "d"] {
            text.push_str(&format!("[node.{node}]\n"));
        }
        for bridge in ["s1", "s2", "s3"] {
            text.push_str(&format!("[node.{bridge}]\nkind = \"bridge\"\n"));
        }
        for link in links {
            let (one, other) = link.split_once(' ').unwrap();
            text.push_str(&format!(
                "[[link]]\nends = [\"{one}\", \"{other}\"]\nrate = \"1Mbps\"\nas = \"gre\"\n"
            ));
        }
        Document::read(&text, Form::Toml).unwrap()
    }

    fn addresses(layout: &Layout, node: &str) -> Vec<String> {
        let all = layout.interfaces(VnetId::new(1), node);
        all.iter()
            .map(|segment| segment.address.to_string())
            .collect()
    }

    #[test]
    fn ends_of_joined_bridges_share_a_prefix_and_keep_it() {
        let first = Layout::of(
            &document(&["a s1", "b s1", "s1 s2", "c s2", "d s3"]),
            &Layout::default(),
        );
        assert_eq!(addresses(&first, "a"), ["10.64.0.1/21"]);
        assert_eq!(addresses(&first, "c"), ["10.64.0.3/21"]);
        let one = "10.64.7.254/21";
        assert_eq!(addresses(&first, "s1"), [one, one, one]);
        assert_eq!(addresses(&first, "d"), ["10.64.8.1/21"]);
        let interface = &first.interfaces(VnetId::new(1), "a")[0];
        assert_eq!(interface.peer.to_string(), "10.64.7.254");
        // A node leaves, another comes.
        let second = Layout::of(&document(&["b s1", "d s1", "s1 s2", "c s2"]), &first);
        assert_eq!(addresses(&second, "b"), ["10.64.0.2/21"]);
        assert_eq!(addresses(&second, "c"), ["10.64.0.3/21"]);
        assert_eq!(addresses(&second, "d"), ["10.64.0.1/21"]);
        assert!(!second.has_loop("s1"));
    }

    #[test]
    fn routes_lead_over_nodes_of_a_segment_not_its_bridges() {
        let layout = Layout::of(
            &document(&["a s1", "s1 s2", "b s2", "b c", "c d"]),
            &Layout::default(),
        );
        let routes = layout.routes();
        let text = |node: &str| -> Vec<String> {
            let all = routes[node].iter();
            all.map(|route| format!("{} {}", route.to, route.via))
                .collect()
        };
        assert_eq!(
            text("a"),
            ["10.0.0.12/30 10.64.0.2", "10.0.0.16/30 10.64.0.2"]
        );
        assert_eq!(
            text("d"),
            ["10.0.0.12/30 10.0.0.17", "10.64.0.0/21 10.0.0.17"]
        );
        assert_eq!(
            text("s1"),
            ["10.0.0.12/30 10.64.0.2", "10.0.0.16/30 10.64.0.2"]
        );
    }

    #[test]
    fn bridges_in_a_ring_have_a_loop() {
        let ring = Layout::of(
            &document(&["s1 s2", "s2 s3", "s3 s1", "a s1"]),
            &Layout::default(),
        );
        assert!(ring.has_loop("s2") && !ring.has_loop("a"));
        let two = Layout::of(&document(&["s1 s2", "s1 s2"]), &Layout::default());
        assert!(two.has_loop("s1"));
    }
}
