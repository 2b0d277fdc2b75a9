//! The usable links, as a graph whose nodes have small numbers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::message::Address;

/// A directed graph in which every edge has a reverse edge, perhaps with another cost. Node numbers
/// are dense, and reused when a node has lost its last edge.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    numbers: BTreeMap<Address, Node>,
    nodes: Vec<Place>,
    free: Vec<Node>,
}

/// Number of a node.
pub(crate) type Node = u32;

#[derive(Debug)]
struct Place {
    address: Address,
    edges: Vec<Edge>,
    /// Whether the node is kept without edges, as the root of a tree must be.
    is_pinned: bool,
}

/// An edge, from the point of view of one of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    /// The node at the other end.
    pub to: Node,
    /// Cost of sending to the node `to`.
    pub out: u32,
    /// Cost of sending from the node `to`.
    pub back: u32,
}

/// The ends of a link that appeared, disappeared or changed its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The node at one end of the link.
    pub a: Node,
    /// The node at the other end of the link.
    pub b: Node,
}

impl Graph {
    /// An empty graph.
    pub(crate) fn new() -> Graph {
        Graph::default()
    }

    /// One above the highest node number.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The number of the node with this address.
    pub(crate) fn node(&self, address: Address) -> Option<Node> {
        self.numbers.get(&address).copied()
    }

    /// The address of a node; 0 if the number is free.
    pub(crate) fn address(&self, node: Node) -> Address {
        self.nodes[node as usize].address
    }

    /// The edges of a node.
    pub(crate) fn edges(&self, node: Node) -> &[Edge] {
        &self.nodes[node as usize].edges
    }

    /// Gives an address a node number that it keeps even without edges.
    pub(crate) fn pin(&mut self, address: Address) -> Node {
        let node = self.number(address);
        self.nodes[node as usize].is_pinned = true;
        node
    }

    /// Sets the link between two members to these costs (from `a`, from `b`), or removes it.
    /// Returns the change, or `None` if nothing has changed.
    ///
    /// Nodes that lose their last edge keep their number until [`Graph::collect`].
    pub(crate) fn set(
        &mut self,
        a: Address,
        b: Address,
        costs: Option<(u32, u32)>,
    ) -> Option<Change> {
        let old = self.costs(a, b);
        if old == costs {
            return None;
        }
        let (a, b) = (self.number(a), self.number(b));
        for (from, to, costs) in [(a, b, costs), (b, a, costs.map(|(out, back)| (back, out)))] {
            let edges = &mut self.nodes[from as usize].edges;
            edges.retain(|edge| edge.to != to);
            edges.extend(costs.map(|(out, back)| Edge { to, out, back }));
        }
        Some(Change { a, b })
    }

    fn costs(&self, a: Address, b: Address) -> Option<(u32, u32)> {
        let (a, b) = (self.node(a)?, self.node(b)?);
        let edge = self.edges(a).iter().find(|edge| edge.to == b)?;
        Some((edge.out, edge.back))
    }

    /// Frees the number of a node if it has no edges and is not pinned.
    pub(crate) fn collect(&mut self, node: Node) {
        let place = &mut self.nodes[node as usize];
        if place.edges.is_empty() && !place.is_pinned && place.address != 0 {
            self.numbers.remove(&place.address);
            place.address = 0;
            self.free.push(node);
        }
    }

    fn number(&mut self, address: Address) -> Node {
        if let Some(node) = self.node(address) {
            return node;
        }
        let node = match self.free.pop() {
            Some(node) => {
                self.nodes[node as usize].address = address;
                node
            }
            None => {
                self.nodes.push(Place {
                    address,
                    edges: Vec::new(),
                    is_pinned: false,
                });
                (self.nodes.len() - 1) as Node
            }
        };
        self.numbers.insert(address, node);
        node
    }
}
