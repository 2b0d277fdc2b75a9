//! Histories of networks: samples of states and counters, as many as there is room for.
//!
//! Recent samples are about a second apart, or less if something has changed. When there is no room
//! left, every second sample of the older half is removed, so that old times remain covered, at
//! larger distances.

use std::collections::VecDeque;
use std::mem::size_of;
use std::sync::Arc;

use carina_vnet::host_part::{LinkState, NodeState};
use serde::Serialize;

use carina_vnet::impairment::LinkImpairment;
use carina_vnet::report::{Passed, VnetReport, VnetState};

/// The recorded samples of a network: its states and counters at several times.
#[derive(Debug)]
pub struct History {
    /// The report without what changes from sample to sample.
    shape: Arc<VnetReport>,
    samples: VecDeque<Sample>,
}

/// The state of a network at one time.
#[derive(Clone, Debug)]
struct Sample {
    at_ms: u64,
    shape: Arc<VnetReport>,
    state: VnetState,
    obstacles: Vec<String>,
    nodes: Vec<(NodeState, bool)>,
    links: Vec<LinkSample>,
}

#[derive(Clone, Debug, PartialEq)]
struct LinkSample {
    state: LinkState,
    rtt_ns: Option<u64>,
    passed: [Passed; 2],
    impairment: Option<Box<LinkImpairment>>,
}

/// When a network's state was recorded, and in which state the network was then.
#[derive(Clone, Debug, Serialize)]
pub struct HistoryReport {
    /// The current time, in ms since the agent created the network or took it over (on the page of
    /// a VNO: since its process learned of the network).
    pub now_ms: u64,
    /// The samples, oldest first.
    pub samples: Vec<SampleReport>,
}

/// The time and state of a sample.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SampleReport {
    /// Time of the sample, in ms since the agent created the network or took it over (on the page
    /// of a VNO: since its process learned of the network).
    pub at_ms: u64,
    /// State of the network at that time.
    pub state: VnetState,
}

/// The state of a network at an earlier time.
#[derive(Clone, Debug, Serialize)]
pub struct Moment {
    /// Time of the state, in ms since the agent created the network or took it over (on the page of
    /// a VNO: since its process learned of the network).
    pub at_ms: u64,
    /// The report at that time.
    pub report: VnetReport,
    /// The traffic of each link, in the order of the report's links, in both directions.
    pub rates: Vec<[LinkRate; 2]>,
}

/// The traffic of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LinkRate {
    /// Rate, bits a second.
    pub bps: f64,
    /// Frames per second that were dropped, for any reason.
    pub dropped: f64,
}

impl History {
    /// A history of a network without samples yet.
    pub fn new(report: &VnetReport) -> History {
        History {
            shape: Arc::new(shape_of(report)),
            samples: VecDeque::new(),
        }
    }

    /// Whether this is the history of this network, and not of an earlier one of the same name.
    pub fn is_of(&self, report: &VnetReport) -> bool {
        self.shape.vnet == report.vnet
    }

    /// Adds a sample, unless nothing has changed for a while; `bytes_max` bounds the memory of all
    /// samples.
    pub fn note(&mut self, at_ms: u64, report: VnetReport, bytes_max: usize) {
        if !has_shape(&self.shape, &report) {
            self.shape = Arc::new(shape_of(&report));
        }
        let sample = Sample {
            at_ms,
            shape: Arc::clone(&self.shape),
            state: report.state,
            obstacles: report.obstacles,
            nodes: report
                .nodes
                .into_iter()
                .map(|node| (node.state, node.is_console_ready))
                .collect(),
            links: report
                .links
                .into_iter()
                .map(|link| LinkSample {
                    state: link.state,
                    rtt_ns: link.rtt_ns,
                    passed: link.passed,
                    impairment: (!link.impairment.is_none()).then(|| Box::new(link.impairment)),
                })
                .collect(),
        };
        if let Some(last) = self.samples.back()
            && at_ms.saturating_sub(last.at_ms) < EVERY_MS
            && sample.looks_like(last)
        {
            return;
        }
        let samples_max = (bytes_max / sample.bytes()).clamp(SAMPLES_MIN, SAMPLES_MAX);
        while self.samples.len() >= samples_max {
            self.thin();
        }
        self.samples.push_back(sample);
    }

    /// Removes every second sample of the older half.
    fn thin(&mut self) {
        let half = self.samples.len() / 2;
        let mut number = 0;
        self.samples.retain(|_| {
            number += 1;
            number > half || number % 2 == 1
        });
    }

    /// The samples later than `since_ms`, oldest first; all samples if `since_ms` is 0. Both times
    /// are in ms since the agent created the network or took it over (on the page of a VNO: since
    /// its process learned of the network).
    pub fn report(&self, now_ms: u64, since_ms: u64) -> HistoryReport {
        let samples = self.samples.iter();
        let samples = samples.filter(|sample| since_ms == 0 || sample.at_ms > since_ms);
        let short = |sample: &Sample| SampleReport {
            at_ms: sample.at_ms,
            state: sample.state,
        };
        HistoryReport {
            now_ms,
            samples: samples.map(short).collect(),
        }
    }

    /// The state of the network at a time, from the last sample before it; `None` if there is no
    /// sample.
    pub fn at(&self, at_ms: u64) -> Option<Moment> {
        let after = self.samples.partition_point(|sample| sample.at_ms <= at_ms);
        let place = after.saturating_sub(1);
        let sample = self.samples.get(place)?;
        // Two samples that are too close together give no reliable rate.
        let long_before = self
            .samples
            .partition_point(|earlier| earlier.at_ms + RATES_MS <= sample.at_ms);
        let before = long_before.checked_sub(1).or(place.checked_sub(1));
        let before = before.and_then(|place| self.samples.get(place));
        Some(Moment {
            at_ms: sample.at_ms,
            report: sample.whole(),
            rates: sample.rates(before),
        })
    }
}

impl Sample {
    /// Approximate size of the sample, bytes.
    fn bytes(&self) -> usize {
        let nodes = self.nodes.len() * size_of::<(NodeState, bool)>();
        size_of::<Sample>() + nodes + self.links.len() * size_of::<LinkSample>()
    }

    /// Whether everything but counters and round trips is equal.
    fn looks_like(&self, other: &Sample) -> bool {
        let look = |link: &LinkSample| (link.state.clone(), link.impairment.clone());
        let is_alike = Arc::ptr_eq(&self.shape, &other.shape)
            && self.state == other.state
            && self.obstacles == other.obstacles
            && self.nodes == other.nodes;
        is_alike && self.links.iter().map(look).eq(other.links.iter().map(look))
    }

    fn whole(&self) -> VnetReport {
        let mut report = (*self.shape).clone();
        report.state = self.state;
        report.obstacles.clone_from(&self.obstacles);
        for (node, (state, is_console_ready)) in report.nodes.iter_mut().zip(&self.nodes) {
            node.state = state.clone();
            node.is_console_ready = *is_console_ready;
        }
        for (link, sample) in report.links.iter_mut().zip(&self.links) {
            link.state = sample.state.clone();
            link.rtt_ns = sample.rtt_ns;
            link.passed = sample.passed;
            link.impairment = sample.impairment.as_deref().copied().unwrap_or_default();
        }
        report
    }

    fn rates(&self, before: Option<&Sample>) -> Vec<[LinkRate; 2]> {
        let shape = |sample: &Sample| Arc::clone(&sample.shape);
        let links = self.shape.links.iter().zip(&self.links);
        let rates = links.map(|(link, now)| {
            let was = before.and_then(|before| {
                let same = shape(before).links.iter().position(|candidate| {
                    // A link with other ends is a different link, even with the same number.
                    (candidate.number, &candidate.ends) == (link.number, &link.ends)
                });
                let seconds = (self.at_ms - before.at_ms) as f64 / 1000.0;
                Some((before.links[same?].passed, seconds))
            });
            let rate = |side: usize| match was {
                Some((was, seconds)) if seconds > 0.0 => {
                    rate_between(was[side], now.passed[side], seconds)
                }
                _ => LinkRate::default(),
            };
            [rate(0), rate(1)]
        });
        rates.collect()
    }
}

fn rate_between(was: Passed, now: Passed, seconds: f64) -> LinkRate {
    let more = |was: u64, now: u64| now.saturating_sub(was) as f64 / seconds;
    LinkRate {
        bps: more(was.bytes, now.bytes) * 8.0,
        dropped: more(was.dropped + was.lost, now.dropped + now.lost),
    }
}

/// A report without what changes from sample to sample.
fn shape_of(report: &VnetReport) -> VnetReport {
    let mut shape = report.clone();
    shape.obstacles.clear();
    for node in &mut shape.nodes {
        node.state = NodeState::default();
    }
    for link in &mut shape.links {
        link.state = LinkState::default();
    }
    shape
}

fn has_shape(shape: &VnetReport, report: &VnetReport) -> bool {
    let nodes = |report: &VnetReport| report.nodes.len();
    let same_head = (shape.generation, nodes(shape), shape.links.len())
        == (report.generation, nodes(report), report.links.len());
    let same_times = shape.ready_after_ms == report.ready_after_ms && shape.phases == report.phases;
    let same_nodes = shape.nodes.iter().zip(&report.nodes).all(|(one, other)| {
        (&one.name, one.kind, &one.interfaces) == (&other.name, other.kind, &other.interfaces)
    });
    let same_links = shape.links.iter().zip(&report.links).all(|(one, other)| {
        (one.number, &one.ends, one.rate) == (other.number, &other.ends, other.rate)
    });
    same_head && same_times && same_nodes && same_links
}

/// Time between two samples while nothing changes, ms.
const EVERY_MS: u64 = 950;
/// The shortest time over which rates are computed, ms.
const RATES_MS: u64 = 500;
/// Least and largest number of samples of a network, whatever its size.
const SAMPLES_MIN: usize = 32;
const SAMPLES_MAX: usize = 2048;

#[cfg(test)]
mod tests;
