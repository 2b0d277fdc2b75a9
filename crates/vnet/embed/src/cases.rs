//! Cases of published evaluations, drawn from a seed: a substrate, and requests that arrive and
//! end.
//!
//! The setting is that of *Virne: A Comprehensive Benchmark for Virtual Network Embedding* (2026):
//! capacities of hosts and links are integers from 50 to 100. A request has 2 to 10 nodes; each
//! pair is linked with probability 0.5, drawn again until all nodes are connected; a node needs 0
//! to 20, a link 0 to 50. Gaps between arrivals are Poisson numbers of mean 1/η; lifetimes are
//! exponential with mean 500. Each node of a request needs a host of its own.

mod draw;
mod topology;

use std::sync::Arc;

use carina_random::Random;

use crate::cases::draw::{exponential, poisson};
use crate::id::NodeId;
use crate::request::{Node, Request, RequestError, Sharing, VirtualLink};
use crate::substrate::{Substrate, SubstrateError};

pub use self::topology::Topology;

/// Parameters of a case: the substrate's shape, how fast requests arrive, and how many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The shape of the substrate.
    pub topology: Topology,
    /// The arrival rate η, requests per unit of time: [`ETA_MIN`] to [`ETA_MAX`].
    pub eta: f64,
    /// Number of requests.
    pub requests: usize,
}

/// A substrate, and the requests for it in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Case {
    /// The substrate on which the requests are placed.
    pub substrate: Arc<Substrate>,
    /// The requests with their times.
    pub arrivals: Vec<Arrival>,
}

/// A request of a case, with the time of its arrival and its lifetime.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Time of arrival.
    pub at: Tick,
    /// Lifetime of the request if it is accepted.
    pub life: Tick,
    /// The virtual network that is requested.
    pub request: Request,
}

/// A point in time or a duration in a case, in millionths of the case's abstract unit of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(pub u64);

impl Tick {
    /// Converts a time in the case's abstract unit of time; rounds down to a millionth of it.
    #[must_use]
    pub fn from_units(units: f64) -> Tick {
        Tick((units * TICKS) as u64)
    }

    /// This time in the case's abstract unit of time.
    #[must_use]
    pub fn as_units(self) -> f64 {
        self.0 as f64 / TICKS
    }
}

/// Ticks per unit of time.
const TICKS: f64 = 1e6;

/// The lowest arrival rate.
pub const ETA_MIN: f64 = 0.000_1;

/// The highest arrival rate.
pub const ETA_MAX: f64 = 1000.0;

impl Case {
    /// Draws the case of a seed. The same setting and seed give the same case.
    ///
    /// # Errors
    /// The arrival rate is out of range.
    pub fn draw(setting: Setting, seed: u64) -> Result<Case, CaseError> {
        let eta = setting.eta;
        if !(ETA_MIN..=ETA_MAX).contains(&eta) {
            return Err(CaseError::Eta { eta });
        }
        let mut random = Random::new(seed);
        let substrate = setting.topology.draw(&mut random.fork())?;
        let mut random = random.fork();
        let mut at = 0;
        let mut arrivals = Vec::with_capacity(setting.requests);
        for _ in 0..setting.requests {
            at += poisson(&mut random, 1.0 / eta);
            let life = Tick::from_units(exponential(&mut random, LIFE_MEAN));
            let request = draw_request(&mut random)?;
            arrivals.push(Arrival {
                at: Tick::from_units(at as f64),
                life,
                request,
            });
        }
        Ok(Case {
            substrate: Arc::new(substrate),
            arrivals,
        })
    }
}

fn draw_request(random: &mut Random) -> Result<Request, RequestError> {
    let count = random.within(2, 10) as usize;
    let pairs = connected_pairs(random, count);
    let node = |cpu| Node {
        cpu,
        ..Node::default()
    };
    let nodes = (0..count).map(|_| node(random.within(0, 20))).collect();
    let link = |ends: &[usize; 2]| VirtualLink {
        ends: ends.map(NodeId::of),
        rate: random.within(0, 50),
        delay_max: None,
    };
    let links = pairs.iter().map(link).collect();
    Request::new(nodes, links, Sharing::Never)
}

/// A random graph in which each pair is linked with probability 0.5, drawn until it is connected.
fn connected_pairs(random: &mut Random, count: usize) -> Vec<[usize; 2]> {
    loop {
        let mut pairs = Vec::new();
        for a in 0..count {
            for b in a + 1..count {
                if random.below(2) == 0 {
                    pairs.push([a, b]);
                }
            }
        }
        if topology::is_connected(count, &pairs) {
            return pairs;
        }
    }
}

const LIFE_MEAN: f64 = 500.0;

/// Why a case cannot be drawn.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CaseError {
    /// The arrival rate is out of range.
    #[error("the rate of arrivals is {eta}; must be {ETA_MIN} to {ETA_MAX}")]
    Eta {
        /// The arrival rate of the setting, requests per unit of time.
        eta: f64,
    },
    /// The substrate that was drawn at random violates a limit.
    #[error("the substrate: {0}")]
    Substrate(#[from] SubstrateError),
    /// A request that was drawn at random violates a limit.
    #[error("a request: {0}")]
    Request(#[from] RequestError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(topology: Topology, eta: f64, seed: u64) -> Case {
        let setting = Setting {
            topology,
            eta,
            requests: 1000,
        };
        Case::draw(setting, seed).unwrap()
    }

    #[test]
    fn same_seed_gives_the_same_case() {
        let [a, b, c] = [7, 7, 8].map(|seed| case(Topology::Wx100, 0.14, seed));
        let requests = |case: &Case| -> Vec<Request> {
            let arrivals = case.arrivals.iter();
            arrivals.map(|arrival| arrival.request.clone()).collect()
        };
        assert_eq!(a.substrate, b.substrate);
        assert_eq!(requests(&a), requests(&b));
        assert_ne!(a.substrate, c.substrate);
        assert_ne!(requests(&a), requests(&c));
    }

    #[test]
    fn amounts_have_the_published_ranges_and_means() {
        let case = case(Topology::Wx100, 0.14, 3);
        let mean = |values: &[u64]| values.iter().sum::<u64>() as f64 / values.len() as f64;
        let requests = || case.arrivals.iter().map(|arrival| &arrival.request);
        let sizes: Vec<u64> = requests()
            .map(|request| request.nodes().len() as u64)
            .collect();
        assert_eq!(sizes.iter().min(), Some(&2));
        assert_eq!(sizes.iter().max(), Some(&10));
        assert!((mean(&sizes) - 6.0).abs() < 0.3, "{}", mean(&sizes));
        let cpu: Vec<u64> = requests()
            .flat_map(|request| request.nodes())
            .map(|node| node.cpu)
            .collect();
        assert_eq!(cpu.iter().max(), Some(&20));
        assert!((mean(&cpu) - 10.0).abs() < 0.5, "{}", mean(&cpu));
        let rates: Vec<u64> = requests()
            .flat_map(|request| request.links())
            .map(|link| link.rate)
            .collect();
        assert_eq!(rates.iter().max(), Some(&50));
        assert!((mean(&rates) - 25.0).abs() < 1.0, "{}", mean(&rates));
        let lives: f64 = case
            .arrivals
            .iter()
            .map(|arrival| arrival.life.as_units())
            .sum();
        assert!((lives / 1000.0 - 500.0).abs() < 60.0, "{lives}");
        let last = case.arrivals[999].at.as_units();
        assert!((last / 1000.0 - 1.0 / 0.14).abs() < 0.5, "{last}");
        let hosts = case.substrate.hosts();
        assert!(hosts.iter().all(|host| (50..=100).contains(&host.cpu)));
        let links = case.substrate.links();
        assert!(links.iter().all(|link| (50..=100).contains(&link.rate)));
    }

    #[test]
    fn rate_of_arrivals_beyond_its_bounds_is_refused() {
        for eta in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-5] {
            let setting = Setting {
                topology: Topology::Geant,
                eta,
                requests: 1,
            };
            let error = Case::draw(setting, 1).unwrap_err();
            assert!(error.to_string().contains("0.0001 to 1000"), "{error}");
        }
    }
}
