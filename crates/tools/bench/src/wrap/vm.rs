//! Measures unmodified programs between a VM and its host: iperf3, and a file over HTTP and ssh.
//! The VM also has an address over flows, and two network cards for comparison: QEMU's user-mode
//! network, and passt.
//!
//! ```text
//!   VM, one boot                         host
//!   carina wrap client ==== shared memory ==== carina wrap server        carina
//!   client -- TUN -- node == shared memory == node -- TUN -- server      ip
//!   client -- virtio-net -- QEMU -netdev user -- TCP -- server           user
//!   client -- virtio-net -- QEMU -netdev stream -- passt -- TCP -- server    passt
//! ```
//!
//! The systems are measured one right after the other, and take turns at being first.

mod client;
mod passt;
mod site;

use std::ops::RangeInclusive;
use std::path::Path;

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

/// What the client in the guest does with a server on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// iperf3: the client sends.
    Send,
    /// iperf3: the server sends.
    Receive,
    /// curl gets a file from `python3 -m http.server`.
    Http,
    /// ssh runs `cat` with a file on the host.
    Ssh,
}

/// The cases of the benchmark.
pub const CASES: [Case; 4] = [
    case("iperf3-to-host", Work::Send),
    case("iperf3-to-guest", Work::Receive),
    case("http", Work::Http),
    case("ssh", Work::Ssh),
];

const fn case(name: &'static str, work: Work) -> Case {
    Case { name, work }
}

/// Default numbers of bytes that a measurement transfers.
pub const SIZES: [u64; 1] = [64 << 20];

/// Possible numbers of bytes that a measurement transfers.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1 << 20..=4 << 30;

/// Name of the system with IP over flows.
pub const IP: &str = "ip";

/// Name of the system with QEMU's user-mode network.
pub const USER: &str = "user";

/// Name of the system with passt.
pub const PASST: &str = "passt";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 4] = [OURS, IP, USER, PASST];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); CASES.len()] = {
    let mut tables = [("", Metric::GoodputMbps, "goodput, Mbit/s"); CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        tables[at].0 = CASES[at].name;
        at += 1;
    }
    tables
};

/// Required ratios of the goodput of one system to that of another, in every case.
const BARS: [(&str, &str, f64); 4] = [
    (OURS, USER, 5.0),
    (OURS, PASST, 2.0),
    (IP, USER, 1.5),
    (IP, PASST, 1.5),
];

/// Boots the guest, starts the servers, and measures. The process must be in a network namespace of
/// its own ([`require_network`](crate::vm_and_host::require_network)). Programs that are not
/// installed are left out, with a note. Failed measurements are reported in addition to the samples
/// of the other systems.
///
/// # Errors
/// Something does not start, or too many measurements in succession fail. The error contains logs.
pub fn run(options: &Options<Case>, guest_program: Option<&Path>) -> Result<Results> {
    let mut site = Site::start(options, guest_program)?;
    let mut samples = Samples::default();
    let mut measured = options.clone();
    measured.cases.retain(|case| site.can(case.work));
    let failures = measured.measure_each(
        |case| case.name,
        |run, case, size| {
            let all = in_turns(run, site.systems(), |system| {
                let mbps = site.measure(system, case.work, size);
                mbps.map_err(|error| error.in_case(system))
            });
            for (system, mbps) in all? {
                samples.add(case.name, size, system, Metric::GoodputMbps, mbps);
            }
            Ok(())
        },
    );
    let failures = failures.map_err(|error| site.explain(error))?;
    let factors = samples.factors();
    let mut notes = site.into_notes();
    for (system, peer, bar) in BARS {
        let factors = samples.factors_of(system);
        let lines = compare_with_bars(&factors, peer, Metric::GoodputMbps, |_| Some(bar));
        notes.extend(lines.into_iter().map(|line| format!("{system}, {line}")));
    }
    Ok(Results {
        bench: "wrap-vm".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors,
        failures,
    })
}
