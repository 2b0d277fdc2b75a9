//! Carina's embedder, which places nodes and links together.
//!
//! A host is never rated without regard to where the node's neighbours are. From each of several
//! starts the placement grows node by node (`growth`): the next node goes to the host from which
//! the links to its placed neighbours cost least, and these links are routed at once. The cheapest
//! placement of all starts is then improved by moving and swapping nodes (`improvement`).

mod growth;
mod improvement;

use std::cmp::Reverse;

use crate::attempt::Attempt;
use crate::embedder::{Embedder, Refusal};
use crate::embedding::Embedding;
use crate::id::NodeId;
use crate::joint::growth::Growth;
use crate::request::{Request, Sharing};
use crate::residual::Residual;

/// Carina's embedder. It is deterministic: the same residual and request give the same embedding.
#[derive(Clone, Copy, Debug)]
pub struct Joint {
    /// Largest number of hosts that are tried for the first node, at least 1.
    pub starts: usize,
    /// Largest number of hosts that are tried for each further node, at least 1.
    pub candidates: usize,
    /// Largest number of rounds of moving and swapping nodes; 0: none.
    pub rounds: usize,
    /// Whether to return the first placement found, for callers that only ask whether a request
    /// fits.
    pub takes_first: bool,
}

impl Joint {
    /// An embedder that places the same requests as the default one, but faster, because it does
    /// not look for the cheapest placement.
    #[must_use]
    pub fn first() -> Joint {
        Joint {
            takes_first: true,
            ..Joint::default()
        }
    }
}

impl Default for Joint {
    fn default() -> Joint {
        Joint {
            starts: 100,
            candidates: 8,
            rounds: 6,
            takes_first: false,
        }
    }
}

impl Embedder for Joint {
    fn embed(&mut self, residual: &Residual, request: &Request) -> Result<Embedding, Refusal> {
        let mut attempt = Attempt::new(residual, request);
        for node in (0..request.nodes().len()).map(NodeId::of) {
            if !(0..attempt.hosts()).any(|host| attempt.accepts(node, host)) {
                return Err(Refusal::NoHost { node });
            }
        }
        let strengths = strengths(residual);
        let mut growth = Growth::new(residual, request, &strengths, self.candidates, None);
        let mut best = None;
        self.grow(&mut attempt, &mut growth, self.starts, &mut best);
        if self.takes_first
            && let Some((_, embedding)) = best
        {
            return Ok(embedding);
        }
        let substrate = residual.substrate();
        if best.is_none() || substrate.price_min() < substrate.price_max() {
            // Other orders are tried, because the usual one may be unfavourable, or may split a
            // request badly among providers.
            let usual = growth.first();
            let others = (0..request.nodes().len()).map(NodeId::of);
            let starts = self.starts / ORDERS_MAX;
            for first in others.filter(|first| *first != usual).take(ORDERS_MAX) {
                if self.takes_first && best.is_some() {
                    break;
                }
                let first = Some(first);
                let mut other = Growth::new(residual, request, &strengths, self.candidates, first);
                self.grow(&mut attempt, &mut other, starts, &mut best);
            }
        }
        let Some((cost, embedding)) = best else {
            let node = growth.farthest();
            return Err(Refusal::NoPlace { node });
        };
        if self.takes_first {
            return Ok(embedding);
        }
        let is_best = cost <= growth.cost_min();
        let rounds = if is_best { 0 } else { self.rounds };
        Ok(improvement::improve(&mut attempt, embedding, rounds))
    }
}

impl Joint {
    /// Grows placements from several starts, and keeps the cheapest one in `best`.
    fn grow(
        &self,
        attempt: &mut Attempt,
        growth: &mut Growth,
        starts_max: usize,
        best: &mut Option<(u128, Embedding)>,
    ) {
        for start in starts(attempt, growth, starts_max) {
            let bound = best.as_ref().map_or(u128::MAX, |(cost, _)| *cost);
            if bound <= growth.cost_min() {
                return;
            }
            if growth.grow(attempt, start, bound)
                && let Some(embedding) = attempt.embedding()
            {
                *best = Some((attempt.cost(), embedding));
                if self.takes_first {
                    return;
                }
            }
        }
    }
}

/// The hosts that suit the first node, sorted by falling free rate around them.
fn starts(attempt: &Attempt, growth: &Growth, count_max: usize) -> Vec<u32> {
    let can = |host: &u32| attempt.accepts(growth.first(), *host);
    let mut hosts: Vec<u32> = (0..attempt.hosts()).filter(can).collect();
    hosts.sort_by_key(|host| Reverse(growth.strength(*host)));
    hosts.truncate(count_max.max(1));
    hosts
}

/// For each host, the sum of the free rates of its links.
fn strengths(residual: &Residual) -> Vec<u64> {
    let substrate = residual.substrate();
    let strength = |host: u32| {
        let rates = substrate.beside(host).iter();
        let rates = rates.map(|beside| residual.rates()[beside.link as usize]);
        rates.fold(0, u64::saturating_add)
    };
    (0..residual.hosts().len() as u32).map(strength).collect()
}

/// The lowest price of a unit of rate: zero if a link may stay within a host.
fn price_min(residual: &Residual, request: &Request) -> u128 {
    match request.sharing() {
        Sharing::Never => u128::from(residual.substrate().price_min()),
        Sharing::UnlessApart => 0,
    }
}

/// Number of other nodes that are tried as the first one if the usual first node does not succeed.
const ORDERS_MAX: usize = 8;
