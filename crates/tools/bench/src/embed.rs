//! Measures the placement of virtual networks on a substrate, as requests come and go. Carina's
//! embedder is compared with three published ones on the same cases.
//!
//! Substrates, requests and metrics are those of *Virne: A Comprehensive Benchmark for Virtual
//! Network Embedding* (2026); `carina_embed::cases` draws them.

use std::time::Instant;

use carina_embed::Embedder;
use carina_embed::cases::{Case, Setting, Topology};
use carina_embed::joint::Joint;
use carina_embed::online::Online;
use carina_embed::ranked::{Measure, Ranked};
use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_measure::summary::Summary;

use crate::Progress;
use crate::error::Result;

/// Which substrates and arrival rates, which embedders, and how many seeds to measure.
#[derive(Debug, Clone)]
pub struct EmbedOptions {
    /// The substrates and arrival rates with which every embedder is measured.
    pub settings: Vec<Setting>,
    /// The embedders to measure, from [`SYSTEMS`].
    pub systems: Vec<System>,
    /// Number of seeds for each case: the seeds are 1 to this number.
    pub seeds: u64,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// An embedder to measure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct System {
    /// Name of the compared embedder in the results.
    pub name: &'static str,
    /// The measure by which it ranks nodes; `None` for Carina, which does not rank nodes.
    measure: Option<Measure>,
    /// Published acceptance in percent, in the order of [`DEFAULTS`]. For Carina: the required
    /// acceptance.
    published: [Option<f64>; 6],
}

impl System {
    fn embedder(self) -> Box<dyn Embedder> {
        match self.measure {
            Some(measure) => Box::new(Ranked::new(measure)),
            None => Box::new(Joint::default()),
        }
    }
}

/// The systems in the order of the tables. The published values are from table 3 of *Virne*.
pub const SYSTEMS: [System; 4] = [
    System {
        name: OURS,
        measure: None,
        published: [Some(98.0), None, Some(78.0), None, Some(80.0), Some(78.0)],
    },
    System {
        name: "grc",
        measure: Some(Measure::GlobalResourceCapacity),
        published: [Some(58.9), None, None, None, Some(36.7), Some(48.4)],
    },
    System {
        name: "nrm",
        measure: Some(Measure::NodeResource),
        published: [Some(60.7), None, None, None, Some(37.9), Some(48.3)],
    },
    System {
        name: "rw",
        measure: Some(Measure::RandomWalk),
        published: [Some(60.1), None, None, None, Some(38.7), Some(50.2)],
    },
];

/// The default substrates and arrival rates.
pub const DEFAULTS: [(Topology, f64); 6] = [
    (Topology::Wx100, 0.14),
    (Topology::Wx100, 0.2),
    (Topology::Wx100, 0.3),
    (Topology::Wx100, 0.4),
    (Topology::Geant, 0.016),
    (Topology::Brain, 0.004),
];

/// Number of requests in a published case.
pub const REQUESTS: usize = 1000;

/// Runs the benchmark on the calling thread.
///
/// # Errors
/// An arrival rate is out of range, or an embedding violates a constraint.
pub fn run(options: &EmbedOptions) -> Result<Results> {
    let mut samples = Samples::default();
    for setting in &options.settings {
        for seed in 1..=options.seeds.max(1) {
            let name = case_name(setting);
            let seeds = options.seeds.max(1);
            options
                .progress
                .step(format!("{name}: seed {seed} of {seeds}"));
            let case = Case::draw(*setting, seed)?;
            for system in &options.systems {
                measure(&case, &name, *system, &mut samples)?;
            }
        }
    }
    let mut results = Results {
        bench: "embed".to_owned(),
        machine: machine(),
        notes: notes(),
        rows: samples.rows(),
        factors: Vec::new(),
        failures: Vec::new(),
    };
    results.notes.extend(bar_notes(options, &results));
    Ok(results)
}

fn case_name(setting: &Setting) -> String {
    format!("{}/{}", setting.topology.name(), setting.eta)
}

fn measure(case: &Case, name: &str, system: System, samples: &mut Samples) -> Result<()> {
    let mut embedder = system.embedder();
    let mut online = Online::new(case);
    let mut times_ms = Vec::with_capacity(case.arrivals.len());
    while let Some(request) = online.poll_request() {
        let began = Instant::now();
        let answer = embedder.embed(online.residual(), request);
        times_ms.push(began.elapsed().as_secs_f64() * 1e3);
        online.handle_answer(answer)?;
    }
    let tally = online.tally();
    let [cpu, rate] = online.utilisation_percent();
    let times = Summary::of(&times_ms);
    let values = [
        (Metric::AcceptancePercent, tally.acceptance_percent()),
        (Metric::RevenueToCost, tally.revenue_to_cost()),
        (Metric::RevenuePerTime, tally.average_revenue()),
        (Metric::CpuUsedPercent, cpu),
        (Metric::RateUsedPercent, rate),
        (Metric::SolveMs, times.map_or(0.0, |times| times.avg)),
        (Metric::SolveP50Ms, times.map_or(0.0, |times| times.p50)),
        (Metric::SolveP99Ms, times.map_or(0.0, |times| times.p99)),
    ];
    for (metric, value) in values {
        samples.add(name, 0, system.name, metric, value);
    }
    Ok(())
}

fn notes() -> Vec<String> {
    vec![
        "a sample is a whole run of one seed; every embedding was checked before it was taken"
            .to_owned(),
        "acceptance_percent: requests that were placed, of a hundred".to_owned(),
        "revenue_to_cost: processors and rates, over processors and rates times hops, both times \
         lifetime, of what was placed"
            .to_owned(),
        "revenue_per_time: processors and rates times lifetime, by unit of time of the run"
            .to_owned(),
        "cpu_used_percent, rate_used_percent: of the whole substrate, on average over time"
            .to_owned(),
        "solve_ms: mean time for a request on one thread; p50 and p99: the time that half, and 99 \
         of 100 requests, do not exceed; baselines keep shortest paths from request to request"
            .to_owned(),
    ]
}

/// Compares the measured values with the published ones, and Carina's with the required ones.
fn bar_notes(options: &EmbedOptions, results: &Results) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (topology, eta)) in DEFAULTS.iter().enumerate() {
        let setting = options.settings.iter().find(|setting| {
            setting.topology == *topology && setting.eta == *eta && setting.requests == REQUESTS
        });
        let Some(name) = setting.map(case_name) else {
            continue;
        };
        for system in &options.systems {
            let row = results.row(&name, 0, system.name, Metric::AcceptancePercent);
            let Some((row, wanted)) = row.zip(system.published[at]) else {
                continue;
            };
            let mean = row.mean;
            lines.push(match system.measure {
                Some(_) => {
                    let is_near = (mean - wanted).abs() <= NEAR;
                    let verdict = if is_near { "within" } else { "NOT within" };
                    let name = format!("{name}: acceptance of {}", system.name);
                    format!("{name} {mean:.1} %, published {wanted} %: {verdict} {NEAR} points")
                }
                None => {
                    let verdict = if mean >= wanted {
                        "holds"
                    } else {
                        "DOES NOT HOLD"
                    };
                    format!("{name}: acceptance of {OURS} {mean:.1} %, bar {wanted} %: {verdict}")
                }
            });
        }
    }
    lines
}

/// Percentage points by which the acceptance of a published embedder may differ from the published
/// value.
const NEAR: f64 = 3.0;
