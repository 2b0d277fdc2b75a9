//! Measures one TCP connection between two network namespaces of this host, over `carina ip` and
//! shared memory.
//!
//! ```text
//!   client -- tun -- member == flow in shared memory == member -- tun -- server     carina
//!   client -- tun -- a bare loop that copies packets ----------- tun -- server     limit
//!   client -- veth ------------------------------------------- veth -- server     veth, MTU 1500
//! ```
//!
//! The systems are measured one right after the other, and take turns at being first.

mod connection;
mod copy_loop;
mod site;

use std::ops::RangeInclusive;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};

use self::site::Site;
use crate::Options;
use crate::error::Result;
use crate::rate::compare_with_bars;

/// A case: its name in the results, and what client and server do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// Whether each message is answered; otherwise the client only sends.
    pub is_echoed: bool,
}

/// The cases of the benchmark.
pub const CASES: [Case; 2] = [
    Case {
        name: "bulk",
        is_echoed: false,
    },
    Case {
        name: "round-trips",
        is_echoed: true,
    },
];

/// Default sizes of messages in bytes: of each call that sends.
pub const SIZES: [u64; 1] = [65_536];

/// Possible sizes of messages in bytes.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1..=1 << 20;

/// Name of the bare loop that copies packets between two TUN interfaces.
pub const LIMIT: &str = "limit";

/// Name of the pair of virtual Ethernet interfaces.
pub const VETH: &str = "veth";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 3] = [OURS, LIMIT, VETH];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 3] = [
    ("bulk", Metric::GoodputMbps, "goodput, Mbit/s"),
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

/// Makes the namespaces, a node and the interfaces, and measures. Failed measurements are reported
/// beside the samples of the others.
///
/// # Errors
/// Something does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    options.progress.step("making namespaces and interfaces");
    let site = Site::start()?;
    let mut samples = Samples::default();
    let failures = options.measure_each(
        |case| case.name,
        |run, case, size| {
            let mut systems = SYSTEMS;
            systems.rotate_left(run % SYSTEMS.len());
            let mut all = Vec::new();
            for system in systems {
                all.push((system, site.measure(system, case, size, options.time_ns)?));
            }
            // They count only together, so that samples come in pairs.
            for (system, values) in all {
                for (metric, value) in values {
                    samples.add(case.name, size, system, metric, value);
                }
            }
            Ok(())
        },
    )?;
    let factors = samples.factors();
    let mut notes = vec![NOTE.to_owned()];
    for (peer, bar) in [(LIMIT, LIMIT_BAR), (VETH, VETH_BAR)] {
        let bar = |case: &str| (case == CASES[0].name).then_some(bar);
        notes.extend(compare_with_bars(&factors, peer, Metric::GoodputMbps, bar));
    }
    Ok(Results {
        bench: "ip".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors,
        failures,
    })
}

const NOTE: &str = "one TCP connection; the interfaces of carina and limit take segments of up to \
    64 KiB and leave checksums out, as the veth pair (MTU 1500) does";

/// Required ratio of Carina's goodput to the bare loop's.
const LIMIT_BAR: f64 = 0.8;

/// Required ratio of Carina's goodput to the veth pair's.
const VETH_BAR: f64 = 1.0;
