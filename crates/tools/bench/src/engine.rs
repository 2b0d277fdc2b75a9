//! Measures frames that pass graphs of apps on one core; DPDK's forwarding between two null devices
//! is the comparison.
//!
//! ```text
//!   source-sink   source -> sink
//!   hop-N         source -> hop -> ... -> hop -> sink
//!   tee           source -> tee => two links => sink; both links are counted
//!   lpm           source of random destinations -> route4 with 10^6 routes => 4 links => sink
//!   lpm6          source -> route6 with 230,000 routes => 4 links => sink
//!   filter, conntrack, ratelimit       source -> pcap_filter or rate_limiter -> sink
//!   count         source -> an app that counts by Ethertype -> sink
//!   lua-filter, lua-count, lua-hop     the same work as filter, count and hop-1, by scripts
//!   gre, vxlan, ipip, l2tpv3, esp      source -> one end of the tunnel -> the other end -> sink
//!   ...-two-workers      the chain cut in its middle: one half on each of two processors
//!   ...-each-of-two      a whole chain on each of two processors
//!   dpdk-io       null device <-> null device, testpmd --forward-mode=io; both ports are counted
//! ```
//!
//! A source copies the bytes of a UDP frame into each frame. A hop swaps the MAC addresses and
//! decrements the TTL, and adapts the checksum. Both systems run on the same core, one after the
//! other.

mod count;
mod graphs;
mod lua;
pub(crate) mod null_devices;
pub(crate) mod routes;
mod routes6;
mod services;
pub(crate) mod workers;

use carina_frame::PoolError;
use carina_measure::ratio::Ratio;
use carina_measure::results::{Metric, OURS, Results, Samples, machine};

pub use self::lua::Script;
use self::null_devices::NullDevices;
pub use self::services::Service;
use crate::Options;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::rate::{Rate, compare_with_bars};
use crate::testpmd::{NOT_INSTALLED, Testpmd};

/// A case: its name in the results, its chain of apps, and the required ratio to [`PEER`], if there
/// is one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// The apps between source and sink.
    pub chain: Chain,
    /// The case's minimum for Carina's rate divided by the rate of [`PEER`]; `None` if the case has
    /// no minimum.
    pub bar: Option<f64>,
}

/// The apps between a source and a sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chain {
    /// A chain of this number of hops.
    Hops(usize),
    /// A tee with two links to the sink.
    Tee,
    /// A longest-prefix match among a million IPv4 routes.
    Lpm,
    /// A longest-prefix match among 230,000 IPv6 routes.
    Lpm6,
    /// An app that counts by Ethertype.
    Count,
    /// An app that runs a Lua script.
    Lua(Script),
    /// An app that filters, limits or tunnels.
    Service(Service),
    /// A chain of this number of hops, run by two workers.
    Workers(Spread, usize),
}

/// How a chain of apps is divided between the two workers of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// Each worker runs one half of the chain.
    Chain,
    /// Each worker runs a whole chain of its own.
    Each,
}

/// The cases of the benchmark: each chain of apps, with the ratio that it requires.
pub const CASES: [Case; 23] = [
    case("source-sink", Chain::Hops(0), Some(2.0)),
    case("hop-1", Chain::Hops(1), Some(1.0)),
    case("hop-2", Chain::Hops(2), Some(0.7)),
    case("hop-4", Chain::Hops(4), Some(0.45)),
    case("hop-8", Chain::Hops(8), Some(0.25)),
    case("tee", Chain::Tee, None),
    case("lpm", Chain::Lpm, None),
    case("lpm6", Chain::Lpm6, None),
    case("filter", Chain::Service(Service::Filter), None),
    case("count", Chain::Count, None),
    case("lua-filter", Chain::Lua(Script::Filter), None),
    case("lua-count", Chain::Lua(Script::Count), None),
    case("lua-hop", Chain::Lua(Script::Hop), None),
    case("conntrack", Chain::Service(Service::Conntrack), None),
    case("ratelimit", Chain::Service(Service::RateLimit), None),
    case("gre", Chain::Service(Service::Gre), None),
    case("vxlan", Chain::Service(Service::Vxlan), None),
    case("ipip", Chain::Service(Service::Ipip), None),
    case("l2tpv3", Chain::Service(Service::L2tpv3), None),
    case("esp", Chain::Service(Service::Esp), None),
    case(
        "source-sink-two-workers",
        Chain::Workers(Spread::Chain, 0),
        None,
    ),
    case("hop-4-two-workers", Chain::Workers(Spread::Chain, 4), None),
    case("hop-4-each-of-two", Chain::Workers(Spread::Each, 4), None),
];

const fn case(name: &'static str, chain: Chain, bar: Option<f64>) -> Case {
    Case { name, chain, bar }
}

/// Name of the system that is DPDK's forwarding between two null devices.
pub const PEER: &str = "dpdk-io";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, PEER];

/// Default sizes of frames in bytes, without FCS.
pub const SIZES: [u64; 1] = [64];

/// Runs the benchmark with frames of each size, for both systems. A third of the time precedes each
/// measurement, to warm up. Failed measurements are reported in addition to the samples of the
/// other systems.
///
/// # Errors
/// The system refuses something that all measurements need, or too many measurements in succession
/// fail. Without testpmd only Carina is measured, and the notes name the missing package.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let mut bench = Bench {
        options,
        peer: NullDevices::new("engine")?,
        samples: Samples::default(),
        ours: Vec::new(),
        notes: Vec::new(),
        failures: Failures::new(options.progress),
    };
    let measured = bench.measure_all();
    bench.peer.give_back_cpus()?;
    measured?;
    let factors = bench.samples.factors();
    let mut notes = notes(bench.peer.cpu, bench.peer.main_cpu);
    notes.append(&mut bench.notes);
    let bar = |name: &str| CASES.iter().find(|case| case.name == name)?.bar;
    notes.extend(compare_with_bars(&factors, PEER, Metric::Mpps, bar));
    notes.extend(bench.compare());
    Ok(Results {
        bench: "engine".to_owned(),
        machine: machine(),
        notes,
        rows: bench.samples.rows(),
        factors,
        failures: bench.failures.into_lines(),
    })
}

struct Bench<'a> {
    options: &'a Options<Case>,
    /// DPDK's side, which also holds the choice of processors for both systems.
    peer: NullDevices,
    samples: Samples,
    /// Carina's rates: case, size and rate of each run.
    ours: Vec<(Case, u64, f64)>,
    notes: Vec<String>,
    failures: Failures,
}

impl Bench<'_> {
    fn measure_all(&mut self) -> Result<()> {
        for size in &self.options.sizes {
            for run in 1..=self.options.runs {
                for case in &self.options.cases {
                    let runs = self.options.runs;
                    let what = format!("run {run} of {runs}: {}, {size} bytes", case.name);
                    self.options.progress.step(&what);
                    let measured = self.measure_pair(*case, *size);
                    self.failures.note(&what, measured)?;
                }
            }
        }
        Ok(())
    }

    fn measure_pair(&mut self, case: Case, size: u64) -> Result<()> {
        let time_ns = self.options.time_ns;
        let cpus = [self.peer.cpu, self.peer.main_cpu];
        let ours = match case.chain {
            Chain::Workers(..) if cpus[0] == cpus[1] => {
                self.note(format!(
                    "{} was not measured: it needs two processors",
                    case.name
                ));
                return Ok(());
            }
            Chain::Workers(..) => workers::measure(case.chain, size as usize, cpus, time_ns),
            chain => graphs::measure(chain, size as usize, cpus[0], time_ns),
        }?;
        if Testpmd::is_installed() {
            let theirs = self.peer.measure(size, time_ns)?;
            self.add(case, size, PEER, theirs);
        } else {
            self.note(format!("{PEER} was not measured: {NOT_INSTALLED}"))
        }
        self.add(case, size, OURS, ours);
        self.ours.push((case, size, ours.mpps));
        Ok(())
    }

    /// Adds a note to the results, unless they already contain it.
    fn note(&mut self, note: String) {
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    fn add(&mut self, case: Case, size: u64, system: &str, rate: Rate) {
        rate.add_to(&mut self.samples, case.name, size, system);
        let disturbance = rate.disturbance(case.name, system, self.peer.cpu);
        self.notes.extend(disturbance);
    }

    /// Notes how two workers scale, and how much slower a script is than the same app in Rust, if
    /// both were measured.
    fn compare(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let rates = |case: &Case, size: u64| {
            let ours = self.ours.iter();
            let ours = ours.filter(move |row| row.0.name == case.name && row.1 == size);
            ours.map(|row| row.2).collect::<Vec<f64>>()
        };
        for case in &self.options.cases {
            let mut others = self.options.cases.iter();
            let (other, of) = match case.chain {
                Chain::Workers(_, hops) => {
                    let is_one = |other: &&Case| other.chain == Chain::Hops(hops);
                    (others.find(is_one), " of one worker")
                }
                Chain::Lua(script) => {
                    let is_same = |other: &&Case| other.name == script.same_in_rust();
                    (others.find(is_same), ", the same in Rust")
                }
                _ => continue,
            };
            let Some(other) = other else { continue };
            for size in &self.options.sizes {
                let pairs = rates(case, *size).into_iter().zip(rates(other, *size));
                let pairs: Vec<(f64, f64)> = pairs.collect();
                let Some(ratio) = Ratio::of(pairs.iter().copied()) else {
                    continue;
                };
                let [low, high] = ratio.interval;
                let more = match case.chain {
                    Chain::Lua(_) => format!("; {:.0} ns a packet more", ns_more(&pairs)),
                    _ => String::new(),
                };
                lines.push(format!(
                    "{} at {size} bytes: {:.2} x {}{of} [{low:.2} to {high:.2}]{more}",
                    case.name, ratio.ratio, other.name
                ));
            }
        }
        lines
    }
}

/// How many nanoseconds more a packet takes in the first of two systems than in the second: the
/// median over the runs. Rates are in 10^6 packets per second.
fn ns_more(pairs: &[(f64, f64)]) -> f64 {
    let more = pairs.iter().map(|(slow, fast)| 1e3 / slow - 1e3 / fast);
    let mut more: Vec<f64> = more.collect();
    more.sort_by(f64::total_cmp);
    more.get(more.len() / 2).copied().unwrap_or_default()
}

fn notes(cpu: usize, main_cpu: usize) -> Vec<String> {
    vec![
        format!(
            "all frames move on processor {cpu}, one system after the other; the cases of two \
             workers have processor {main_cpu} too, their CPU times are sums"
        ),
        "mpps: frames that came to the sink, or of both null devices of DPDK, in 10^6 a second"
            .to_owned(),
        "cpu_ns_per_sdu: CPU time of the thread that moves frames, per frame".to_owned(),
    ]
}

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); CASES.len()] = {
    let mut tables = [("", Metric::Mpps, "frames, 10^6 a second"); CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        tables[at].0 = CASES[at].name;
        at += 1;
    }
    tables
};

impl From<PoolError> for Error {
    fn from(error: PoolError) -> Error {
        Error::Graph(error.to_string())
    }
}
