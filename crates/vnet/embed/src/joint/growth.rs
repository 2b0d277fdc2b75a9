//! Grows a placement from a start: places one node after the other, together with its links.

use std::cmp::Reverse;

use crate::attempt::Attempt;
use crate::id::{NodeId, VirtualLinkId};
use crate::request::Request;
use crate::residual::Residual;
use crate::search::{PRICE_ANY, Tree, UNREACHED};

/// What all starts have in common, and reusable memory.
pub(crate) struct Growth<'a> {
    /// The nodes in the order of placement.
    order: Vec<NodeId>,
    /// For each position in the order, the node's links to earlier nodes, sorted by falling rate.
    links: Vec<Vec<(VirtualLinkId, NodeId)>>,
    /// For each position in the order, the least cost of all links to later nodes.
    rest: Vec<u128>,
    cost_min: u128,
    strengths: &'a [u64],
    candidates_max: usize,
    /// The cheapest paths from the neighbours of the node that is being placed.
    trees: Vec<Tree>,
    candidates: Vec<(u128, Reverse<u64>, u32)>,
    spare: Tree,
    /// The largest number of nodes that any attempt has placed.
    farthest: usize,
}

impl<'a> Growth<'a> {
    /// Growth that begins with node `first`, or with the node that requests most.
    pub(crate) fn new(
        residual: &Residual,
        request: &Request,
        strengths: &'a [u64],
        candidates_max: usize,
        first: Option<NodeId>,
    ) -> Growth<'a> {
        let order = order(request, first);
        let mut place = vec![0; order.len()];
        for (at, node) in order.iter().enumerate() {
            place[node.index()] = at;
        }
        let rate = |link: VirtualLinkId| request.links()[link.index()].rate;
        let earlier = |node: &NodeId| {
            let at = place[node.index()];
            let links = request.incident(*node).iter().copied();
            let mut links: Vec<_> = links.filter(|(_, to)| place[to.index()] < at).collect();
            links.sort_by_key(|(link, _)| Reverse(rate(*link)));
            links
        };
        let links: Vec<Vec<(VirtualLinkId, NodeId)>> = order.iter().map(earlier).collect();
        let price = super::price_min(residual, request);
        let mut rest = vec![0; order.len()];
        let mut cost_min = 0;
        for at in (0..order.len()).rev() {
            rest[at] = cost_min;
            let rates = links[at].iter().map(|(link, _)| u128::from(rate(*link)));
            cost_min += rates.sum::<u128>() * price;
        }
        Growth {
            order,
            links,
            rest,
            cost_min,
            strengths,
            candidates_max: candidates_max.max(1),
            trees: Vec::new(),
            candidates: Vec::new(),
            spare: Tree::default(),
            farthest: 0,
        }
    }

    /// The node that is placed first.
    pub(crate) fn first(&self) -> NodeId {
        self.order[0]
    }

    /// The free rate around a host before anything was placed.
    pub(crate) fn strength(&self, host: u32) -> u64 {
        self.strengths[host as usize]
    }

    /// The node at which the most successful attempt ended.
    pub(crate) fn farthest(&self) -> NodeId {
        self.order[self.farthest.min(self.order.len() - 1)]
    }

    /// The least cost of all links together.
    pub(crate) fn cost_min(&self) -> u128 {
        self.cost_min
    }

    /// Places all nodes and links, the first node on `start`. Returns whether that succeeded at a
    /// cost below `bound`.
    pub(crate) fn grow(&mut self, attempt: &mut Attempt, start: u32, bound: u128) -> bool {
        attempt.clear();
        attempt.place(self.order[0], start);
        for at in 1..self.order.len() {
            if attempt.cost() + self.rest[at - 1] >= bound {
                return false;
            }
            self.score(attempt, at, bound);
            let mut candidates = std::mem::take(&mut self.candidates);
            let mut hosts = candidates.iter().map(|(_, _, host)| *host);
            let is_placed = hosts.any(|host| self.try_host(attempt, at, host));
            candidates.clear();
            self.candidates = candidates;
            if !is_placed {
                self.farthest = self.farthest.max(at);
                return false;
            }
        }
        attempt.cost() < bound
    }

    /// Finds the hosts from which the next node's links to placed neighbours cost least. Hosts from
    /// which a single link already reaches the bound are not considered.
    fn score(&mut self, attempt: &Attempt, at: usize, bound: u128) {
        let node = self.order[at];
        let links = &self.links[at];
        let left = bound.saturating_sub(attempt.cost() + self.rest[at] + 1);
        if self.trees.len() < links.len() {
            self.trees.resize_with(links.len(), Tree::default);
        }
        for ((link, neighbour), tree) in links.iter().zip(&mut self.trees) {
            let Some(from) = attempt.host_of(*neighbour) else {
                continue;
            };
            let demand = attempt.demand(*link);
            let price_max = left.checked_div(u128::from(demand.rate));
            let price_max = price_max.map_or(PRICE_ANY, |price_max| {
                price_max.min(u128::from(PRICE_ANY)) as u32
            });
            tree.fill_within(attempt.free(), from, demand, None, price_max);
        }
        self.candidates.clear();
        for host in 0..attempt.hosts() {
            if !attempt.may_place(node, host) {
                continue;
            }
            let score = score(attempt, links, &self.trees, host);
            if let Some(score) = score {
                let strength = Reverse(self.strengths[host as usize]);
                self.candidates.push((score, strength, host));
            }
        }
        if self.candidates.len() > self.candidates_max {
            self.candidates.select_nth_unstable(self.candidates_max - 1);
            self.candidates.truncate(self.candidates_max);
        }
        self.candidates.sort_unstable();
    }

    /// Places the next node on a host and routes its links; undoes both if a link has no path.
    fn try_host(&mut self, attempt: &mut Attempt, at: usize, host: u32) -> bool {
        let node = self.order[at];
        attempt.place(node, host);
        for (index, (link, neighbour)) in self.links[at].iter().enumerate() {
            let root = attempt.host_of(*neighbour);
            // A link that was routed after the tree was made may have used up the rate on its path.
            let is_routed = root
                .is_some_and(|root| attempt.route_along(*link, &self.trees[index], root))
                || attempt.route(*link, &mut self.spare);
            if !is_routed {
                for (link, _) in &self.links[at][..index] {
                    attempt.unroute(*link);
                }
                attempt.remove(node);
                return false;
            }
        }
        true
    }
}

/// The cost of the links from a host to placed neighbours; `None` if one of them has no path.
pub(crate) fn score(
    attempt: &Attempt,
    links: &[(VirtualLinkId, NodeId)],
    trees: &[Tree],
    host: u32,
) -> Option<u128> {
    let mut score = 0;
    for ((link, _), tree) in links.iter().zip(trees) {
        let price = tree.price(host);
        if price == UNREACHED {
            return None;
        }
        score += u128::from(attempt.demand(*link).rate) * u128::from(price);
    }
    Some(score)
}

/// The order of nodes: first `first` or the node that requests most, then always the node with the
/// highest rate to those before it.
fn order(request: &Request, first: Option<NodeId>) -> Vec<NodeId> {
    let wants = |node: NodeId| {
        let links = request.incident(node).iter();
        let rate = links.map(|(link, _)| request.links()[link.index()].rate);
        rate.sum::<u64>() + request.nodes()[node.index()].cpu
    };
    let count = request.nodes().len();
    let mut to_placed = vec![0_u64; count];
    let mut left: Vec<NodeId> = (0..count).map(NodeId::of).collect();
    let mut order = Vec::with_capacity(count);
    while !left.is_empty() {
        let rank = |at: &usize| {
            let node = left[*at];
            let is_first = first == Some(node);
            (
                is_first,
                to_placed[node.index()],
                wants(node),
                Reverse(node),
            )
        };
        let next = (0..left.len()).max_by_key(rank).unwrap_or(0);
        let node = left.remove(next);
        for (link, neighbour) in request.incident(node) {
            to_placed[neighbour.index()] += request.links()[link.index()].rate;
        }
        order.push(node);
    }
    order
}
