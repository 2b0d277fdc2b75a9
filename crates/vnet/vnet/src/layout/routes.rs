//! Routes of a network's nodes: breadth-first search from each node, and aggregation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr};

use super::aggregation::{Prefix, aggregate};
use super::{LaidLink, Layout, access, nics};
use crate::document::{InterfaceAddress, InterfaceAddress6};
use crate::host_part::{Route6Part, RoutePart};

impl Layout {
    /// For each node, routes to the links at which it has no interface, each along a path with the
    /// fewest links. Bridges do not count on a path: the next hop is the node behind them.
    ///
    /// In a large network, routes to neighbouring prefixes over the same next hop are
    /// aggregated. Empty if the nodes would still need more than 2,000,000 routes.
    #[must_use]
    pub fn routes(&self) -> BTreeMap<String, Vec<RoutePart>> {
        let links: Vec<(u32, &LaidLink)> = self.links().collect();
        let address = |(link, side): Hop| {
            let (number, laid) = links[link];
            laid.address(number, side)
        };
        let mut outer: BTreeMap<&str, Vec<InterfaceAddress>> = BTreeMap::new();
        for (number, laid) in self.access() {
            let prefixes = outer.entry(&laid.end.node).or_default();
            prefixes.push(access::prefix_of(number).prefix());
        }
        for (number, laid) in self.nics() {
            let prefixes = outer.entry(&laid.end.node).or_default();
            prefixes.push(nics::prefix_of(number).prefix());
        }
        let graph = Adjacency::of(&links);
        let routes = |node: usize, are_aggregated: bool| {
            let paths = graph.paths_from(node);
            let of_links = paths.links.iter();
            let of_links = of_links.map(|(link, hop)| (address((*link, 0)).prefix(), *hop));
            let of_nodes = paths.nodes.iter().flat_map(|(node, hop)| {
                let prefixes = outer.get(graph.names[*node]).into_iter().flatten();
                prefixes.map(|to| (*to, *hop))
            });
            let all = of_links.chain(of_nodes);
            let route = |(to, hop)| RoutePart {
                to,
                via: address(hop).address(),
            };
            if !are_aggregated {
                return all.map(route).collect();
            }
            let own = graph.own_prefixes(node).into_iter();
            let own = own.map(|link| address((link, 0)).prefix());
            let few = aggregated(all.map(|(to, hop)| (bits_of(to), hop)), own.map(bits_of));
            let few = few.into_iter().map(|((start, bits), hop)| {
                let start = Ipv4Addr::from_bits((start >> 96) as u32);
                let to = InterfaceAddress::new(start, bits);
                (to.expect("a prefix within IPv4 prefixes is one"), hop)
            });
            few.map(route).collect()
        };
        graph.routes_of_all(routes)
    }

    /// Like [`Layout::routes`], for IPv6: over the links that have IPv6 addresses.
    #[must_use]
    pub fn routes6(&self) -> BTreeMap<String, Vec<Route6Part>> {
        let links = self.links().filter(|(_, link)| link.addresses6.is_some());
        let links: Vec<(u32, &LaidLink)> = links.collect();
        let address = |(link, side): Hop| {
            let pair = links[link].1.addresses6;
            pair.expect("only links with addresses are looked at")[side]
        };
        let graph = Adjacency::of(&links);
        let routes = |node: usize, are_aggregated: bool| {
            let paths = graph.paths_from(node).links.into_iter();
            let all = paths.map(|(link, hop)| (address((link, 0)).prefix(), hop));
            let route = |(to, hop)| Route6Part {
                to,
                via: address(hop).address(),
            };
            if !are_aggregated {
                return all.map(route).collect();
            }
            let bits_of = |to: InterfaceAddress6| (to.address().to_bits(), to.bits());
            let own = graph.own_prefixes(node).into_iter();
            let own = own.map(|link| address((link, 0)).prefix());
            let few = aggregated(all.map(|(to, hop)| (bits_of(to), hop)), own.map(bits_of));
            let few = few.into_iter().map(|((start, bits), hop)| {
                let to = InterfaceAddress6::new(Ipv6Addr::from_bits(start), bits);
                (to.expect("a prefix of at most 128 bits is one"), hop)
            });
            few.map(route).collect()
        };
        graph.routes_of_all(routes)
    }
}

fn bits_of(prefix: InterfaceAddress) -> Prefix {
    (u128::from(prefix.address().to_bits()) << 96, prefix.bits())
}

/// A first hop: the place of the link in the list of links, and the side of its end.
type Hop = (usize, usize);

/// Aggregates routes; prefixes in `own` need none.
fn aggregated(
    routes: impl Iterator<Item = (Prefix, Hop)>,
    own: impl Iterator<Item = Prefix>,
) -> Vec<(Prefix, Hop)> {
    let mut hops: BTreeMap<Hop, u32> = BTreeMap::new();
    let mut prefixes: Vec<(Prefix, Option<u32>)> = own.map(|prefix| (prefix, None)).collect();
    for (prefix, hop) in routes {
        let next = u32::try_from(hops.len()).expect("a document has fewer links");
        prefixes.push((prefix, Some(*hops.entry(hop).or_insert(next))));
    }
    let mut by_number = vec![(0, 0); hops.len()];
    for (hop, number) in hops {
        by_number[number as usize] = hop;
    }
    let few = aggregate(prefixes).into_iter();
    few.map(|(prefix, number)| (prefix, by_number[number as usize]))
        .collect()
}

/// Which nodes are neighbours, with nodes and links by number.
struct Adjacency<'a> {
    /// The nodes that have links, sorted by name.
    names: Vec<&'a str>,
    /// For each node, its ends of links.
    ends: Vec<Vec<NodeEnd>>,
    links: usize,
    /// For each link, the first link with the same prefix: the first link of its segment, or the
    /// link itself.
    prefixes: Vec<usize>,
}

/// An end of a link at a node.
#[derive(Clone, Copy)]
struct NodeEnd {
    /// Index of the link in the network's list of links.
    link: usize,
    side: usize,
    /// The node at the other end.
    peer: usize,
    /// Whether that node is a bridge.
    is_to_bridge: bool,
}

/// The links and nodes that a node reaches over other nodes.
struct Paths {
    /// The links at which the node has no interface, each with the first hop towards the link.
    links: Vec<(usize, Hop)>,
    /// The other nodes, each with the first hop towards the node.
    nodes: Vec<(usize, Hop)>,
}

impl<'a> Adjacency<'a> {
    fn of(links: &[(u32, &'a LaidLink)]) -> Adjacency<'a> {
        let both = links.iter().flat_map(|(_, link)| &link.ends);
        let mut numbers: BTreeMap<&str, usize> = both.map(|end| (end.node.as_str(), 0)).collect();
        for (at, number) in numbers.values_mut().enumerate() {
            *number = at;
        }
        let mut ends = vec![Vec::new(); numbers.len()];
        for (at, (_, link)) in links.iter().enumerate() {
            let nodes = [0, 1].map(|side| numbers[link.ends[side].node.as_str()]);
            for side in [0, 1] {
                ends[nodes[side]].push(NodeEnd {
                    link: at,
                    side,
                    peer: nodes[1 - side],
                    is_to_bridge: link.is_bridged(1 - side),
                });
            }
        }
        let mut first: BTreeMap<u32, usize> = BTreeMap::new();
        let prefixes = links.iter().enumerate().map(|(at, (_, link))| {
            let segment = link.segment();
            segment.map_or(at, |segment| *first.entry(segment).or_insert(at))
        });
        Adjacency {
            prefixes: prefixes.collect(),
            names: numbers.into_keys().collect(),
            ends,
            links: links.len(),
        }
    }

    /// Links of a node, one for each of their prefixes.
    fn own_prefixes(&self, node: usize) -> BTreeSet<usize> {
        let ends = self.ends[node].iter();
        ends.map(|end| self.prefixes[end.link]).collect()
    }

    /// Finds the paths from one node, by breadth-first search: the first hop to every other node,
    /// and through it the links of that node.
    fn paths_from(&self, node: usize) -> Paths {
        let mut first_hops: Vec<Option<Hop>> = vec![None; self.names.len()];
        let mut is_reached = vec![false; self.names.len()];
        let mut is_known = vec![false; self.links];
        is_reached[node] = true;
        for end in &self.ends[node] {
            is_known[self.prefixes[end.link]] = true;
        }
        let mut left = VecDeque::from([node]);
        let (mut links, mut nodes) = (Vec::new(), Vec::new());
        while let Some(here) = left.pop_front() {
            for end in &self.ends[here] {
                let own = (end.link, 1 - end.side);
                let first = match first_hops[here] {
                    None if end.is_to_bridge => None,
                    before => Some(before.unwrap_or(own)),
                };
                if !std::mem::replace(&mut is_reached[end.peer], true) {
                    first_hops[end.peer] = first;
                    if end.is_to_bridge {
                        // What is behind a bridge is as near as the bridge.
                        left.push_front(end.peer);
                    } else {
                        left.push_back(end.peer);
                    }
                }
                let is_known = &mut is_known[self.prefixes[end.link]];
                if let Some(first) = first.filter(|_| !std::mem::replace(is_known, true)) {
                    links.push((end.link, first));
                }
            }
            nodes.extend(first_hops[here].map(|hop| (here, hop)));
        }
        Paths { links, nodes }
    }

    /// The routes of all nodes, by name. `routes` returns those of a node, aggregated or not.
    fn routes_of_all<R>(&self, routes: impl Fn(usize, bool) -> Vec<R>) -> BTreeMap<String, Vec<R>> {
        let are_aggregated = self.names.len().saturating_mul(self.links) > AGGREGATED_ABOVE;
        let mut all = BTreeMap::new();
        let mut count = 0;
        for (node, name) in self.names.iter().enumerate() {
            let routes = routes(node, are_aggregated);
            count += routes.len();
            if count > ROUTES_MAX {
                return BTreeMap::new();
            }
            all.insert((*name).to_owned(), routes);
        }
        all
    }
}

/// Routes are aggregated if nodes times links are more than this. In a smaller network, each node
/// has one route for each link, which is easier to read.
const AGGREGATED_ABOVE: usize = 10_000;
/// If the nodes of a network need more routes than this, they get none.
const ROUTES_MAX: usize = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Document, Form};

    /// A network of `nodes` with these links.
    fn layout(nodes: usize, links: &[(usize, usize)]) -> Layout {
        let mut text = "[vnet]\nname = \"x\"\n[defaults]\nkind = \"namespace\"\n".to_owned();
        for node in 0..nodes {
            text.push_str(&format!("[node.n{node}]\n"));
        }
        for (one, other) in links {
            text.push_str(&format!(
                "[[link]]\nends = [\"n{one}\", \"n{other}\"]\nrate = \"1Gbps\"\n"
            ));
        }
        let document = Document::read(&text, Form::Toml).unwrap();
        Layout::of(&document, &Layout::default())
    }

    /// For each node, where its table leads for each link: the number of the next node; the node's
    /// own number at its own links.
    fn tables(nodes: usize, layout: &Layout) -> Vec<Vec<Option<usize>>> {
        let number = |name: &str| name[1..].parse::<usize>().unwrap();
        let start = Ipv4Addr::new(10, 0, 0, 0).to_bits();
        let links: Vec<_> = layout.links().collect();
        let mut owners = BTreeMap::new();
        for (link, laid) in &links {
            for side in [0, 1] {
                let address = laid.address(*link, side).address();
                owners.insert(address, number(&laid.ends[side].node));
            }
        }
        let mut tables = vec![vec![None; links.len()]; nodes];
        for (name, mut routes) in layout.routes() {
            // A longer prefix comes later, and wins.
            routes.sort_by_key(|route| route.to.bits());
            for route in routes {
                let first = (route.to.address().to_bits() - start) / 4;
                let count = 1 << (30 - route.to.bits());
                for link in first..first + count {
                    tables[number(&name)][link as usize] = Some(owners[&route.via]);
                }
            }
        }
        for (link, laid) in &links {
            for end in &laid.ends {
                let node = number(&end.node);
                tables[node][*link as usize] = Some(node);
            }
        }
        tables
    }

    /// The longest path to a link by the tables of the nodes.
    fn longest_path(tables: &[Vec<Option<usize>>], link: usize) -> usize {
        let mut hops = vec![None; tables.len()];
        for node in 0..tables.len() {
            let (mut here, mut path) = (node, Vec::new());
            let known = loop {
                if let Some(known) = hops[here] {
                    break known;
                }
                let next = tables[here][link].unwrap_or_else(|| panic!("n{here}: {link}"));
                if next == here {
                    hops[here] = Some(0);
                    break 0;
                }
                assert!(
                    path.len() < tables.len(),
                    "the routes to {link} form a loop"
                );
                path.push(here);
                here = next;
            };
            for (more, node) in path.into_iter().rev().enumerate() {
                hops[node] = Some(known + more + 1);
            }
        }
        hops.into_iter().flatten().max().unwrap()
    }

    #[test]
    fn thousand_nodes_reach_each_other() {
        let nodes = 1000;
        let ring: Vec<_> = (0..nodes).map(|node| (node, (node + 1) % nodes)).collect();
        let tree: Vec<_> = (1..nodes).map(|node| ((node - 1) / 4, node)).collect();
        // Each node has links to four others, without order.
        let chords = (0..nodes).map(|node| (node, (node * 367 + 11) % nodes));
        let chords = chords.filter(|(one, other)| one != other);
        let mesh: Vec<_> = ring.iter().copied().chain(chords).collect();
        // The longest path, and the most routes of a node on average.
        for (links, path_max, routes_max) in [(ring, 500, 20), (tree, 10, 60), (mesh, 12, 1200)] {
            let layout = layout(nodes, &links);
            let tables = tables(nodes, &layout);
            let paths = (0..links.len()).map(|link| longest_path(&tables, link));
            let longest = paths.max().unwrap();
            assert!(longest <= path_max, "{longest}");
            let routes: usize = layout.routes().values().map(Vec::len).sum();
            let each = routes / nodes;
            assert!(each <= routes_max, "{each} routes to {} links", links.len());
        }
    }

    #[test]
    fn small_network_has_a_route_for_each_link() {
        let chain: Vec<_> = (1..20).map(|node| (node - 1, node)).collect();
        let routes = layout(20, &chain).routes();
        assert!(routes["n0"].iter().all(|route| route.to.bits() == 30));
        assert_eq!(routes["n0"].len(), 18);
    }
}
