//! Runs a case: requests arrive, are placed or refused, live, and return their resources.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::cases::{Arrival, Case, Tick};
use crate::embedder::Refusal;
use crate::embedding::Embedding;
use crate::request::Request;
use crate::residual::{Misfit, Residual};

/// Simulates a case: passes its requests to the caller in the order of their arrival, and keeps the
/// resources of each placed request until its lifetime ends. A placed request never moves.
#[derive(Clone, Debug)]
pub struct Online<'c> {
    arrivals: &'c [Arrival],
    residual: Residual,
    next: usize,
    /// Index of the request that the embedder must place or refuse now; `None` before the
    /// simulation has asked, and after the answer.
    asked: Option<usize>,
    /// End times of the requests that are placed now, each with the index of its request; the
    /// earliest is on top.
    ends: BinaryHeap<Reverse<(Tick, usize)>>,
    living: Vec<Option<Embedding>>,
    now: Tick,
    tally: Tally,
    /// The processors and the rates that are in use now.
    taken: [u64; 2],
}

/// Sums over the requests of one simulation that the embedder has already placed or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// Number of requests that arrived and were placed or refused.
    pub arrived: usize,
    /// Number of requests that were placed.
    pub accepted: usize,
    /// Sum of revenue times lifetime of the placed requests.
    pub revenue: f64,
    /// Sum of cost times lifetime of the placed requests.
    pub cost: f64,
    /// Processor capacity in use, integrated over time.
    pub cpu_time: f64,
    /// Rate in use on all links, integrated over time.
    pub rate_time: f64,
    /// Time at which the last request arrived: the length of the simulation.
    pub end: Tick,
}

impl Tally {
    /// Percentage of the requests that were placed; 0 if none arrived.
    #[must_use]
    pub fn acceptance_percent(&self) -> f64 {
        100.0 * ratio(self.accepted as f64, self.arrived as f64)
    }

    /// Long-term revenue over cost, each weighted by lifetime.
    #[must_use]
    pub fn revenue_to_cost(&self) -> f64 {
        ratio(self.revenue, self.cost)
    }

    /// Revenue times lifetime of placed requests, per unit of time of the run.
    #[must_use]
    pub fn average_revenue(&self) -> f64 {
        ratio(self.revenue, self.end.as_units())
    }
}

fn ratio(part: f64, all: f64) -> f64 {
    if all > 0.0 { part / all } else { 0.0 }
}

impl<'c> Online<'c> {
    /// Prepares a run of a case; [`Online::poll_request`] returns its first request.
    #[must_use]
    pub fn new(case: &'c Case) -> Online<'c> {
        Online {
            arrivals: &case.arrivals,
            residual: Residual::new(case.substrate.clone()),
            next: 0,
            asked: None,
            ends: BinaryHeap::new(),
            living: vec![None; case.arrivals.len()],
            now: Tick::default(),
            tally: Tally::default(),
            taken: [0; 2],
        }
    }

    /// The next request, after all requests that ended before its arrival have returned their
    /// resources; `None` after the last request. It must be answered before the next call.
    #[must_use]
    pub fn poll_request(&mut self) -> Option<&'c Request> {
        let arrival = self.arrivals.get(self.next)?;
        while let Some(Reverse((end, index))) = self.ends.peek().copied() {
            if end > arrival.at {
                break;
            }
            self.ends.pop();
            self.advance(end);
            self.end(index);
        }
        self.advance(arrival.at);
        self.tally.end = arrival.at;
        self.tally.arrived += 1;
        self.asked = Some(self.next);
        self.next += 1;
        Some(&arrival.request)
    }

    /// Processes the embedder's answer to the request that [`Online::poll_request`] returned last:
    /// takes the resources of an embedding, or counts a refusal.
    ///
    /// # Errors
    /// The embedding does not fit, or violates a constraint of the request.
    ///
    /// # Panics
    /// If no request waits for an answer.
    pub fn handle_answer(&mut self, answer: Result<Embedding, Refusal>) -> Result<(), Misfit> {
        let index = self.asked.take().expect("an answer follows a request");
        let Ok(embedding) = answer else {
            return Ok(());
        };
        let arrival = &self.arrivals[index];
        self.residual.take(&arrival.request, &embedding)?;
        let cost = embedding.cost(self.residual.substrate(), &arrival.request);
        self.tally.accepted += 1;
        self.tally.revenue += arrival.request.revenue() as f64 * arrival.life.as_units();
        self.tally.cost += cost as f64 * arrival.life.as_units();
        let needs = needs(&arrival.request, &embedding);
        self.taken = [self.taken[0] + needs[0], self.taken[1] + needs[1]];
        let end = Tick(arrival.at.0.saturating_add(arrival.life.0));
        self.ends.push(Reverse((end, index)));
        self.living[index] = Some(embedding);
        Ok(())
    }

    /// The resources that are free now.
    #[must_use]
    pub fn residual(&self) -> &Residual {
        &self.residual
    }

    /// The sums over all requests that the embedder has already placed or refused.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Percentages of processors and of rates in use, averaged over time.
    #[must_use]
    pub fn utilisation_percent(&self) -> [f64; 2] {
        let substrate = self.residual.substrate();
        let cpu: u64 = substrate.hosts().iter().map(|host| host.cpu).sum();
        let rate: u64 = substrate.links().iter().map(|link| link.rate).sum();
        let time = self.tally.end.as_units();
        [
            100.0 * ratio(self.tally.cpu_time, cpu as f64 * time),
            100.0 * ratio(self.tally.rate_time, rate as f64 * time),
        ]
    }

    fn advance(&mut self, to: Tick) {
        let time = Tick(to.0.saturating_sub(self.now.0)).as_units();
        self.tally.cpu_time += self.taken[0] as f64 * time;
        self.tally.rate_time += self.taken[1] as f64 * time;
        self.now = to;
    }

    fn end(&mut self, index: usize) {
        let Some(embedding) = self.living[index].take() else {
            return;
        };
        let request = &self.arrivals[index].request;
        let needs = needs(request, &embedding);
        self.taken = [self.taken[0] - needs[0], self.taken[1] - needs[1]];
        let given_back = self.residual.give_back(request, &embedding);
        given_back.expect("it was taken when the request was accepted");
    }
}

/// The processors, and the sum of rates on all links, that an embedding needs.
fn needs(request: &Request, embedding: &Embedding) -> [u64; 2] {
    let cpu = request.nodes().iter().map(|node| node.cpu).sum();
    let both = request.links().iter().zip(&embedding.paths);
    let rate = both.map(|(link, path)| link.rate * path.len() as u64).sum();
    [cpu, rate]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::{Setting, Topology};
    use crate::embedder::Embedder;
    use crate::id::NodeId;
    use crate::joint::Joint;

    fn geant() -> Case {
        let setting = Setting {
            topology: Topology::Geant,
            eta: 0.016,
            requests: 100,
        };
        Case::draw(setting, 1).unwrap()
    }

    #[test]
    fn all_is_free_again_when_all_have_ended() {
        let case = geant();
        let mut online = Online::new(&case);
        let mut joint = Joint::default();
        while let Some(request) = online.poll_request() {
            let answer = joint.embed(online.residual(), request);
            online.handle_answer(answer).unwrap();
        }
        assert!(online.tally().accepted > 50, "{:?}", online.tally());
        assert_eq!(online.tally().arrived, 100);
        assert!(online.utilisation_percent()[0] > 0.0);
        while let Some(Reverse((_, index))) = online.ends.pop() {
            online.end(index);
        }
        assert_eq!(online.residual, Residual::new(case.substrate.clone()));
        assert_eq!(online.taken, [0; 2]);
    }

    #[test]
    fn refused_requests_take_nothing() {
        let case = geant();
        let mut online = Online::new(&case);
        while online.poll_request().is_some() {
            let refusal = Refusal::NoHost { node: NodeId(0) };
            online.handle_answer(Err(refusal)).unwrap();
        }
        assert_eq!(online.tally().acceptance_percent(), 0.0);
        assert_eq!(online.tally().revenue_to_cost(), 0.0);
        assert_eq!(online.utilisation_percent(), [0.0, 0.0]);
    }
}
