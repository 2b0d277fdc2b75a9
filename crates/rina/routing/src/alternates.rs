//! Loop-free alternates: neighbours that can replace a failed next hop before routing has reacted.
//!
//! Notation of RFC 5286: S is this member, D the destination, E a next hop, N another neighbour.
//!
//! - loop-free: dist(N,D) < dist(N,S) + dist(S,D). The shortest paths from N to D avoid S.
//! - downstream: dist(N,D) < dist(S,D). N is nearer to D than S. So two members that both use an
//!   alternate cannot pass a PDU back and forth.
//! - node-protecting: dist(N,D) < dist(N,E) + dist(E,D) for every E. The paths from N avoid the
//!   next hops, so they work even if a next hop itself has failed, not only the link to it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::graph::{Change, Graph, Node};
use crate::message::Address;
use crate::tree::{FAR, Tree};

/// Shortest-path trees of this member's neighbours, from which alternates are computed.
#[derive(Debug, Default)]
pub(crate) struct Alternates {
    trees: BTreeMap<Node, Tree>,
}

/// The destinations whose alternates an update may have changed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Touched {
    /// All destinations.
    All,
    /// The alternates of these destinations only.
    Nodes(BTreeSet<Node>),
}

impl Alternates {
    /// Updates the trees after `changes`. `own` is the tree of this member, already updated.
    pub(crate) fn update(&mut self, graph: &Graph, own: &Tree, changes: &[Change]) -> Touched {
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
                // The conditions for all destinations depend on the distances between neighbours.
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

    /// The alternates for `dst`, best first: node-protecting and downstream ones, then
    /// node-protecting, then downstream, then any. Among equals the cheaper one comes first.
    pub(crate) fn of(
        &self,
        graph: &Graph,
        own: &Tree,
        dst: Node,
        next: &[Address],
    ) -> Vec<Address> {
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

/// The nearest neighbours. Their number is limited, because each needs a tree.
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

/// Largest number of alternates for one destination.
pub(crate) const ALTERNATES_MAX: usize = 4;

/// Largest number of neighbours for which trees are kept.
pub(crate) const CANDIDATES_MAX: usize = 16;
