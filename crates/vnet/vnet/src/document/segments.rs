//! Ethernet segments: bridges that are joined by links, and the other ends of their links.

use std::collections::{BTreeMap, BTreeSet};

use super::limits::SEGMENT_MAX;
use super::{Carrier, Document, Fault, Kind, Link};

/// Name of the interface of a bridge that has its ports. No link can end at it.
pub const BRIDGE: &str = "br0";

/// The links of one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Indices of the links in the document's list of links, sorted.
    pub links: Vec<usize>,
    /// Whether the bridges of the segment form a loop.
    pub has_loop: bool,
}

impl Document {
    /// Whether the document has a bridge of this name.
    #[must_use]
    pub fn is_bridge(&self, name: &str) -> bool {
        let node = self.node.get(name);
        node.is_some_and(|node| node.kind.or(self.defaults.kind) == Some(Kind::Bridge))
    }

    /// The segments of the network, by their first links. Links without a bridge at an end are in
    /// no segment.
    #[must_use]
    pub fn segments(&self) -> Vec<Segment> {
        let mut of_bridge: BTreeMap<&str, Vec<(usize, &Link)>> = BTreeMap::new();
        for (number, link) in self.link.iter().enumerate() {
            for end in link.ends.iter().filter(|end| self.is_bridge(&end.node)) {
                let own = of_bridge.entry(&end.node).or_default();
                own.push((number, link));
            }
        }
        let mut known: BTreeSet<&str> = BTreeSet::new();
        let mut all = Vec::new();
        for bridge in of_bridge.keys() {
            if !known.insert(bridge) {
                continue;
            }
            let (mut left, mut links) = (vec![*bridge], BTreeSet::new());
            let (mut bridges, mut joints) = (0, BTreeSet::new());
            while let Some(bridge) = left.pop() {
                bridges += 1;
                for (number, link) in &of_bridge[bridge] {
                    links.insert(*number);
                    let ends = link.ends.iter();
                    let others = ends.filter(|end| end.node != bridge);
                    for other in others.filter(|end| of_bridge.contains_key(end.node.as_str())) {
                        joints.insert(*number);
                        if known.insert(&other.node) {
                            left.push(&other.node);
                        }
                    }
                }
            }
            all.push(Segment {
                links: links.into_iter().collect(),
                // Bridges that form a tree have one link fewer than bridges.
                has_loop: joints.len() >= bridges,
            });
        }
        all.sort_by_key(|segment| segment.links.first().copied());
        all
    }

    /// Faults of links with bridges: the number of the link, from 0, and the fault.
    pub(super) fn check_segments(&self) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        for segment in self.segments() {
            let links = || {
                segment
                    .links
                    .iter()
                    .map(|number| (*number, &self.link[*number]))
            };
            for (number, link) in links() {
                faults.extend(
                    self.check_ports(link)
                        .into_iter()
                        .map(|fault| (number, fault)),
                );
            }
            let ends = links().flat_map(|(_, link)| &link.ends);
            let ends = ends.map(|end| (self.is_bridge(&end.node), end));
            let bridges = ends.clone().filter(|(is_bridge, _)| *is_bridge);
            let bridges: BTreeSet<&str> = bridges.map(|(_, end)| end.node.as_str()).collect();
            let others = ends.filter(|(is_bridge, _)| !is_bridge).count();
            let count = others + bridges.len();
            if count > SEGMENT_MAX {
                let (what, max) = ("bridges and ends of links in one segment", SEGMENT_MAX);
                faults.push((segment.links[0], Fault::TooMany { what, count, max }));
            }
            let v4 = |link: &Link| {
                link.addresses.map(|address| {
                    address.map(|pair| (pair.to_string(), pair.prefix().to_string()))
                })
            };
            let v6 = |link: &Link| {
                link.addresses6.map(|address6| {
                    address6.map(|pair| (pair.to_string(), pair.prefix().to_string()))
                })
            };
            faults.extend(
                self.check_one_prefix(links().map(|(number, link)| (number, link, v4(link)))),
            );
            faults.extend(
                self.check_one_prefix(links().map(|(number, link)| (number, link, v6(link)))),
            );
        }
        faults.sort_by_key(|(number, _)| *number);
        faults
    }

    fn check_ports(&self, link: &Link) -> Vec<Fault> {
        let mut faults = Vec::new();
        if matches!(link.carrier, Carrier::Ipip | Carrier::Dif) {
            faults.push(Fault::BridgeCarrier(link.carrier.word()));
        }
        let is_taken = |interface: &Option<String>| interface.as_deref() == Some(BRIDGE);
        for end in link.ends.iter().filter(|end| is_taken(&end.interface)) {
            if self.is_bridge(&end.node) {
                faults.push(Fault::InterfaceOfKernel(BRIDGE.to_owned()));
            }
        }
        faults
    }

    /// Checks the addresses of a segment: all links have some or none, all are of one prefix, a
    /// bridge has one address, and no other end has the address of another.
    fn check_one_prefix<'a>(
        &self,
        links: impl Iterator<Item = (usize, &'a Link, Option<[(String, String); 2]>)>,
    ) -> Vec<(usize, Fault)> {
        let mut faults = Vec::new();
        let mut first: Option<Option<String>> = None;
        let mut owners: BTreeMap<String, (&str, usize)> = BTreeMap::new();
        let mut of_bridge: BTreeMap<&str, String> = BTreeMap::new();
        for (number, link, addresses) in links {
            let prefix = addresses.as_ref().map(|pair| pair[0].1.clone());
            if *first.get_or_insert(prefix.clone()) != prefix {
                faults.push((number, Fault::SegmentPrefix));
                continue;
            }
            for (side, (address, _)) in addresses.into_iter().flatten().enumerate() {
                let node = link.ends[side].node.as_str();
                let key = if self.is_bridge(node) {
                    let own = of_bridge.entry(node).or_insert_with(|| address.clone());
                    if *own != address {
                        let node = node.to_owned();
                        faults.push((number, Fault::BridgeAddresses { node, address }));
                        continue;
                    }
                    (node, usize::MAX)
                } else {
                    (node, number)
                };
                let owner = owners.entry(address.clone()).or_insert(key);
                if *owner != key {
                    let node = owner.0.to_owned();
                    faults.push((number, Fault::AddressTaken { address, node }));
                }
            }
        }
        faults
    }
}
