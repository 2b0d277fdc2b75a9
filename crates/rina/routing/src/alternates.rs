//! Loop-free alternates: neighbours that can take over before routing has heard of a failure.
//!
//! Notation of RFC 5286: S is this member, D the destination, E a next hop, N another neighbour.
//!
//! - loop-free: dist(N,D) < dist(N,S) + dist(S,D): N's shortest ways to D avoid S;
//! - downstream: dist(N,D) < dist(S,D): N is nearer, so that no two members that both deviate can
//!   pass a PDU to and fro;
//! - node-protecting: dist(N,D) < dist(N,E) + dist(E,D) for every E: N's ways avoid the next hops,
//!   should they and not only the links to them be gone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::graph::{Change, Graph, Node};
use crate::message::Address;
use crate::tree::{FAR, Tree};

/// Trees of this member's neighbours, from which alternates follow.
#[derive(Debug, Default)]
pub struct Alternates {
    trees: BTreeMap<Node, Tree>,
}

/// What an update of the neighbours' trees touches.
#[derive(Debug, PartialEq, Eq)]
pub enum Touched {
    /// Alternates of all destinations may be others.
    All,
    /// Those of these only.
    Nodes(BTreeSet<Node>),
}

impl Alternates {
    /// Puts the trees right after `changes`; `own` is the tree of this member, right already.
    pub fn update(&mut self, graph: &Graph, own: &Tree, changes: &[Change]) -> Touched {
        let root = own.root();
        let near: BTreeSet<Node> = graph
            .edges(root)
            .iter()
            .map(|edge| edge.to)
            .chain([root])
            .collect();
        let candidates = candidates(graph, root);
        let mut is_all = changes
            .iter()
            .any(|change| change.a == root || change.b == root);
        self.trees.retain(|node, _| candidates.contains(node));
        let mut touched = BTreeSet::new();
        for node in candidates {
            if let Some(tree) = self.trees.get_mut(&node) {
                let moved = tree.update(graph, changes);
                // Distances between neighbours enter the conditions for all destinations.
                is_all |= moved.iter().any(|node| near.contains(node));
                touched.extend(moved);
            } else {
                self.trees.insert(node, Tree::new(graph, node));
                is_all = true;
            }
        }
        if is_all {
            Touched::All
        } else {
            Touched::Nodes(touched)
        }
    }

    /// Alternates for `dst`, best first: those that protect against the loss of the next hops and
    /// are downstream, then those that protect, then downstream, then any; the cheaper first.
    pub fn of(&self, graph: &Graph, own: &Tree, dst: Node, next: &[Address]) -> Vec<Address> {
        let (root, whole) = (own.root(), own.dist(dst));
        if whole == FAR || dst == root {
            return Vec::new();
        }
        let primaries: Vec<(Node, u64)> = graph
            .edges(root)
            .iter()
            .filter(|edge| next.contains(&graph.address(edge.to)))
            .map(|edge| (edge.to, whole - u64::from(edge.out)))
            .collect();
        let mut found = Vec::new();
        for edge in graph.edges(root) {
            let Some(tree) = self.trees.get(&edge.to) else {
                continue;
            };
            let address = graph.address(edge.to);
            let rest = tree.dist(dst);
            let is_loop_free = rest != FAR && rest < tree.dist(root).saturating_add(whole);
            if !is_loop_free || next.contains(&address) {
                continue;
            }
            let is_protecting = primaries
                .iter()
                .all(|(primary, beyond)| rest < tree.dist(*primary).saturating_add(*beyond));
            let is_downstream = rest < whole;
            let cost = u64::from(edge.out) + rest;
            found.push((!is_protecting, !is_downstream, cost, address));
        }
        found.sort_unstable();
        found.truncate(ALTERNATES_MAX);
        found.into_iter().map(|(.., address)| address).collect()
    }
}

/// The nearest neighbours: each costs a tree, so their number is bounded.
fn candidates(graph: &Graph, root: Node) -> BTreeSet<Node> {
    let mut near: Vec<(u32, Address, Node)> = graph
        .edges(root)
        .iter()
        .map(|edge| (edge.out, graph.address(edge.to), edge.to))
        .collect();
    near.sort_unstable();
    near.truncate(CANDIDATES_MAX);
    near.into_iter().map(|(.., node)| node).collect()
}

/// Alternates kept for one destination.
pub const ALTERNATES_MAX: usize = 4;

/// Neighbours whose trees are kept.
pub const CANDIDATES_MAX: usize = 16;
