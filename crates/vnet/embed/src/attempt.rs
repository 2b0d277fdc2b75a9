//! A placement in progress: what it has placed so far, what is left free, and its cost.

use crate::embedding::Embedding;
use crate::id::{HostId, LinkId, NodeId, VirtualLinkId};
use crate::request::Request;
use crate::residual::{Amounts, Residual};
use crate::search::{Demand, Tree, UNREACHED};

/// A placement in progress.
#[derive(Clone, Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) request: &'a Request,
    before: &'a Residual,
    free: Residual,
    /// For each node and host: whether the host's location and labels suit the node and an empty
    /// host would have room for it.
    accepts: Vec<bool>,
    host_of: Vec<Option<u32>>,
    /// Number of nodes on each host.
    occupants: Vec<u32>,
    /// The path of each routed link, from its first end to its second.
    paths: Vec<Vec<u32>>,
    /// The cost of the routed links: rates times prices.
    cost: u128,
    order: Vec<VirtualLinkId>,
}

impl<'a> Attempt<'a> {
    /// A placement in which nothing is placed yet.
    pub(crate) fn new(before: &'a Residual, request: &'a Request) -> Attempt<'a> {
        let hosts = before.hosts().len();
        let nodes = request.nodes();
        let mut accepts = Vec::with_capacity(nodes.len() * hosts);
        for node in nodes {
            let amounts = Amounts::of_node(node);
            let all = before.substrate().hosts().iter().zip(before.hosts());
            let first = accepts.len();
            accepts.extend(all.map(|(host, free)| free.contains(amounts) && node.accepts(host)));
            for host in &node.barred {
                if let Some(accepts) = accepts[first..].get_mut(host.index()) {
                    *accepts = false;
                }
            }
        }
        let mut order: Vec<VirtualLinkId> =
            (0..request.links().len()).map(VirtualLinkId::of).collect();
        order.sort_by_key(|link| std::cmp::Reverse(request.links()[link.index()].rate));
        Attempt {
            request,
            before,
            free: before.clone(),
            accepts,
            host_of: vec![None; nodes.len()],
            occupants: vec![0; hosts],
            paths: vec![Vec::new(); request.links().len()],
            cost: 0,
            order,
        }
    }

    /// The resources that are left free.
    pub(crate) fn free(&self) -> &Residual {
        &self.free
    }

    /// Number of hosts of the substrate.
    pub(crate) fn hosts(&self) -> u32 {
        self.occupants.len() as u32
    }

    /// The cost of the routed links: rates times prices.
    pub(crate) fn cost(&self) -> u128 {
        self.cost
    }

    /// The host of a node; `None` if the node is not placed.
    pub(crate) fn host_of(&self, node: NodeId) -> Option<u32> {
        self.host_of[node.index()]
    }

    /// All links, sorted by falling rate.
    pub(crate) fn links_by_rate(&self) -> &[VirtualLinkId] {
        &self.order
    }

    /// Removes everything from the placement.
    pub(crate) fn clear(&mut self) {
        self.free.reset_to(self.before);
        self.host_of.fill(None);
        self.occupants.fill(0);
        self.paths.iter_mut().for_each(Vec::clear);
        self.cost = 0;
    }

    /// Whether a host suits a node if no other node of the request is on it.
    pub(crate) fn accepts(&self, node: NodeId, host: u32) -> bool {
        self.accepts[node.index() * self.occupants.len() + host as usize]
    }

    /// Whether a node may be placed on a host, given the nodes that are already placed.
    pub(crate) fn may_place(&self, node: NodeId, host: u32) -> bool {
        if !self.accepts(node, host) {
            return false;
        }
        if self.occupants[host as usize] == 0 {
            return true;
        }
        let is_here = |at: &usize| self.host_of[*at] == Some(host);
        let mut others = (0..self.host_of.len()).filter(is_here).map(NodeId::of);
        others.all(|other| !self.request.are_apart(node, other))
            && self.free.has_room(host, self.amounts(node))
    }

    pub(crate) fn place(&mut self, node: NodeId, host: u32) {
        self.free.take_host(HostId(host), self.amounts(node));
        self.host_of[node.index()] = Some(host);
        self.occupants[host as usize] += 1;
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        if let Some(host) = self.host_of[node.index()].take() {
            self.free.give_back_host(HostId(host), self.amounts(node));
            self.occupants[host as usize] -= 1;
        }
    }

    fn amounts(&self, node: NodeId) -> Amounts {
        Amounts::of_node(&self.request.nodes()[node.index()])
    }

    pub(crate) fn demand(&self, link: VirtualLinkId) -> Demand {
        let link = &self.request.links()[link.index()];
        Demand {
            rate: link.rate,
            delay_max: link.delay_max,
        }
    }

    /// Routes a link between two placed nodes on the cheapest path; returns whether there is one.
    pub(crate) fn route(&mut self, link: VirtualLinkId, tree: &mut Tree) -> bool {
        let [Some(first), Some(second)] = self.ends(link) else {
            return false;
        };
        tree.fill(&self.free, second, self.demand(link), Some(first));
        tree.price(first) != UNREACHED && self.route_along(link, tree, second)
    }

    /// Routes a link along a tree with its root at the host of one of its ends. Returns false if
    /// the links of that path do not have the rate any more.
    pub(crate) fn route_along(&mut self, link: VirtualLinkId, tree: &Tree, root: u32) -> bool {
        let [Some(first), Some(second)] = self.ends(link) else {
            return false;
        };
        let mut path = std::mem::take(&mut self.paths[link.index()]);
        path.clear();
        tree.path_back(if root == second { first } else { second }, &mut path);
        if root != second {
            path.reverse();
        }
        self.route_on(link, path)
    }

    /// Routes a link on a path from its first end to its second. Returns false if the path's links
    /// do not have the rate.
    pub(crate) fn route_on(&mut self, link: VirtualLinkId, mut path: Vec<u32>) -> bool {
        let rate = self.demand(link).rate;
        let is_free = path
            .iter()
            .all(|hop| self.free.rates()[*hop as usize] >= rate);
        if is_free {
            for hop in &path {
                self.free.take_rate(LinkId(*hop), rate);
            }
            self.cost += self.cost_of(rate, &path);
        } else {
            path.clear();
        }
        self.paths[link.index()] = path;
        is_free
    }

    /// Removes a link from its path.
    pub(crate) fn unroute(&mut self, link: VirtualLinkId) {
        let mut path = std::mem::take(&mut self.paths[link.index()]);
        let rate = self.demand(link).rate;
        self.cost -= self.cost_of(rate, &path);
        for hop in path.drain(..) {
            self.free.give_back_rate(LinkId(hop), rate);
        }
        self.paths[link.index()] = path;
    }

    fn ends(&self, link: VirtualLinkId) -> [Option<u32>; 2] {
        let ends = self.request.links()[link.index()].ends;
        ends.map(|node| self.host_of[node.index()])
    }

    fn cost_of(&self, rate: u64, path: &[u32]) -> u128 {
        let links = self.free.substrate().links();
        let price = |hop: &u32| u128::from(links[*hop as usize].price);
        u128::from(rate) * path.iter().map(price).sum::<u128>()
    }

    /// The placement as an embedding; `None` unless all nodes and links are placed.
    pub(crate) fn embedding(&self) -> Option<Embedding> {
        let hosts = self.host_of.iter().map(|host| host.map(HostId));
        let path = |path: &Vec<u32>| path.iter().copied().map(LinkId).collect();
        Some(Embedding {
            hosts: hosts.collect::<Option<Vec<HostId>>>()?,
            paths: self.paths.iter().map(path).collect(),
        })
    }

    /// Replaces the placement by an embedding that fits.
    pub(crate) fn load(&mut self, embedding: &Embedding) {
        self.clear();
        for (index, host) in embedding.hosts.iter().enumerate() {
            self.place(NodeId::of(index), host.0);
        }
        for (index, path) in embedding.paths.iter().enumerate() {
            let path = path.iter().map(|link| link.0).collect();
            let is_free = self.route_on(VirtualLinkId::of(index), path);
            debug_assert!(is_free, "an embedding that fits was asked for");
        }
    }
}
