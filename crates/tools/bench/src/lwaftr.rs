//! Measures an AFTR on one core, with packets in both directions at once; DPDK's forwarding between
//! two null devices is the comparison.
//!
//! ```text
//!   Internet  source -> external |        | external -> sink
//!                                | lwaftr |
//!   B4s       source -> internal |        | internal -> sink
//! ```
//!
//! A source copies frames that were made in advance. Each flow has a frame of its own, so that with
//! many flows the frames are not all in the nearest cache. Sizes are those of frames on the IPv4
//! side.

pub mod captures;
mod load;
mod traffic;

use carina_frame::PoolConfig;
use carina_measure::results::{Factor, Metric, OURS, Results, Samples, machine};

use self::traffic::Traffic;
pub use self::traffic::{IMIX_MEAN, Load};
use crate::Options;
use crate::engine::PEER;
use crate::engine::null_devices::NullDevices;
use crate::error::Result;
use crate::failures::Failures;
use crate::one_core::OneCore;
use crate::rate::{Rate, compare_with_bars};
use crate::testpmd::{NOT_INSTALLED, Testpmd};

/// A case: its name in the results, and the measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// What the case measures.
    pub what: What,
    /// Required ratio to [`PEER`] with frames of [`SIZES`]`[0]` bytes; `None` if no ratio is
    /// required.
    pub bar: Option<f64>,
}

/// A quantity of an AFTR: the packet rate in one direction, or the time to load a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// Packets in one direction, while the same number goes in the other direction.
    Direction(Load, Direction),
    /// Time to load a configuration of a million softwires from a file of this form.
    Loading(Form),
}

/// A direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Packets from the Internet to B4s are encapsulated.
    Encap,
    /// Packets from B4s to the Internet are decapsulated.
    Decap,
}

/// Form of the configuration file that the AFTR loads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// The configuration as text.
    Text,
    /// The configuration after `carina lwaftr` has compiled it.
    Compiled,
}

/// The cases of the benchmark: rates in each direction with several loads, and the time to load a
/// configuration.
pub const CASES: [Case; 8] = [
    rate_case("few-encap", Load::Few, Direction::Encap, Some(0.1)),
    rate_case("few-decap", Load::Few, Direction::Decap, Some(0.1)),
    rate_case(
        "million-encap",
        Load::Million,
        Direction::Encap,
        Some(0.053),
    ),
    rate_case(
        "million-decap",
        Load::Million,
        Direction::Decap,
        Some(0.053),
    ),
    rate_case("imix-encap", Load::Imix, Direction::Encap, None),
    rate_case("imix-decap", Load::Imix, Direction::Decap, None),
    loading("load-text", Form::Text),
    loading("load-compiled", Form::Compiled),
];

const fn rate_case(name: &'static str, load: Load, direction: Direction, bar: Option<f64>) -> Case {
    let what = What::Direction(load, direction);
    Case { name, what, bar }
}

const fn loading(name: &'static str, form: Form) -> Case {
    Case {
        name,
        what: What::Loading(form),
        bar: None,
    }
}

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, PEER];

/// Default sizes of frames in bytes, without FCS, on the IPv4 side.
pub const SIZES: [u64; 3] = [64, 550, 1500];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); CASES.len()] = {
    let mut tables = [("", Metric::Mpps, "packets, 10^6 a second"); CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        tables[at].0 = CASES[at].name;
        if let What::Loading(_) = CASES[at].what {
            (tables[at].1, tables[at].2) = (Metric::LoadS, "seconds");
        }
        at += 1;
    }
    tables
};

/// Runs the benchmark, for both systems with the same sizes of frames. A third of the time precedes
/// each measurement, to warm up. Failed measurements are reported in addition to the samples of the
/// other systems.
///
/// # Errors
/// The system refuses something that all measurements need, or too many measurements in succession
/// fail. Without testpmd only Carina is measured, and the notes name the missing package.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let mut bench = Bench {
        options,
        peer: NullDevices::new("lwaftr")?,
        samples: Samples::default(),
        notes: Vec::new(),
        failures: Failures::new(options.progress),
    };
    let measured = bench.measure_all();
    bench.peer.give_back_cpus()?;
    measured?;
    let factors = bench.samples.factors();
    let mut notes = notes(bench.peer.cpu);
    notes.append(&mut bench.notes);
    notes.extend(judge_all(&factors));
    Ok(Results {
        bench: "lwaftr".to_owned(),
        machine: machine(),
        notes,
        rows: bench.samples.rows(),
        factors,
        failures: bench.failures.into_lines(),
    })
}

/// Judges the ratios. The required ratios apply to the shortest frames only.
fn judge_all(factors: &[Factor]) -> Vec<String> {
    let is_short = |factor: &&Factor| factor.sdu == SIZES[0];
    let (short, longer): (Vec<_>, Vec<_>) = factors.iter().partition(is_short);
    let owned = |factors: Vec<&Factor>| factors.into_iter().cloned().collect::<Vec<_>>();
    let bar = |name: &str| CASES.iter().find(|case| case.name == name)?.bar;
    let mut lines = compare_with_bars(&owned(short), PEER, Metric::Mpps, bar);
    lines.extend(compare_with_bars(
        &owned(longer),
        PEER,
        Metric::Mpps,
        |_| None,
    ));
    lines
}

struct Bench<'a> {
    options: &'a Options<Case>,
    /// DPDK's side, which also holds the choice of processors for both systems.
    peer: NullDevices,
    samples: Samples,
    notes: Vec<String>,
    failures: Failures,
}

impl Bench<'_> {
    fn measure_all(&mut self) -> Result<()> {
        for (load, size) in self.loads() {
            let traffic = Traffic::new(load, size as usize)?;
            for run in 1..=self.options.runs {
                let runs = self.options.runs;
                let what = format!("run {run} of {runs}: {load}, {size} bytes");
                self.options.progress.step(&what);
                let measured = self.measure_pair(load, size, &traffic);
                self.failures.note(&what, measured)?;
            }
        }
        self.measure_loading()
    }

    /// The loads that the cases need, each with a size of frames.
    fn loads(&self) -> Vec<(Load, u64)> {
        let is_wanted = |load: Load| {
            let mut cases = self.options.cases.iter();
            cases
                .any(|case| matches!(case.what, What::Direction(case_load, _) if case_load == load))
        };
        let of_sizes = |load| self.options.sizes.iter().map(move |size| (load, *size));
        let fixed = [Load::Few, Load::Million].into_iter().flat_map(of_sizes);
        let all = fixed.chain([(Load::Imix, IMIX_MEAN)]);
        all.filter(|(load, _)| is_wanted(*load)).collect()
    }

    fn measure_pair(&mut self, load: Load, size: u64, traffic: &Traffic) -> Result<()> {
        let time_ns = self.options.time_ns;
        let pool = PoolConfig::default();
        let mut rig = OneCore::new(&traffic.graph()?, pool)?;
        let passed = rig.measure(self.peer.cpu, time_ns)?;
        if passed.drops() > 0 {
            let (drops, name) = (passed.drops(), load.to_string());
            self.note(format!(
                "{name} at {size} bytes: {drops} frames were dropped"
            ));
        }
        let to_sink = |port: &str| {
            let frames = passed.frames(|name| name.to.app == "sink" && name.to.port == port);
            frames as f64
        };
        // A packet that leaves in two fragments counts once.
        let encap = to_sink("internal") / traffic.fragments_per_packet();
        let decap = to_sink("external");
        let both = Rate::of(encap + decap, passed.wall_ns, passed.cpu_ns);
        let theirs = if Testpmd::is_installed() {
            Some(self.peer.measure(size, time_ns)?)
        } else {
            self.note(format!("{PEER} was not measured: {NOT_INSTALLED}"));
            None
        };
        for case in &self.options.cases {
            let What::Direction(case_load, direction) = case.what else {
                continue;
            };
            if case_load != load {
                continue;
            }
            let packets = match direction {
                Direction::Encap => encap,
                Direction::Decap => decap,
            };
            let ours = Rate {
                mpps: Rate::of(packets, passed.wall_ns, passed.cpu_ns).mpps,
                ..both
            };
            for (system, rate) in [(OURS, Some(ours)), (PEER, theirs)] {
                let Some(rate) = rate else { continue };
                rate.add_to(&mut self.samples, case.name, size, system);
                let disturbance = rate.disturbance(case.name, system, self.peer.cpu);
                self.notes.extend(disturbance);
            }
        }
        Ok(())
    }

    fn measure_loading(&mut self) -> Result<()> {
        let forms = self
            .options
            .cases
            .iter()
            .filter_map(|case| match case.what {
                What::Loading(form) => Some((case.name, form)),
                What::Direction(..) => None,
            });
        let forms: Vec<_> = forms.collect();
        if forms.is_empty() {
            return Ok(());
        }
        let files = load::Files::new()?;
        for run in 1..=self.options.runs {
            for (name, form) in &forms {
                let what = format!("run {run} of {}: {name}", self.options.runs);
                self.options.progress.step(&what);
                let measured = files.measure(*form);
                if let Some(seconds) = self.failures.note(&what, measured)? {
                    self.samples.add(name, 0, OURS, Metric::LoadS, seconds);
                }
            }
        }
        Ok(())
    }

    /// Adds a note, unless it is there already.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn notes(cpu: usize) -> Vec<String> {
    vec![
        format!("all frames move on processor {cpu}, one system after the other"),
        "mpps: packets that left in one direction, while as many went in the other, in 10^6 a \
         second; of DPDK's null devices frames of both"
            .to_owned(),
        "cpu_ns_per_sdu: CPU time of the thread that moves frames, per packet of both directions"
            .to_owned(),
        format!(
            "imix: frames of 60, 590 and 1496 bytes, 7 to 3 to 1, on average {IMIX_MEAN}; longer \
             ones than 1474 bytes leave towards B4s in two fragments, and come from there whole"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_load_comes_through_in_both_directions() {
        for (load, size) in [
            (Load::Few, 64),
            (Load::Few, 1500),
            (Load::Million, 550),
            (Load::Imix, IMIX_MEAN),
        ] {
            let traffic = Traffic::new(load, size as usize).unwrap();
            let mut rig = OneCore::new(&traffic.graph().unwrap(), PoolConfig::default()).unwrap();
            let passed = rig.run(20_000_000).unwrap();
            let frames = |app: &str, port: &str| {
                passed.frames(|name| name.to.app == app && name.to.port == port) as f64
            };
            let (sent4, sent6) = (frames("aftr", "external"), frames("aftr", "internal"));
            assert!(sent4 > 100.0 && sent6 > 100.0, "{load}");
            // Number of frames that may remain on links when the time is over.
            let burst = 300.0;
            assert!(sent6 - frames("sink", "external") < burst, "{load}");
            let whole = frames("sink", "internal") / traffic.fragments_per_packet();
            assert!((sent4 - whole).abs() < burst, "{load}: {sent4}, {whole}");
        }
    }
}
