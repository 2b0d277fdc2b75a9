//! Finds the cheapest embedding of a small request, by branch and bound over all hosts of its nodes
//! and all simple paths of its links: the integer program of `docs/explanation/embedding.md`.

use carina_embed::request::Sharing;
use carina_embed::residual::Amounts;
use carina_embed::{Embedding, HostId, LinkId, NodeId, Request, Residual, VirtualLinkId};
use carina_time::Duration;

/// The oracle's answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The cheapest embedding, with the cost of its links, which is below the bound.
    Cheapest(u128, Embedding),
    /// No embedding is cheaper than the bound.
    Nothing,
    /// The search would take too many steps.
    TooHard,
}

/// Finds the cheapest embedding whose links cost less than `bound`, in at most `steps` steps.
pub(crate) fn cheapest(residual: &Residual, request: &Request, bound: u128, steps: u64) -> Answer {
    let order = order(request);
    let distances = request.links().iter();
    let distances = distances.map(|link| Distances::new(residual, link.rate));
    let price_min = residual
        .substrate()
        .links()
        .iter()
        .map(|link| link.price)
        .min();
    let price_min = match request.sharing() {
        Sharing::Never => u128::from(price_min.unwrap_or(1)),
        Sharing::UnlessApart => 0,
    };
    let mut oracle = Oracle {
        request,
        residual,
        distances: distances.collect(),
        price_min,
        order,
        hosts: vec![None; request.nodes().len()],
        free: residual.hosts().to_vec(),
        rates: residual.rates().to_vec(),
        paths: vec![Vec::new(); request.links().len()],
        bound,
        best: None,
        steps,
    };
    oracle.place(0, 0);
    match (oracle.steps, oracle.best) {
        (0, _) => Answer::TooHard,
        (_, Some(embedding)) => Answer::Cheapest(oracle.bound, embedding),
        (_, None) => Answer::Nothing,
    }
}

struct Oracle<'a> {
    request: &'a Request,
    residual: &'a Residual,
    distances: Vec<Distances>,
    price_min: u128,
    order: Vec<usize>,
    hosts: Vec<Option<usize>>,
    free: Vec<Amounts>,
    rates: Vec<u64>,
    paths: Vec<Vec<usize>>,
    bound: u128,
    best: Option<Embedding>,
    steps: u64,
}

impl Oracle<'_> {
    /// Tries all hosts of the next node. `least` is a lower bound for the cost of links between
    /// placed nodes.
    fn place(&mut self, at: usize, least: u128) {
        if least + self.rest(at) >= self.bound || !self.step() {
            return;
        }
        let Some(node) = self.order.get(at).copied() else {
            let mut links: Vec<usize> = (0..self.paths.len()).collect();
            links.sort_by_key(|link| std::cmp::Reverse(self.request.links()[*link].rate));
            self.route(&links, 0);
            return;
        };
        let mut candidates: Vec<(u128, usize)> = (0..self.free.len())
            .filter(|host| self.may_place(node, *host))
            .filter_map(|host| Some((self.to_placed(node, host)?, host)))
            .collect();
        candidates.sort_unstable();
        let amounts = Amounts::of_node(&self.request.nodes()[node]);
        for (more, host) in candidates {
            let before = self.free[host];
            self.free[host] = Amounts {
                cpu: before.cpu - amounts.cpu,
                memory: before.memory - amounts.memory,
                nics: before.nics - amounts.nics,
            };
            self.hosts[node] = Some(host);
            self.place(at + 1, least + more);
            self.hosts[node] = None;
            self.free[host] = before;
        }
    }

    fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_sub(1);
        self.steps > 0
    }

    fn may_place(&self, node: usize, host: usize) -> bool {
        let wanted = &self.request.nodes()[node];
        let is_apart = |other: usize| {
            let [a, b] = [node, other].map(|index| NodeId(index as u32));
            self.request.are_apart(a, b)
        };
        let mut beside = (0..self.hosts.len()).filter(|other| self.hosts[*other] == Some(host));
        wanted.accepts(&self.residual.substrate().hosts()[host])
            && self.free[host].contains(Amounts::of_node(wanted))
            && !beside.any(is_apart)
    }

    /// A lower bound for the cost of the links from a node to placed ones; `None` if one has no
    /// path.
    fn to_placed(&self, node: usize, host: usize) -> Option<u128> {
        let mut sum = 0;
        for (link, other) in self.request.incident(NodeId(node as u32)) {
            if let Some(placed) = self.hosts[other.index()] {
                sum += self.least(link.index(), host, placed)?;
            }
        }
        Some(sum)
    }

    /// A lower bound for the cost of a link between two hosts; `None` if there is no path.
    fn least(&self, link: usize, a: usize, b: usize) -> Option<u128> {
        let wanted = &self.request.links()[link];
        let distances = &self.distances[link];
        let is_fast = wanted
            .delay_max
            .is_none_or(|delay_max| distances.delay(a, b) <= delay_max);
        let price = distances.price(a, b).filter(|_| is_fast)?;
        Some(u128::from(wanted.rate) * u128::from(price))
    }

    /// A lower bound for the cost of the links with a node that is not placed yet.
    fn rest(&self, at: usize) -> u128 {
        let placed = &self.order[..at];
        let is_left = |ends: [NodeId; 2]| ends.iter().any(|end| !placed.contains(&end.index()));
        let links = self
            .request
            .links()
            .iter()
            .filter(|link| is_left(link.ends));
        links.map(|link| u128::from(link.rate)).sum::<u128>() * self.price_min
    }

    fn ends(&self, link: usize) -> [usize; 2] {
        let ends = self.request.links()[link].ends;
        ends.map(|node| self.hosts[node.index()].expect("all nodes are placed"))
    }

    /// Tries all paths of the next link.
    fn route(&mut self, links: &[usize], cost: u128) {
        let least = |link: &usize| {
            let [a, b] = self.ends(*link);
            self.least(*link, a, b)
        };
        let rest = links.iter().map(least);
        let Some(rest) = rest.collect::<Option<Vec<u128>>>() else {
            return;
        };
        if cost + rest.iter().sum::<u128>() >= self.bound || !self.step() {
            return;
        }
        let Some((link, others)) = links.split_first() else {
            self.bound = cost;
            let hosts = self.hosts.iter().flatten();
            let path = |path: &Vec<usize>| path.iter().map(|hop| LinkId(*hop as u32)).collect();
            self.best = Some(Embedding {
                hosts: hosts.map(|host| HostId(*host as u32)).collect(),
                paths: self.paths.iter().map(path).collect(),
            });
            return;
        };
        let [from, to] = self.ends(*link);
        let beyond = cost + rest[1..].iter().sum::<u128>();
        let mut walk = Walk {
            link: *link,
            to,
            passed: vec![from],
            others,
            cost,
            beyond,
        };
        self.walk(&mut walk, 0, Duration::ZERO);
    }

    /// Extends a walk from its last host in every way that is cheap and fast enough.
    fn walk(&mut self, walk: &mut Walk, price: u64, delay: Duration) {
        let at = walk.passed[walk.passed.len() - 1];
        let wanted = &self.request.links()[walk.link];
        let rate = u128::from(wanted.rate);
        let Some(left) = self.distances[walk.link].price(at, walk.to) else {
            return;
        };
        if walk.beyond + rate * u128::from(price + left) >= self.bound || !self.step() {
            return;
        }
        let fastest = delay + self.distances[walk.link].delay(at, walk.to);
        if wanted
            .delay_max
            .is_some_and(|delay_max| fastest > delay_max)
        {
            return;
        }
        if at == walk.to {
            let cost = walk.cost + rate * u128::from(price);
            self.route(walk.others, cost);
            return;
        }
        let rate = wanted.rate;
        for hop in 0..self.rates.len() {
            let link = &self.residual.substrate().links()[hop];
            let [a, b] = link.ends.map(HostId::index);
            if (a != at && b != at) || self.rates[hop] < rate {
                continue;
            }
            let next = if a == at { b } else { a };
            if walk.passed.contains(&next) {
                continue;
            }
            let (more, longer) = (u64::from(link.price), link.delay);
            self.rates[hop] -= rate;
            self.paths[walk.link].push(hop);
            walk.passed.push(next);
            self.walk(walk, price + more, delay + longer);
            walk.passed.pop();
            self.paths[walk.link].pop();
            self.rates[hop] += rate;
        }
    }
}

/// A path that is being tried for a link.
struct Walk<'a> {
    link: usize,
    to: usize,
    passed: Vec<usize>,
    /// The links that are routed after this one.
    others: &'a [usize],
    /// The cost of the links before this one.
    cost: u128,
    /// The cost of the links before this one, plus a lower bound for those after it.
    beyond: u128,
}

/// The order of nodes: the node with most links first, then always one with a link to an earlier
/// node.
fn order(request: &Request) -> Vec<usize> {
    let count = request.nodes().len();
    let mut order: Vec<usize> = Vec::new();
    while order.len() < count {
        let rank = |node: &usize| {
            let incident = request.incident(NodeId(*node as u32));
            let to_placed = incident
                .iter()
                .filter(|(_, to)| order.contains(&to.index()));
            (to_placed.count(), incident.len())
        };
        let left = (0..count).filter(|node| !order.contains(node));
        let next = left.max_by_key(rank).expect("one is left");
        order.push(next);
    }
    order
}

/// The least prices and the least delays between all hosts, computed separately (Floyd and
/// Warshall).
struct Distances {
    hosts: usize,
    prices: Vec<Option<u64>>,
    delays: Vec<Duration>,
}

impl Distances {
    fn new(residual: &Residual, rate: u64) -> Distances {
        let hosts = residual.hosts().len();
        let mut prices = vec![None; hosts * hosts];
        let mut delays = vec![Duration::MAX; hosts * hosts];
        for host in 0..hosts {
            prices[host * hosts + host] = Some(0);
            delays[host * hosts + host] = Duration::ZERO;
        }
        let links = residual.substrate().links().iter().zip(residual.rates());
        for (link, _) in links.filter(|(_, free)| **free >= rate) {
            let [a, b] = link.ends.map(HostId::index);
            for at in [a * hosts + b, b * hosts + a] {
                let price = u64::from(link.price);
                prices[at] = Some(prices[at].map_or(price, |known: u64| known.min(price)));
                delays[at] = delays[at].min(link.delay);
            }
        }
        for over in 0..hosts {
            for from in 0..hosts {
                for to in 0..hosts {
                    let [at, first, second] =
                        [(from, to), (from, over), (over, to)].map(|(a, b)| a * hosts + b);
                    if let (Some(a), Some(b)) = (prices[first], prices[second]) {
                        prices[at] = Some(prices[at].map_or(a + b, |known| known.min(a + b)));
                        delays[at] = delays[at].min(delays[first] + delays[second]);
                    }
                }
            }
        }
        Distances {
            hosts,
            prices,
            delays,
        }
    }

    fn price(&self, a: usize, b: usize) -> Option<u64> {
        self.prices[a * self.hosts + b]
    }

    fn delay(&self, a: usize, b: usize) -> Duration {
        self.delays[a * self.hosts + b]
    }
}

/// The cost of the links of an embedding.
pub(crate) fn cost_of_links(residual: &Residual, request: &Request, embedding: &Embedding) -> u128 {
    let cpu: u128 = request
        .nodes()
        .iter()
        .map(|node| u128::from(node.cpu))
        .sum();
    embedding.cost(residual.substrate(), request) - cpu
}

/// The cost of the cheapest embedding of a tiny request, by enumerating all of them; checks the
/// oracle.
pub(crate) fn cheapest_of_all(residual: &Residual, request: &Request) -> Option<u128> {
    let hosts = residual.hosts().len() as u32;
    let nodes = request.nodes().len();
    let mut best: Option<u128> = None;
    let mut placement = vec![0_u32; nodes];
    loop {
        let on = placement
            .iter()
            .copied()
            .map(HostId)
            .collect::<Vec<HostId>>();
        let paths = request.links().iter().map(|link| {
            let [a, b] = link.ends.map(|node| on[node.index()]);
            simple_paths(residual, a, b)
        });
        let paths: Vec<Vec<Vec<LinkId>>> = paths.collect();
        let mut chosen = vec![0; paths.len()];
        'paths: while paths.iter().all(|paths| !paths.is_empty()) {
            let of = |(at, paths): (&usize, &Vec<Vec<LinkId>>)| paths[*at].clone();
            let embedding = Embedding {
                hosts: on.clone(),
                paths: chosen.iter().zip(&paths).map(of).collect(),
            };
            if residual.check(request, &embedding).is_ok() {
                let cost = cost_of_links(residual, request, &embedding);
                best = Some(best.map_or(cost, |best| best.min(cost)));
            }
            for at in (0..chosen.len()).map(|at| VirtualLinkId(at as u32).index()) {
                chosen[at] += 1;
                if chosen[at] < paths[at].len() {
                    continue 'paths;
                }
                chosen[at] = 0;
            }
            break;
        }
        let Some(at) = placement.iter().position(|host| host + 1 < hosts) else {
            return best;
        };
        placement[..at].fill(0);
        placement[at] += 1;
    }
}

fn simple_paths(residual: &Residual, from: HostId, to: HostId) -> Vec<Vec<LinkId>> {
    let mut found = Vec::new();
    let mut open = vec![(vec![from], Vec::new())];
    while let Some((passed, path)) = open.pop() {
        let at = passed[passed.len() - 1];
        if at == to {
            found.push(path);
            continue;
        }
        for (index, link) in residual.substrate().links().iter().enumerate() {
            if link.ends.contains(&at) {
                let hop = LinkId(index as u32);
                let next = residual.substrate().other_end(hop, at);
                if !passed.contains(&next) {
                    let passed = [&passed[..], &[next]].concat();
                    open.push((passed, [&path[..], &[hop]].concat()));
                }
            }
        }
    }
    found
}
