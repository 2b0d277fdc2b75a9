//! The measurements of the papers on RINA, side by side with what the kernel offers.
//!
//! Each case builds its systems as network namespaces or VMs, measures, and takes them away. All
//! systems of a case are measured one right after the other and everything is repeated, so that
//! what disturbs the machine disturbs all alike.

pub mod fig16_12;
pub mod fig16_14;
pub mod fig16_15;
pub mod fig4;
pub mod figures;
pub mod guest;
pub mod impaired;
pub mod order;
pub mod place;
pub mod show;
pub mod verdict;

use std::path::{Path, PathBuf};

use carina_measure::results::{Metric, Results, Samples, machine};
use carina_measure::trial::job::Direction;

use crate::failure::Failure;
use crate::report::progress;
use fig4::Hosts;
use order::{Finding, Order};
use verdict::Verdict;

/// A case of the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Case {
    /// VM to VM on one host
    #[value(name = "fig4b")]
    Fig4b,
    /// VM to VM on two hosts
    #[value(name = "fig4c")]
    Fig4c,
    /// Round-trip times by hops
    #[value(name = "fig16.12")]
    Fig1612,
    /// Host to host over Ethernet: what each normal DIF costs
    #[value(name = "fig16.14")]
    Fig1614,
    /// A server that moves
    #[value(name = "fig16.15")]
    Fig1615,
    /// A network that loses, delays, reorders and duplicates
    #[value(name = "impaired")]
    Impaired,
}

impl Case {
    /// All of them.
    pub const ALL: [Case; 6] = [
        Case::Fig4b,
        Case::Fig4c,
        Case::Fig1612,
        Case::Fig1614,
        Case::Fig1615,
        Case::Impaired,
    ];

    /// Its name in the results.
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

    /// Its systems in the order of the tables.
    pub fn systems(self) -> &'static [&'static str] {
        match self {
            Case::Fig4b | Case::Fig4c => &fig4::SYSTEMS,
            Case::Fig1612 => &fig16_12::SYSTEMS,
            Case::Fig1614 => &fig16_14::SYSTEMS,
            Case::Fig1615 => &fig16_15::SYSTEMS,
            Case::Impaired => &impaired::SYSTEMS,
        }
    }

    fn run(self, options: &PaperOptions) -> Result<CaseFound, Failure> {
        match self {
            Case::Fig4b => fig4::run(options, Hosts::One),
            Case::Fig4c => fig4::run(options, Hosts::Two),
            Case::Fig1612 => fig16_12::run(options),
            Case::Fig1614 => fig16_14::run(options),
            Case::Fig1615 => fig16_15::run(options),
            Case::Impaired => impaired::run(options),
        }
    }

    /// Draws the case's figure; false when nothing of it was measured.
    fn draw(self, results: &Results, path: &Path) -> Result<bool, Failure> {
        match self {
            Case::Fig1612 => fig16_12::draw(&results.rows, path),
            Case::Fig1615 => fig16_15::draw(&results.rows, path),
            Case::Impaired => impaired::draw(&results.rows, path),
            Case::Fig4b | Case::Fig4c | Case::Fig1614 => {
                show::draw_goodput(results, self.name(), path)
            }
        }
    }

    fn verdicts(self, results: &Results) -> Vec<Verdict> {
        match self {
            Case::Fig4b => fig4::verdicts(results, Hosts::One),
            Case::Fig4c => fig4::verdicts(results, Hosts::Two),
            Case::Fig1614 => fig16_14::verdicts(results),
            Case::Fig1612 | Case::Fig1615 | Case::Impaired => Vec::new(),
        }
    }
}

/// What the caller may choose.
#[derive(Debug, Clone)]
pub struct PaperOptions {
    /// The cases.
    pub cases: Vec<Case>,
    /// Repetitions.
    pub runs: usize,
    /// Time of each measurement in nanoseconds.
    pub time_ns: u64,
    /// SDU sizes in bytes; empty for those of each figure.
    pub sizes: Vec<u64>,
    /// The program to put into guests; `None` for this one.
    pub guest_program: Option<PathBuf>,
}

/// What a case has found.
#[derive(Debug, Default)]
pub struct CaseFound {
    /// The samples.
    pub samples: Samples,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// What no table of goodput shows.
    pub text: String,
}

/// Everything that was found.
#[derive(Debug)]
pub struct Found {
    /// The rows of all cases.
    pub results: Results,
    /// The goals and whether they are met.
    pub verdicts: Vec<Verdict>,
    /// What no table of goodput shows.
    pub texts: Vec<String>,
    /// Names of the cases that could not be measured.
    pub failures: Vec<&'static str>,
}

/// Measures.
///
/// A case that fails is told of, with its logs, and named in what was found.
pub fn run(options: &PaperOptions) -> Found {
    let mut results = Results {
        bench: "paper".to_owned(),
        machine: machine(),
        notes: Vec::new(),
        rows: Vec::new(),
    };
    let (mut verdicts, mut texts, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for case in &options.cases {
        let before = load();
        progress(format!("{}: load {before}", case.name()));
        // What was measured so far is worth having without this one.
        let found = match case.run(options) {
            Ok(found) => found,
            Err(failure) => {
                progress(format!("{}: {failure}", case.name()));
                failures.push(case.name());
                continue;
            }
        };
        results.rows.extend(found.samples.rows());
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
        verdicts.extend(case.verdicts(&results));
        texts.extend((!found.text.is_empty()).then_some(found.text));
    }
    Found {
        results,
        verdicts,
        texts,
        failures,
    }
}

/// The machine's load as the kernel tells it: much of it is of others when measurements are bad.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

impl CaseFound {
    /// Adds what an order has brought. A measurement that failed is told of in the notes.
    pub fn add(&mut self, case: &str, findings: &[Finding]) {
        for finding in findings {
            let (system, sdu) = (&finding.system, finding.sdu);
            let Some(trial) = &finding.trial else {
                let why = finding.failure.as_deref().unwrap_or("no reason given");
                let note = format!("FAILED: {system} with SDUs of {sdu} bytes: {why}");
                progress(&note);
                self.notes.push(note);
                continue;
            };
            let seen = trial.receiver();
            let mut put = |metric, value| self.samples.add(case, sdu, system, metric, value);
            if trial.direction == Direction::Echo {
                if let Some(rtt) = &seen.rtt_us {
                    put(Metric::RttUs, rtt.p50);
                }
            } else {
                put(Metric::GoodputMbps, seen.goodput_mbps());
                put(Metric::MsgsPerS, seen.sdus_per_s());
                let lost = trial.lost() as f64 / trial.sender().sent.max(1) as f64;
                put(Metric::LossPercent, 100.0 * lost);
            }
            put(Metric::CpuNsPerSdu, trial.cpu_ns_per_sdu());
        }
    }
}

/// Sizes to measure: those asked for, else those of the figure.
pub fn sizes_or(options: &PaperOptions, figure: &[u64]) -> Vec<u64> {
    match options.sizes.is_empty() {
        true => figure.to_vec(),
        false => options.sizes.clone(),
    }
}

/// An order with what is common to all.
pub fn order(options: &PaperOptions, peer: &str, control: order::Way) -> Result<Order, Failure> {
    Ok(Order {
        peer: place::app_name(peer)?,
        control,
        systems: Vec::new(),
        sizes: Vec::new(),
        direction: Direction::Forward,
        time_ns: options.time_ns,
        count: 0,
        verify: false,
    })
}
