//! The links that can be used, as a graph with small node numbers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::message::Address;

/// A directed graph in which every edge has its reverse, perhaps at another cost. Nodes have
/// dense numbers, reused when a node has lost its last edge.
#[derive(Debug, Default)]
pub struct Graph {
    numbers: BTreeMap<Address, Node>,
    nodes: Vec<Place>,
    free: Vec<Node>,
}

/// Number of a node.
pub type Node = u32;

#[derive(Debug)]
struct Place {
    address: Address,
    edges: Vec<Edge>,
    /// Kept although it has no edge, as the root of a tree is.
    is_pinned: bool,
}

/// An edge as one of its ends sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The other end.
    pub to: Node,
    /// Cost of sending to it.
    pub out: u32,
    /// Cost of sending from it to here.
    pub back: u32,
}

/// A link that appeared, vanished or changed its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// One end.
    pub a: Node,
    /// The other.
    pub b: Node,
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// One more than the highest number of a node.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Number of the node with this address.
    pub fn node(&self, address: Address) -> Option<Node> {
        self.numbers.get(&address).copied()
    }

    /// Address of a node; 0 when the number is free.
    pub fn address(&self, node: Node) -> Address {
        self.nodes[node as usize].address
    }

    /// Edges of a node.
    pub fn edges(&self, node: Node) -> &[Edge] {
        &self.nodes[node as usize].edges
    }

    /// Keeps a number for this address even without edges.
    pub fn pin(&mut self, address: Address) -> Node {
        let node = self.number(address);
        self.nodes[node as usize].is_pinned = true;
        node
    }

    /// Makes the link between two members look so: (cost from `a`, cost from `b`), or no link.
    /// Returns the change, if it is one.
    ///
    /// Nodes that lose their last edge keep their number until [`Graph::collect`].
    pub fn set(&mut self, a: Address, b: Address, costs: Option<(u32, u32)>) -> Option<Change> {
        let old = self.costs(a, b);
        if old == costs {
            return None;
        }
        let (a, b) = (self.number(a), self.number(b));
        for (from, to, costs) in [
            (a, b, costs),
            (b, a, costs.map(|(there, back)| (back, there))),
        ] {
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

    /// Frees the number of a node that has no edges and is not pinned.
    pub fn collect(&mut self, node: Node) {
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
