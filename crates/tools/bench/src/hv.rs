//! Measures flows between a VM and its host; bare rings in the same memory, and UDP over emulated
//! network cards, are the comparison.

use std::path::PathBuf;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_measure::trial::job::Direction;

use crate::Progress;
use crate::comparison::{Case, Comparison, Pin, System};
use crate::error::Result;
use crate::rate::compare_with_bars;
use crate::vm_and_host::{
    CardNetwork, LIMIT, OTHER_VSOCK, PLAIN, QUEUES, VSOCK, VSOCK_WITH_SOCAT, VmAndHost,
};

/// The cases: name, and the side that sends.
pub const CASES: [Case; 3] = [
    ("guest-to-host", Direction::Reverse),
    ("host-to-guest", Direction::Forward),
    ("echo", Direction::Echo),
];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 7] = [
    ("guest-to-host", Metric::GoodputMbps, "goodput, Mbit/s"),
    ("host-to-guest", Metric::GoodputMbps, "goodput, Mbit/s"),
    (
        "guest-to-host",
        Metric::CpuNsPerSdu,
        "CPU time of both applications per SDU, ns",
    ),
    (
        "host-to-guest",
        Metric::CpuNsPerSdu,
        "CPU time of both applications per SDU, ns",
    ),
    ("echo", Metric::RttUs, "round-trip time, mean, µs"),
    ("echo", Metric::RttP50Us, "round-trip time, median, µs"),
    ("echo", Metric::RttP99Us, "round-trip time, 99 of 100, µs"),
];

/// Default SDU sizes in bytes: the sizes of figure 4a of Vrijders and others, 64, and larger ones.
pub fn sizes() -> Vec<u64> {
    let mut sizes = figure_sizes();
    sizes.extend([64, 16_384, 65_536, 1 << 20]);
    sizes.sort_unstable();
    sizes
}

/// The SDU sizes in bytes of figure 4a: 0 to [`FIGURE_SDU_MAX`] in steps of 250.
pub fn figure_sizes() -> Vec<u64> {
    (0..=FIGURE_SDU_MAX).step_by(250).collect()
}

/// Largest SDU of figure 4a, in bytes.
pub const FIGURE_SDU_MAX: u64 = 4000;

/// SDU sizes at which the echo is measured, in bytes.
pub const ECHO_SIZES: [u64; 4] = [64, 1500, 4000, 65_000];

/// Which cases, systems and SDU sizes to measure between a VM and its host, for how long, and how
/// often.
#[derive(Debug, Clone)]
pub struct HvOptions {
    /// Number of times that each system is measured, per case and SDU size.
    pub runs: usize,
    /// Duration of a single measurement in nanoseconds.
    pub time_ns: u64,
    /// SDU sizes in bytes at which each case is measured.
    pub sizes: Vec<u64>,
    /// The cases in which all systems are measured.
    pub cases: Vec<Case>,
    /// Names of the systems to measure, from [`SYSTEMS`](crate::vm_and_host::SYSTEMS).
    pub systems: Vec<&'static str>,
    /// The program to install in the guest; `None` for this program.
    pub guest_program: Option<PathBuf>,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

impl HvOptions {
    /// The comparison of these systems with the chosen cases and sizes.
    pub(crate) fn comparison(&self, systems: &[System]) -> Comparison {
        Comparison {
            cases: self.cases.clone(),
            systems: systems.to_vec(),
            sizes: self.sizes.clone(),
            echo_sizes: ECHO_SIZES.to_vec(),
            runs: self.runs,
            time_ns: self.time_ns,
            pin: Pin::Never,
            progress: self.progress,
        }
    }
}

/// Boots a VM, and measures flows between the VM and this host, and the systems that they are
/// compared with.
///
/// # Errors
/// Something is missing or fails; the error contains logs.
pub fn run(options: &HvOptions, network: CardNetwork) -> Result<Results> {
    let program = options.guest_program.clone();
    let mut setup = VmAndHost::start(network, &options.systems, program, options.progress)?;
    measure(&mut setup, options)
}

/// Like [`run`], with a VM that is already running.
///
/// # Errors
/// A measurement fails.
pub fn measure(setup: &mut VmAndHost, options: &HvOptions) -> Result<Results> {
    let (samples, failures) = options
        .comparison(&setup.systems)
        .run(&mut setup.client)
        .map_err(|error| setup.explain(error))?;
    let mut notes = setup.notes.clone();
    notes.extend(bar_notes(&samples));
    Ok(Results {
        bench: "hv".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: samples.factors(),
        failures,
    })
}

/// Judges whether Carina reaches the required ratio to bare rings, over either device, and to the
/// vsock device of another project.
fn bar_notes(samples: &Samples) -> Vec<String> {
    let of_system = |system: &'static str| {
        let mut factors = samples.factors_of(system);
        factors.retain(|factor| BAR_SIZES.contains(&factor.sdu));
        let lines = compare_with_bars(&factors, LIMIT, Metric::GoodputMbps, |_| Some(BAR));
        let labelled = move |line| format!("{system}, {line}");
        lines.into_iter().map(labelled)
    };
    let rings = [OURS, PLAIN, QUEUES].into_iter().flat_map(of_system);
    let vsock = [(OTHER_VSOCK, None), (VSOCK_WITH_SOCAT, Some(VSOCK_BAR))];
    let vsock = vsock
        .into_iter()
        .flat_map(|(other, bar)| vsock_notes(samples, other, bar));
    rings.chain(vsock).collect()
}

/// The ratios of flows over vsock to a stream over the vsock device of another project.
fn vsock_notes(samples: &Samples, other: &'static str, bar: Option<f64>) -> Vec<String> {
    let goodput = samples.factors_of(VSOCK);
    let goodput = compare_with_bars(&goodput, other, Metric::GoodputMbps, |_| bar);
    let goodput = goodput.into_iter().map(|line| format!("{VSOCK}, {line}"));
    // A longer round trip of the other device is a better result of Carina.
    let echo = samples.factors_of(other);
    let echo = compare_with_bars(&echo, VSOCK, Metric::RttP50Us, |_| bar);
    let echo = echo
        .into_iter()
        .map(|line| format!("round-trip time of {other}, {line}"));
    goodput.chain(echo).collect()
}

/// Minimum for the goodput of flows over vsock divided by that of a stream that socat relays over
/// the vsock device of another project, and for the inverse ratio of the round-trip times. A flow
/// passes the nodes, and is for applications that do not know AF_VSOCK, as the relayed stream is.
const VSOCK_BAR: f64 = 1.0;

/// Minimum for the goodput of flows divided by the goodput of bare rings, in both directions.
pub const BAR: f64 = 0.5;
/// SDU sizes in bytes at which the ratio is required.
const BAR_SIZES: [u64; 3] = [64, 1500, 4000];
