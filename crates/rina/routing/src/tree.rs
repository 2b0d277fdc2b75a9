//! Distances from a root to all nodes, updated as links change.
//!
//! The algorithm is DynamicSWSF-FP of Ramalingam and Reps ("An incremental algorithm for a
//! generalization of the shortest-path problem", 1996). Every node has a distance `dist`, and a
//! distance `rhs` computed from its neighbours' distances. A change of links makes some nodes
//! inconsistent (`dist != rhs`). They are corrected in order of distance. This only touches nodes
//! whose distance changes, and their neighbours. For a new tree it is Dijkstra's algorithm.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::graph::{Change, Graph, Node};
use crate::message::Address;

/// Distances from a root to all nodes.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    root: Node,
    dist: Vec<u64>,
    rhs: Vec<u64>,
    /// Inconsistent nodes, ordered by the lower of their two distances.
    queue: BTreeSet<(u64, Node)>,
    /// Distances before the current update, of nodes that the update touched.
    before: BTreeMap<Node, u64>,
}

/// The distance of an unreachable node.
pub(crate) const FAR: u64 = u64::MAX;

impl Tree {
    /// Computes the distances from `root`.
    pub(crate) fn new(graph: &Graph, root: Node) -> Tree {
        let mut tree = Tree {
            root,
            dist: Vec::new(),
            rhs: Vec::new(),
            queue: BTreeSet::new(),
            before: BTreeMap::new(),
        };
        tree.grow(graph);
        tree.set_rhs(root, 0);
        tree.process_queue(graph);
        tree
    }

    /// The root node.
    pub(crate) fn root(&self) -> Node {
        self.root
    }

    /// Distance from the root to a node; [`FAR`] if the node is unreachable.
    pub(crate) fn dist(&self, node: Node) -> u64 {
        self.dist.get(node as usize).copied().unwrap_or(FAR)
    }

    /// Updates the distances after links have changed. Returns the nodes whose distance has
    /// changed, in ascending order.
    pub(crate) fn update(&mut self, graph: &Graph, changes: &[Change]) -> Vec<Node> {
        self.grow(graph);
        for change in changes {
            for node in [change.a, change.b] {
                self.recompute(graph, node);
            }
        }
        self.process_queue(graph)
    }

    fn grow(&mut self, graph: &Graph) {
        self.dist.resize(graph.len(), FAR);
        self.rhs.resize(graph.len(), FAR);
    }

    fn process_queue(&mut self, graph: &Graph) -> Vec<Node> {
        while let Some((_, node)) = self.queue.pop_first() {
            let (old, new) = (self.dist[node as usize], self.rhs[node as usize]);
            self.before.entry(node).or_insert(old);
            if new < old {
                self.dist[node as usize] = new;
                for edge in graph.edges(node) {
                    let candidate = new + u64::from(edge.out);
                    if edge.to != self.root && candidate < self.rhs[edge.to as usize] {
                        self.set_rhs(edge.to, candidate);
                    }
                }
            } else {
                // The distance was too low. It is removed, so that neighbours which used it are
                // recomputed. The node is processed again when its correct distance is due.
                self.dist[node as usize] = FAR;
                if new != FAR {
                    self.queue.insert((new, node));
                }
                for edge in graph.edges(node) {
                    if self.rhs[edge.to as usize] == old + u64::from(edge.out) {
                        self.recompute(graph, edge.to);
                    }
                }
            }
        }
        let before = core::mem::take(&mut self.before);
        let changed = before
            .into_iter()
            .filter(|(node, old)| self.dist[*node as usize] != *old);
        changed.map(|(node, _)| node).collect()
    }

    fn recompute(&mut self, graph: &Graph, node: Node) {
        if node == self.root {
            return;
        }
        let ways = graph
            .edges(node)
            .iter()
            .map(|edge| self.dist[edge.to as usize].saturating_add(u64::from(edge.back)));
        let rhs = ways.min().unwrap_or(FAR);
        self.set_rhs(node, rhs);
    }

    fn set_rhs(&mut self, node: Node, rhs: u64) {
        let (dist, old) = (self.dist[node as usize], self.rhs[node as usize]);
        if dist != old {
            self.queue.remove(&(dist.min(old), node));
        }
        self.rhs[node as usize] = rhs;
        if dist != rhs {
            self.queue.insert((dist.min(rhs), node));
        }
    }
}

/// For every node, the neighbours of the root through which shortest paths lead to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct NextHops {
    /// Addresses in ascending order, at most `max` for each node.
    sets: Vec<Vec<Address>>,
    max: usize,
}

impl NextHops {
    /// Computes the next hops from a tree. If a node has more than `max`, those with the lowest
    /// addresses are kept.
    pub(crate) fn new(graph: &Graph, tree: &Tree, max: usize) -> NextHops {
        let mut hops = NextHops {
            sets: Vec::new(),
            max: max.max(1),
        };
        let all: Vec<Node> = (0..graph.len() as Node).collect();
        hops.update(graph, tree, &[], &all);
        hops
    }

    /// Next hops to a node, in ascending order; empty if the node is unreachable.
    pub(crate) fn to(&self, node: Node) -> &[Address] {
        self.sets.get(node as usize).map_or(&[], Vec::as_slice)
    }

    /// Updates the sets after `changes` have changed the distances of `moved`. Returns the nodes
    /// whose set has changed, in no particular order.
    pub(crate) fn update(
        &mut self,
        graph: &Graph,
        tree: &Tree,
        changes: &[Change],
        moved: &[Node],
    ) -> Vec<Node> {
        self.sets.resize(graph.len(), Vec::new());
        // All nodes that may have gained or lost a parent.
        let mut queue: BTreeSet<(u64, Node)> = BTreeSet::new();
        let ends = changes.iter().flat_map(|change| [change.a, change.b]);
        queue.extend(ends.map(|node| (tree.dist(node), node)));
        for node in moved {
            queue.insert((tree.dist(*node), *node));
            let around = graph.edges(*node).iter();
            queue.extend(around.map(|edge| (tree.dist(edge.to), edge.to)));
        }
        let mut changed = Vec::new();
        // Costs are at least 1, so a parent is processed before its children.
        while let Some((dist, node)) = queue.pop_first() {
            let set = self.union_of_parents(graph, tree, node);
            if set == self.sets[node as usize] {
                continue;
            }
            self.sets[node as usize] = set;
            changed.push(node);
            for edge in graph.edges(node) {
                if dist != FAR && tree.dist(edge.to) == dist + u64::from(edge.out) {
                    queue.insert((tree.dist(edge.to), edge.to));
                }
            }
        }
        changed
    }

    fn union_of_parents(&self, graph: &Graph, tree: &Tree, node: Node) -> Vec<Address> {
        let dist = tree.dist(node);
        let mut set = Vec::new();
        if dist == FAR || node == tree.root() {
            return set;
        }
        for edge in graph.edges(node) {
            if tree.dist(edge.to).saturating_add(u64::from(edge.back)) != dist {
                continue;
            }
            if edge.to == tree.root() {
                set.push(graph.address(node));
            } else {
                set.extend_from_slice(&self.sets[edge.to as usize]);
            }
        }
        set.sort_unstable();
        set.dedup();
        set.truncate(self.max);
        set
    }
}
