//! Random connected graphs, and the shortest paths that routing should find.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use carina_random::Random;

/// How a random connected graph is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every node has an edge to an earlier one.
    Tree,
    /// One cycle.
    Ring,
    /// A tree with as many additional edges as it has nodes.
    Mesh,
    /// A fully connected core of a few nodes; every other node has two edges to it.
    MultiHomed,
    /// Each node has an edge to the next one.
    Line,
    /// All nodes have an edge to the first one.
    Star,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Shape; 6] = [
        Shape::Tree,
        Shape::Ring,
        Shape::Mesh,
        Shape::MultiHomed,
        Shape::Line,
        Shape::Star,
    ];

    /// Edges of a connected graph with `nodes` nodes. Each edge occurs once, with the smaller node
    /// first.
    #[must_use]
    pub fn edges(self, nodes: usize, random: &mut Random) -> Vec<[usize; 2]> {
        let mut edges: Vec<[usize; 2]> = match self {
            Shape::Line => (1..nodes).map(|node| [node - 1, node]).collect(),
            Shape::Star => (1..nodes).map(|node| [0, node]).collect(),
            Shape::Tree | Shape::Mesh => {
                let hang = |node| [random.index(node), node];
                (1..nodes).map(hang).collect()
            }
            Shape::Ring => {
                let close = (nodes > 2).then_some([0, nodes - 1]);
                (1..nodes)
                    .map(|node| [node - 1, node])
                    .chain(close)
                    .collect()
            }
            Shape::MultiHomed => multi_homed(nodes, random),
        };
        if self == Shape::Mesh {
            for _ in 0..nodes {
                let (a, b) = (random.index(nodes), random.index(nodes));
                if a != b {
                    edges.push([a.min(b), a.max(b)]);
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }
}

fn multi_homed(nodes: usize, random: &mut Random) -> Vec<[usize; 2]> {
    let core = (nodes / 6).clamp(2, 6).min(nodes);
    let mut edges = Vec::new();
    for a in 0..core {
        edges.extend((a + 1..core).map(|b| [a, b]));
    }
    for node in core..nodes {
        let first = random.index(core);
        let second = (first + 1 + random.index(core - 1)) % core;
        edges.extend([[first, node], [second, node]]);
    }
    edges
}

/// For each node, its neighbours with the costs of the edges.
pub type Edges = Vec<Vec<(usize, u64)>>;

/// Distance of every node from `from` (Dijkstra); `None` if there is no path.
#[must_use]
pub fn distances(edges: &Edges, from: usize) -> Vec<Option<u64>> {
    let mut found = vec![None; edges.len()];
    let mut heap = BinaryHeap::from([Reverse((0, from))]);
    while let Some(Reverse((distance, node))) = heap.pop() {
        if found[node].is_some() {
            continue;
        }
        found[node] = Some(distance);
        for (next, cost) in &edges[node] {
            if found[*next].is_none() {
                heap.push(Reverse((distance + cost, *next)));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn undirected(nodes: usize, edges: &[[usize; 2]]) -> Edges {
        let mut out = vec![Vec::new(); nodes];
        for [a, b] in edges {
            out[*a].push((*b, 1));
            out[*b].push((*a, 1));
        }
        out
    }

    #[test]
    fn every_shape_of_every_size_is_connected_and_simple() {
        for shape in Shape::ALL {
            for nodes in 2..40 {
                let edges = shape.edges(nodes, &mut Random::new(nodes as u64));
                assert!(edges.iter().all(|[a, b]| a < b && *b < nodes), "{shape:?}");
                let found = distances(&undirected(nodes, &edges), 0);
                assert!(found.iter().all(Option::is_some), "{shape:?} of {nodes}");
            }
        }
    }

    #[test]
    fn distances_are_those_of_the_cheapest_path() {
        let edges = vec![
            vec![(1, 5), (2, 1)],
            vec![(3, 1)],
            vec![(1, 1)],
            vec![],
            vec![],
        ];
        let found = distances(&edges, 0);
        assert_eq!(found, [Some(0), Some(2), Some(1), Some(3), None]);
    }
}
