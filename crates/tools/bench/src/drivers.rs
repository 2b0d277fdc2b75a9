//! Measures drivers of network cards in a guest's user space, and compares them with those of the
//! guest's kernel.
//!
//! ```text
//!   e1000e-send       blast -> card ~ cable -> counted here
//!   e1000e-receive    sent from here ~ cable -> card -> sink, counted there
//!   virtio-...        the same with a virtio-net card of QEMU's own
//! ```
//!
//! | system | how frames get between the card and the graph |
//! |---|---|
//! | `carina` | the app `pci`: a driver in this program |
//! | `kernel` | the app `af_packet`, over the driver of the guest's kernel |
//!
//! All cards belong to one guest of one boot. The systems are measured one right after the other,
//! and take turns at being first. Frames are counted at the receiving end. A cable is a UDP socket
//! of this process, and each frame is a datagram, so that no privilege is needed.

mod cable;
mod site;

use std::ops::RangeInclusive;
use std::path::Path;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};

use self::site::Site;
use crate::Options;
use crate::error::Result;
use crate::rate::compare_with_bars;

/// A case: its name in the results, the card, and the direction of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// Number of the card in the guest: 0 is the e1000e, 1 is the virtio-net.
    card: usize,
    /// Whether the guest sends the frames, and the host receives them.
    sends: bool,
}

/// The cases of the benchmark: each card, sending and receiving.
pub const CASES: [Case; 4] = [
    case("e1000e-send", 0, true),
    case("e1000e-receive", 0, false),
    case("virtio-send", 1, true),
    case("virtio-receive", 1, false),
];

const fn case(name: &'static str, card: usize, sends: bool) -> Case {
    Case { name, card, sends }
}

/// Default sizes of frames in bytes, without FCS.
pub const SIZES: [u64; 2] = [64, 1500];

/// Possible sizes of frames in bytes: a card pads shorter frames.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 60..=1514;

/// Name of the system with the driver of the guest's kernel.
pub const PEER: &str = "kernel";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, PEER];

/// Required ratio to [`PEER`], in every case and at every size.
pub const BAR: f64 = 1.0;

/// Boots the guest and measures. Failed measurements are reported in addition to the samples of the
/// other systems.
///
/// # Errors
/// The guest does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>, guest_program: Option<&Path>) -> Result<Results> {
    let site = Site::start(guest_program, options.progress)?;
    let mut samples = Samples::default();
    let failures = options.measure_each(
        |case| case.name,
        |run, case, size| {
            let mut systems = SYSTEMS;
            if run % 2 == 0 {
                systems.reverse();
            }
            let mut rates = Vec::new();
            for system in systems {
                let mpps = measure(&site, case, system, size, options.time_ns);
                rates.push((system, mpps.map_err(|error| error.in_case(system))?));
            }
            for (system, mpps) in rates {
                samples.add(case.name, size, system, Metric::Mpps, mpps);
                let goodput = mpps * size as f64 * 8.0;
                samples.add(case.name, size, system, Metric::GoodputMbps, goodput);
            }
            Ok(())
        },
    )?;
    let (rows, factors) = (samples.rows(), samples.factors());
    let mut notes = site.notes();
    notes.extend(NOTES.map(str::to_owned));
    notes.extend(compare_with_bars(&factors, PEER, Metric::Mpps, |_| {
        Some(BAR)
    }));
    Ok(Results {
        bench: "drivers".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors,
        failures,
    })
}

fn measure(site: &Site, case: Case, system: &str, size: u64, time_ns: u64) -> Result<f64> {
    let port = site.port(case.card, system == OURS)?;
    if case.sends {
        site.sends(case.card, &port, size, time_ns)
    } else {
        site.receives(case.card, &port, size, time_ns)
    }
}

const NOTES: [&str; 3] = [
    "mpps: frames that arrived, in 10^6 a second; goodput_mbps: their bytes without FCS",
    "kernel: the guest kernel's own driver, its frames by rings of a packet socket (AF_PACKET); \
     carina: the driver in user space; the graph around them is the same",
    "QEMU copies each frame in its main loop, which limits both",
];

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
