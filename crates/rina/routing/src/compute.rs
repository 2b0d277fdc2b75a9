//! Computes routes from the database. Each change only recomputes what it affects.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::alternates::{Alternates, Touched};
use crate::api::Route;
use crate::database::Database;
use crate::graph::{Change, Graph, Node};
use crate::message::Address;
use crate::tree::{FAR, NextHops, Tree};

/// Which next hops are computed for each destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Largest number of next hops for a destination; 1 for no load sharing.
    pub max: usize,
    /// Whether loop-free alternates are computed.
    pub has_alternates: bool,
}

/// Shortest-path computation of one member: the graph of links, the trees and the next hops after
/// the last update.
#[derive(Debug)]
pub struct Computation {
    paths: Paths,
    graph: Graph,
    from_root: Option<FromRoot>,
}

#[derive(Debug)]
struct FromRoot {
    tree: Tree,
    next: NextHops,
    alternates: Alternates,
}

impl Computation {
    /// Makes a computation for an empty database.
    pub fn new(paths: Paths) -> Computation {
        Computation {
            paths,
            graph: Graph::new(),
            from_root: None,
        }
    }

    /// Sets this member as the start of all routes. Call it once, before the first update.
    pub fn set_root(&mut self, own: Address) {
        if own == 0 {
            return;
        }
        let root = self.graph.pin(own);
        let tree = Tree::new(&self.graph, root);
        self.from_root = Some(FromRoot {
            next: NextHops::new(&self.graph, &tree, self.paths.max),
            alternates: Alternates::default(),
            tree,
        });
    }

    /// Updates the links between the given pairs of members from the database. A link is usable
    /// when both ends report it. Returns the destinations whose routes may have changed.
    pub fn update(
        &mut self,
        database: &Database,
        pairs: BTreeSet<(Address, Address)>,
    ) -> BTreeSet<Address> {
        let links = pairs.into_iter().map(|(a, b)| {
            let costs = database.cost(a, b).zip(database.cost(b, a));
            ((a, b), costs)
        });
        self.apply(links)
    }

    /// Sets links: the costs from the first and from the second end, or `None` for no link. This is
    /// for callers with their own database. Returns the destinations whose routes may have changed.
    pub fn apply(
        &mut self,
        links: impl IntoIterator<Item = ((Address, Address), Option<(u32, u32)>)>,
    ) -> BTreeSet<Address> {
        let mut changes = Vec::new();
        for ((a, b), costs) in links {
            changes.extend(self.graph.set(a, b, costs));
        }
        let touched = match &mut self.from_root {
            Some(from_root) if !changes.is_empty() => {
                from_root.update(&self.graph, &changes, self.paths.has_alternates)
            }
            _ => BTreeSet::new(),
        };
        let graph = &self.graph;
        let touched = touched.into_iter().map(|node| graph.address(node));
        let touched = touched.filter(|address| *address != 0).collect();
        for Change { a, b } in changes {
            self.graph.collect(a);
            self.graph.collect(b);
        }
        touched
    }

    /// Returns the route to a member after the last update; `None` if it is unreachable or this
    /// member itself.
    pub fn route(&self, dst: Address) -> Option<Route> {
        let from_root = self.from_root.as_ref()?;
        let node = self.graph.node(dst)?;
        let cost = from_root.tree.dist(node);
        if cost == FAR || node == from_root.tree.root() {
            return None;
        }
        let next = from_root.next.to(node).to_vec();
        let alternates = if self.paths.has_alternates {
            from_root
                .alternates
                .of(&self.graph, &from_root.tree, node, &next)
        } else {
            Vec::new()
        };
        Some(Route {
            dst,
            next,
            alternates,
            cost,
        })
    }

    /// Returns the number of node numbers, in use or free.
    #[cfg(test)]
    pub fn nodes(&self) -> usize {
        self.graph.len()
    }

    /// Returns the routes to all reachable members, by destination.
    pub fn routes(&self) -> BTreeMap<Address, Route> {
        let nodes = 0..self.graph.len() as Node;
        let routes = nodes.filter_map(|node| self.route(self.graph.address(node)));
        routes.map(|route| (route.dst, route)).collect()
    }
}

impl FromRoot {
    fn update(&mut self, graph: &Graph, changes: &[Change], lfa: bool) -> BTreeSet<Node> {
        let moved = self.tree.update(graph, changes);
        let switched = self.next.update(graph, &self.tree, changes, &moved);
        let mut touched: BTreeSet<Node> = moved.into_iter().chain(switched).collect();
        if lfa {
            match self.alternates.update(graph, &self.tree, changes) {
                Touched::All => touched.extend(0..graph.len() as Node),
                Touched::Nodes(nodes) => touched.extend(nodes),
            }
        }
        touched
    }
}
