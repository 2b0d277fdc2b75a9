//! Measures unmodified programs over flows: a client and a server in Python, whose TCP connections
//! `carina wrap` makes flows. TCP over the loopback interface, and relays, are the comparison.
//!
//! ```text
//!   client ================ flow ================ server      carina: both wrapped
//!   client -- TCP ------------------------------- server      tcp
//!   client -- TCP -- connect == flow == expose -- server      connect
//!   client -- TCP -- relay -- TCP --------------- server      proxy, socat, ssh
//! ```
//!
//! The systems are measured one right after the other, and take turns at being first.

mod programs;
mod site;
pub mod vm;

use std::ops::RangeInclusive;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};

use self::site::Site;
use crate::Options;
use crate::error::Result;
use crate::options::in_turns;
use crate::rate::compare_with_bars;

/// A case: its name in the results, and what the programs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// What the programs do.
    pub work: Work,
}

/// What the two programs do on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The client sends, the server counts.
    Bulk,
    /// The client sends a message and waits for its answer.
    RoundTrips,
}

/// The cases of the benchmark.
pub const CASES: [Case; 2] = [
    Case {
        name: "bulk",
        work: Work::Bulk,
    },
    Case {
        name: "round-trips",
        work: Work::RoundTrips,
    },
];

/// Default sizes of messages in bytes: of each call that sends.
pub const SIZES: [u64; 2] = [64, 65_536];

/// Possible sizes of messages in bytes: the server's buffer has room for the largest.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1..=1 << 20;

/// Name of the proxy of Carina, which relays bytes as [`RELAY`] does.
pub const PROXY: &str = "proxy";

/// Name of the relay that [`PROXY`] is compared with.
pub const RELAY: &str = "socat";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 6] = [OURS, "tcp", "connect", PROXY, RELAY, "ssh"];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 4] = [
    ("bulk", Metric::GoodputMbps, "goodput, Mbit/s"),
    ("round-trips", Metric::RttUs, "round-trip time, mean, µs"),
    (
        "round-trips",
        Metric::RttP50Us,
        "round-trip time, median, µs",
    ),
    (
        "round-trips",
        Metric::RttP99Us,
        "round-trip time, 99 of 100, µs",
    ),
];

/// Starts a node, the servers and the relays, and measures. Relays that are not installed are left
/// out, with a note. Failed measurements are reported beside the samples of the others.
///
/// # Errors
/// Something does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    options.progress.step("starting a node, servers and relays");
    let site = Site::start()?;
    let mut samples = Samples::default();
    let failures = options.measure_each(
        |case| case.name,
        |run, case, size| {
            let all = in_turns(run, site.systems(), |system| {
                site.measure(system, case.work, size, options.time_ns)
            });
            for (system, values) in all? {
                for (metric, value) in values {
                    samples.add(case.name, size, system, metric, value);
                }
            }
            Ok(())
        },
    )?;
    let mut notes = site.notes();
    let of_proxy = samples.factors_of(PROXY);
    for metric in [Metric::GoodputMbps, Metric::RttP50Us] {
        let lines = compare_with_bars(&of_proxy, RELAY, metric, |_| None);
        notes.extend(lines.into_iter().map(|line| format!("proxy, {line}")));
    }
    Ok(Results {
        bench: "wrap".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: samples.factors(),
        failures,
    })
}
