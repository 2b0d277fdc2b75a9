//! Finds the cheapest paths from one host, over links with enough rate.
//!
//! Without a limit of delay this is Dijkstra's algorithm with buckets (R. Dial, *Algorithm 360:
//! Shortest-path forest with topological ordering*, 1969): prices are small integers, and if all
//! prices are 1 it is a breadth-first search. With a limit each host may keep several labels, none
//! of which is both dearer and slower than another (C. Joksch, *The shortest route problem with
//! constraints*, 1966).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use carina_time::Duration;

use crate::residual::Residual;

/// The requirements of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// The free rate that each link of the path must have.
    pub(crate) rate: u64,
    /// The largest delay that the path may have; `None` for no limit.
    pub(crate) delay_max: Option<Duration>,
}

/// The cheapest paths from one host. A tree can be filled repeatedly without allocating memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    /// For each host, the price of the path that reaches it, or [`UNREACHED`].
    prices: Vec<u32>,
    /// For each host, the last link of the path that reaches it.
    last_link: Vec<u32>,
    /// For each host, the host before it on the path. If the search has a limit of delay: the index
    /// in `labels` of the path without its last step.
    before: Vec<u32>,
    buckets: Vec<Vec<u32>>,
    /// The paths that a search with a limit of delay has found, each by its last step.
    labels: Vec<Label>,
    /// For each host, the index in `labels` of the cheapest path that reaches it.
    label_of: Vec<u32>,
    least_delay: Vec<Option<Duration>>,
    /// For each host, the price and delay of its fastest label so far, including labels still in
    /// the queue.
    fastest: Vec<(u32, Duration)>,
    queue: BinaryHeap<Reverse<Waiting>>,
    is_bounded: bool,
}

/// A label's price, delay in ns and number, packed so that labels compare in this order.
type Waiting = u128;

fn waiting(price: u32, delay: Duration, label: u32) -> Waiting {
    (u128::from(price) << 96) | (u128::from(delay.as_nanos()) << 32) | u128::from(label)
}

/// The last step of a path: the host that it reaches, the link to that host, and the index of the
/// label before. A path is a chain of labels.
#[derive(Clone, Copy, Debug)]
struct Label {
    host: u32,
    link: u32,
    before: u32,
}

/// The price of a host that no path reaches.
pub(crate) const UNREACHED: u32 = u32::MAX;
/// A limit that no path's price exceeds.
pub(crate) const PRICE_ANY: u32 = UNREACHED - 1;

impl Tree {
    /// Finds the cheapest paths from a host to all others; if `until` is given, stops after the
    /// path to that host.
    pub(crate) fn fill(
        &mut self,
        residual: &Residual,
        from: u32,
        demand: Demand,
        until: Option<u32>,
    ) {
        self.fill_within(residual, from, demand, until, PRICE_ANY);
    }

    /// Like [`Tree::fill`], but ignores paths with a price above `price_max`.
    pub(crate) fn fill_within(
        &mut self,
        residual: &Residual,
        from: u32,
        demand: Demand,
        until: Option<u32>,
        price_max: u32,
    ) {
        let hosts = residual.hosts().len();
        self.prices.clear();
        self.prices.resize(hosts, UNREACHED);
        self.last_link.resize(hosts, 0);
        self.before.resize(hosts, 0);
        self.is_bounded = demand.delay_max.is_some();
        match demand.delay_max {
            None => self.fill_unbounded(residual, from, demand.rate, until, price_max),
            Some(delay) => {
                self.fill_bounded(residual, from, (demand.rate, delay), until, price_max)
            }
        }
    }

    /// The price of a unit of rate on the path to a host, or [`UNREACHED`].
    pub(crate) fn price(&self, host: u32) -> u32 {
        self.prices[host as usize]
    }

    /// Appends the links of the path to a host, which must be reached, in the order from that host
    /// back to the root.
    pub(crate) fn path_back(&self, host: u32, path: &mut Vec<u32>) {
        debug_assert_ne!(self.price(host), UNREACHED);
        if self.is_bounded {
            let mut label = self.labels[self.label_of[host as usize] as usize];
            while label.before != NO_LABEL {
                path.push(label.link);
                label = self.labels[label.before as usize];
            }
            return;
        }
        let mut at = host as usize;
        while self.prices[at] != 0 {
            path.push(self.last_link[at]);
            at = self.before[at] as usize;
        }
    }

    fn fill_unbounded(
        &mut self,
        residual: &Residual,
        from: u32,
        rate: u64,
        until: Option<u32>,
        price_max: u32,
    ) {
        let substrate = residual.substrate();
        let rates = residual.rates();
        // Prices in the queue differ from the current one by at most the highest link price, so
        // that no bucket holds two different prices.
        let buckets = substrate.price_max() as usize + 1;
        if self.buckets.len() < buckets {
            self.buckets.resize_with(buckets, Vec::new);
        }
        self.prices[from as usize] = 0;
        self.buckets[0].push(from);
        let mut waiting = 1;
        let mut price = 0;
        while waiting > 0 {
            let bucket = price as usize % buckets;
            while let Some(host) = self.buckets[bucket].pop() {
                waiting -= 1;
                if until == Some(host) {
                    self.buckets.iter_mut().for_each(Vec::clear);
                    return;
                }
                if self.prices[host as usize] != price {
                    continue;
                }
                for beside in substrate.beside(host) {
                    let then = price + beside.price;
                    let next = beside.host as usize;
                    let is_dear = then >= self.prices[next] || then > price_max;
                    if is_dear || rates[beside.link as usize] < rate {
                        continue;
                    }
                    self.prices[next] = then;
                    self.last_link[next] = beside.link;
                    self.before[next] = host;
                    self.buckets[then as usize % buckets].push(beside.host);
                    waiting += 1;
                }
            }
            price += 1;
        }
    }

    fn fill_bounded(
        &mut self,
        residual: &Residual,
        from: u32,
        (rate, delay_max): (u64, Duration),
        until: Option<u32>,
        price_max: u32,
    ) {
        let substrate = residual.substrate();
        self.labels.clear();
        self.queue.clear();
        self.label_of.resize(residual.hosts().len(), 0);
        self.least_delay.clear();
        self.least_delay.resize(residual.hosts().len(), None);
        self.labels.push(Label {
            host: from,
            link: 0,
            before: NO_LABEL,
        });
        self.fastest.clear();
        self.fastest
            .resize(residual.hosts().len(), (u32::MAX, Duration::MAX));
        self.queue.push(Reverse(waiting(0, Duration::ZERO, 0)));
        while let Some(Reverse(first)) = self.queue.pop() {
            let [price, label] =
                [first >> 96, first & u128::from(u32::MAX)].map(|half| half as u32);
            let delay = Duration::from_nanos((first >> 32) as u64);
            let host = self.labels[label as usize].host;
            let at = host as usize;
            // Labels come in the order of price, so that an earlier label of this host is not
            // dearer.
            if self.least_delay[at].is_some_and(|least| least <= delay) {
                continue;
            }
            self.least_delay[at] = Some(delay);
            if self.prices[at] == UNREACHED {
                self.prices[at] = price;
                self.label_of[at] = label;
            }
            if until == Some(host) {
                return;
            }
            for beside in substrate.beside(host) {
                let link = &substrate.links()[beside.link as usize];
                let then = delay + link.delay;
                let least = self.least_delay[beside.host as usize];
                let is_worse = least.is_some_and(|least| least <= then);
                if then > delay_max || is_worse || residual.rates()[beside.link as usize] < rate {
                    continue;
                }
                let price = price + beside.price;
                if price > price_max {
                    continue;
                }
                // A label that is still in the queue, and is neither dearer nor slower, makes this
                // one useless.
                let fastest = &mut self.fastest[beside.host as usize];
                if fastest.0 <= price && fastest.1 <= then {
                    continue;
                }
                if then < fastest.1 {
                    *fastest = (price, then);
                }
                let next = self.labels.len() as u32;
                self.labels.push(Label {
                    host: beside.host,
                    link: beside.link,
                    before: label,
                });
                self.queue.push(Reverse(waiting(price, then, next)));
            }
        }
    }
}

/// The predecessor of the first label.
const NO_LABEL: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::id::HostId;
    use crate::substrate::{Host, Link, Substrate};

    fn link(a: u32, b: u32, rate: u64, delay_ms: u64, price: u32) -> Link {
        Link {
            delay: Duration::from_millis(delay_ms),
            price,
            ..Link::new(HostId(a), HostId(b), rate)
        }
    }

    /// Two paths from 0 to 3: a cheap and slow one over 1, and a dear and fast one over 2. Host 4
    /// is isolated.
    fn two_ways() -> Residual {
        let links = vec![
            link(0, 1, 50, 20, 1),
            link(1, 3, 50, 20, 1),
            link(0, 2, 90, 5, 3),
            link(2, 3, 90, 5, 3),
        ];
        let substrate = Substrate::new(vec![Host::default(); 5], links, 0).unwrap();
        Residual::new(Arc::new(substrate))
    }

    fn path(from: u32, to: u32, rate: u64, delay_ms: Option<u64>) -> Option<(u32, Vec<u32>)> {
        let mut tree = Tree::default();
        let demand = Demand {
            rate,
            delay_max: delay_ms.map(Duration::from_millis),
        };
        let found = [None, Some(to)].map(|until| {
            tree.fill(&two_ways(), from, demand, until);
            let mut path = Vec::new();
            if tree.price(to) != UNREACHED {
                tree.path_back(to, &mut path);
            }
            (tree.price(to), path)
        });
        assert_eq!(found[0], found[1]);
        let [found, _] = found;
        let mut within = |price_max: u32| {
            tree.fill_within(&two_ways(), from, demand, None, price_max);
            tree.price(to)
        };
        assert_eq!(within(found.0.min(PRICE_ANY)), found.0);
        assert!(found.0 == 0 || within(found.0 - 1) == UNREACHED);
        Some(found).filter(|(price, _)| *price != UNREACHED)
    }

    #[test]
    fn path_is_the_cheapest_with_enough_rate() {
        assert_eq!(path(0, 3, 50, None), Some((2, vec![1, 0])));
        assert_eq!(path(0, 3, 51, None), Some((6, vec![3, 2])));
        assert_eq!(path(0, 3, 91, None), None);
        assert_eq!(path(0, 4, 0, None), None);
        assert_eq!(path(2, 2, 1, None), Some((0, vec![])));
    }

    #[test]
    fn path_is_the_cheapest_that_is_fast_enough() {
        assert_eq!(path(0, 3, 50, Some(40)), Some((2, vec![1, 0])));
        assert_eq!(path(0, 3, 50, Some(39)), Some((6, vec![3, 2])));
        assert_eq!(path(0, 3, 50, Some(9)), None);
        assert_eq!(path(1, 2, 50, Some(25)), Some((4, vec![2, 0])));
        assert_eq!(path(3, 3, 50, Some(0)), Some((0, vec![])));
    }
}
