//! The measurements of publications on RINA, compared with what the kernel offers. The names of the
//! cases are the numbers of the publications' figures.
//!
//! Each case builds its systems as network namespaces or VMs, measures, and removes them. All
//! systems of a case are measured one right after the other, and everything is repeated, so that a
//! disturbance of the machine affects all alike.

mod client;
mod fig16_12;
mod fig16_14;
mod fig16_15;
mod fig4;
mod goal;
mod impaired;
mod plots;
mod request;
pub mod tables;

pub use goal::Goal;
pub use request::{Measurement, Request};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use carina_measure::ratio::Ratio;
use carina_measure::results::{Metric, Results, Samples, machine};
use carina_measure::trial::job::Direction;

use crate::Progress;
use crate::error::Result;
use crate::peer::app_name;
use fig4::Hosts;
use request::FlowTarget;

/// A published measurement that the benchmark repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    /// VM to VM on one host
    Fig4b,
    /// VM to VM on two hosts
    Fig4c,
    /// Round-trip time by number of hops
    Fig1612,
    /// Cost of each normal DIF, host to host over Ethernet
    Fig1614,
    /// A server that moves
    Fig1615,
    /// A network that loses, delays, reorders and duplicates frames
    Impaired,
}

impl Case {
    /// The publications' measurements that the benchmark repeats.
    pub const ALL: [Case; 6] = [
        Case::Fig4b,
        Case::Fig4c,
        Case::Fig1612,
        Case::Fig1614,
        Case::Fig1615,
        Case::Impaired,
    ];

    /// Name of the case in the results.
    pub fn name(self) -> &'static str {
        match self {
            Case::Fig4b => Hosts::One.case(),
            Case::Fig4c => Hosts::Two.case(),
            Case::Fig1612 => fig16_12::CASE,
            Case::Fig1614 => fig16_14::CASE,
            Case::Fig1615 => fig16_15::CASE,
            Case::Impaired => impaired::CASE,
        }
    }

    /// The systems of the case, in the order of the tables.
    pub fn systems(self) -> &'static [&'static str] {
        match self {
            Case::Fig4b | Case::Fig4c => &fig4::SYSTEMS,
            Case::Fig1612 => &fig16_12::SYSTEMS,
            Case::Fig1614 => &fig16_14::SYSTEMS,
            Case::Fig1615 => &fig16_15::SYSTEMS,
            Case::Impaired => &impaired::SYSTEMS,
        }
    }

    fn run(self, options: &PaperOptions) -> Result<CaseResults> {
        match self {
            Case::Fig4b => fig4::run(options, Hosts::One),
            Case::Fig4c => fig4::run(options, Hosts::Two),
            Case::Fig1612 => fig16_12::run(options),
            Case::Fig1614 => fig16_14::run(options),
            Case::Fig1615 => fig16_15::run(options),
            Case::Impaired => impaired::run(options),
        }
    }

    /// Draws the figure of the case. Returns false if nothing of it was measured.
    fn draw(self, results: &Results, path: &Path) -> Result<bool> {
        match self {
            Case::Fig1612 => fig16_12::draw(&results.rows, path),
            Case::Fig1615 => fig16_15::draw(&results.rows, path),
            Case::Impaired => impaired::draw(&results.rows, path),
            Case::Fig4b | Case::Fig4c | Case::Fig1614 => {
                tables::draw_goodput(results, self.name(), path)
            }
        }
    }

    fn goals(self, found: &CaseResults) -> Vec<Goal> {
        match self {
            Case::Fig4b => fig4::goals(found, Hosts::One),
            Case::Fig4c => fig4::goals(found, Hosts::Two),
            Case::Fig1614 => fig16_14::goals(found),
            Case::Fig1612 | Case::Fig1615 | Case::Impaired => Vec::new(),
        }
    }
}

/// Which published measurements to repeat, with which SDU sizes, for how long, and how often.
#[derive(Debug, Clone)]
pub struct PaperOptions {
    /// The published measurements to repeat.
    pub cases: Vec<Case>,
    /// Number of runs of each measurement.
    pub runs: usize,
    /// Duration of each measurement in nanoseconds.
    pub time_ns: u64,
    /// SDU sizes in bytes to measure; if empty, each figure's default sizes.
    pub sizes: Vec<u64>,
    /// The program to install in guests; `None` for this program.
    pub guest_program: Option<PathBuf>,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// The samples of one case, with notes, further tables and failures.
#[derive(Debug, Default)]
pub struct CaseResults {
    /// The measured samples of the case.
    pub samples: Samples,
    /// Notes that a reader needs to judge the figures.
    pub notes: Vec<String>,
    /// Further tables of the case, as text.
    pub text: String,
    /// Measurements that failed, each with the reason.
    pub failures: Vec<String>,
    /// Goodput by SDU size, system and run, for ratios within the same run.
    goodput: BTreeMap<(u64, String, usize), f64>,
}

/// The results of all cases that were measured, with goals and tables.
#[derive(Debug)]
pub struct PaperResults {
    /// The rows of all cases.
    pub results: Results,
    /// The goals, and whether they are reached.
    pub goals: Vec<Goal>,
    /// Tables that `results` does not contain, as text: one string for each case that has such
    /// tables. The report prints them below the tables of `results`.
    pub texts: Vec<String>,
}

/// Runs all cases. A case that fails is reported with its logs as progress, and is named in the
/// results.
pub fn run(options: &PaperOptions) -> PaperResults {
    let mut results = Results {
        bench: "paper".to_owned(),
        machine: machine(),
        notes: Vec::new(),
        rows: Vec::new(),
        factors: Vec::new(),
        failures: Vec::new(),
    };
    let (mut goals, mut texts) = (Vec::new(), Vec::new());
    for case in &options.cases {
        let before = load();
        options
            .progress
            .step(format!("{}: load {before}", case.name()));
        // If this case fails, the other cases are still reported.
        let found = match case.run(options) {
            Ok(found) => found,
            Err(error) => {
                options.progress.step(format!("{}: {error}", case.name()));
                results.failures.push(format!("{}: {error}", case.name()));
                continue;
            }
        };
        results.rows.extend(found.samples.rows());
        results.failures.extend(
            found
                .failures
                .iter()
                .map(|failure| format!("{}: {failure}", case.name())),
        );
        goals.extend(case.goals(&found));
        let name = case.name();
        let notes = found
            .notes
            .into_iter()
            .map(|note| format!("{name}: {note}"));
        results.notes.extend(notes);
        let after = load();
        let note =
            format!("{name}: load average (1, 5, 15 minutes) before {before}, after {after}");
        results.notes.push(note);
        texts.extend((!found.text.is_empty()).then_some(found.text));
    }
    PaperResults {
        results,
        goals,
        texts,
    }
}

/// Load average of the machine, because other processes disturb measurements.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

impl CaseResults {
    /// Records a failed measurement.
    fn fail(&mut self, failure: String, progress: Progress) {
        progress.step(format!("FAILED: {failure}"));
        self.failures.push(failure);
    }

    /// Adds the measurements of one run, and returns whether there are any. A run that failed as a
    /// whole is not repeated; the results of the runs before it count.
    fn add_run(
        &mut self,
        case: &str,
        run: usize,
        measured: Result<Vec<Measurement>>,
        progress: Progress,
    ) -> bool {
        match measured {
            Ok(measurements) => {
                self.add(case, run, &measurements, progress);
                true
            }
            Err(error) => {
                self.fail(format!("run {run}: {error}"), progress);
                false
            }
        }
    }

    /// Adds the measurements of one run.
    fn add(&mut self, case: &str, run: usize, measurements: &[Measurement], progress: Progress) {
        for measurement in measurements {
            let (system, sdu) = (&measurement.system, measurement.sdu);
            let Some(trial) = &measurement.trial else {
                let why = measurement.failure.as_deref().unwrap_or("no reason given");
                self.fail(
                    format!("run {run}, {system} with SDUs of {sdu} bytes: {why}"),
                    progress,
                );
                continue;
            };
            let seen = trial.receiver();
            let samples = &mut self.samples;
            let mut put = |metric, value| samples.add(case, sdu, system, metric, value);
            if trial.direction == Direction::Echo {
                if let Some(rtt) = &seen.rtt_us {
                    put(Metric::RttUs, rtt.p50);
                }
            } else {
                put(Metric::GoodputMbps, seen.goodput_mbps());
                self.goodput
                    .insert((sdu, system.clone(), run), seen.goodput_mbps());
                put(Metric::MsgsPerS, seen.sdus_per_s());
                let lost = trial.lost() as f64 / trial.sender().sent.max(1) as f64;
                put(Metric::LossPercent, 100.0 * lost);
            }
            put(Metric::CpuNsPerSdu, trial.cpu_ns_per_sdu());
        }
    }

    /// The ratios of the goodputs of two systems within the same runs, at each SDU size.
    fn ratios(&self, over: &str, under: &str) -> Vec<(u64, Ratio)> {
        let mut pairs: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sdu, system, run), goodput) in &self.goodput {
            let other = self.goodput.get(&(*sdu, under.to_owned(), *run));
            if let Some(other) = other.filter(|_| system == over) {
                pairs.entry(*sdu).or_default().push((*goodput, *other));
            }
        }
        let ratio = |(sdu, pairs)| Some((sdu, Ratio::of(pairs)?));
        pairs.into_iter().filter_map(ratio).collect()
    }
}

/// The sizes to measure: the sizes given in the options, or else the figure's default sizes.
fn sizes_or(options: &PaperOptions, figure: &[u64]) -> Vec<u64> {
    if options.sizes.is_empty() {
        figure.to_vec()
    } else {
        options.sizes.clone()
    }
}

/// A request with what all cases have in common.
fn request(options: &PaperOptions, peer: &str, control: FlowTarget) -> Result<Request> {
    Ok(Request {
        peer: app_name(peer)?,
        control,
        systems: Vec::new(),
        sizes: Vec::new(),
        direction: Direction::Forward,
        time_ns: options.time_ns,
        count: 0,
        verify: false,
    })
}
