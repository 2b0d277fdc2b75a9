//! Local search: moves and swaps nodes and routes all links again, as long as that lowers the cost.

use crate::attempt::Attempt;
use crate::embedding::Embedding;
use crate::id::{HostId, NodeId, VirtualLinkId};
use crate::joint::growth::score;
use crate::search::Tree;

/// Improves an embedding for at most `rounds` rounds, or until a round improves nothing.
pub(crate) fn improve(attempt: &mut Attempt, embedding: Embedding, rounds: usize) -> Embedding {
    attempt.load(&embedding);
    let cost = attempt.cost();
    let mut search = Improvement {
        attempt,
        best: embedding,
        cost,
        trees: Vec::new(),
        spare: Tree::default(),
    };
    for _ in 0..rounds {
        let moved = search.move_nodes();
        let swapped = search.swap_nodes();
        if !moved && !swapped {
            break;
        }
    }
    search.best
}

struct Improvement<'s, 'a> {
    attempt: &'s mut Attempt<'a>,
    best: Embedding,
    /// The cost of the links of `best`.
    cost: u128,
    trees: Vec<Tree>,
    spare: Tree,
}

impl Improvement<'_, '_> {
    /// Moves each node to a host from which its own links cost less, if that lowers the total cost.
    fn move_nodes(&mut self) -> bool {
        let mut is_better = false;
        for node in (0..self.best.hosts.len()).map(NodeId::of) {
            for host in self.better_hosts(node) {
                let mut hosts = self.best.hosts.clone();
                hosts[node.index()] = HostId(host);
                if self.try_hosts(&hosts) {
                    is_better = true;
                    break;
                }
            }
        }
        is_better
    }

    fn swap_nodes(&mut self) -> bool {
        let mut is_better = false;
        let count = self.best.hosts.len();
        for a in 0..count {
            for b in a + 1..count {
                let mut hosts = self.best.hosts.clone();
                hosts.swap(a, b);
                if hosts[a] != hosts[b] && self.try_hosts(&hosts) {
                    is_better = true;
                }
            }
        }
        is_better
    }

    /// The hosts from which a node's links would cost less than from its current host, cheapest
    /// first.
    fn better_hosts(&mut self, node: NodeId) -> Vec<u32> {
        self.attempt.load(&self.best);
        let links: Vec<(VirtualLinkId, NodeId)> = self.attempt.request.incident(node).to_vec();
        for (link, _) in &links {
            self.attempt.unroute(*link);
        }
        self.attempt.remove(node);
        if self.trees.len() < links.len() {
            self.trees.resize_with(links.len(), Tree::default);
        }
        for ((link, neighbour), tree) in links.iter().zip(&mut self.trees) {
            let from = self.best.hosts[neighbour.index()].0;
            let demand = self.attempt.demand(*link);
            tree.fill(self.attempt.free(), from, demand, None);
        }
        let score = |host: u32| score(self.attempt, &links, &self.trees, host);
        let own = score(self.best.hosts[node.index()].0);
        let may_place = |host: &u32| self.attempt.may_place(node, *host);
        let scores = (0..self.attempt.hosts())
            .filter(may_place)
            .filter_map(|host| Some((score(host)?, host)))
            .filter(|(score, _)| own.is_none_or(|own| *score < own));
        let mut scores: Vec<(u128, u32)> = scores.collect();
        scores.sort_unstable();
        scores.truncate(MOVES_MAX);
        scores.into_iter().map(|(_, host)| host).collect()
    }

    /// Places the nodes on these hosts and routes all links again; keeps the result if it is
    /// cheaper.
    fn try_hosts(&mut self, hosts: &[HostId]) -> bool {
        let attempt = &mut *self.attempt;
        attempt.clear();
        for (index, host) in hosts.iter().enumerate() {
            let node = NodeId::of(index);
            if !attempt.may_place(node, host.0) {
                return false;
            }
            attempt.place(node, host.0);
        }
        for at in 0..attempt.links_by_rate().len() {
            let link = attempt.links_by_rate()[at];
            if !attempt.route(link, &mut self.spare) || attempt.cost() >= self.cost {
                return false;
            }
        }
        match attempt.embedding() {
            Some(embedding) if attempt.cost() < self.cost => {
                self.cost = attempt.cost();
                self.best = embedding;
                true
            }
            _ => false,
        }
    }
}

/// Largest number of hosts that are tried for one node in a round.
const MOVES_MAX: usize = 4;
