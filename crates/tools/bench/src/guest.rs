//! Measures the network card (virtio-net) of an unmodified guest over Carina's back end; a tap of
//! QEMU is the comparison.
//!
//! ```text
//!   guest                  host
//!   card == rings == vhost_user -> tap app == tap -- bridge -- socket     system carina
//!   card == rings ============ QEMU ========= tap -- bridge -- socket     system tap
//! ```
//!
//! Both cards belong to one guest of one boot. The guest's kernel uses its own driver, and an
//! application in the guest sends or receives over UDP and TCP. The other end is this process. The
//! systems are measured one right after the other, and take turns at being first.

mod site;

use std::ops::RangeInclusive;
use std::path::Path;

use carina_measure::results::{Metric, OURS, Results, Row, Samples, machine};
use carina_measure::trial::job::Direction;

use self::site::{CpuTimes, Site, systems};
use crate::Options;
use crate::comparison::{System, goodput_note};
use crate::error::{Error, Result};
use crate::rate::compare_with_bars;

/// A case: its name in the results, the protocol, and the side that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// Protocol that carries the payloads.
    pub protocol: Protocol,
    /// Direction; the server is in the guest.
    pub direction: Direction,
}

/// Protocol that carries the payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// UDP: one datagram for each payload.
    Udp,
    /// TCP: a stream of payloads.
    Tcp,
}

/// The cases of the benchmark: UDP and TCP in each direction.
pub const CASES: [Case; 4] = [
    case("udp-guest-to-host", Protocol::Udp, Direction::Reverse),
    case("udp-host-to-guest", Protocol::Udp, Direction::Forward),
    case("tcp-guest-to-host", Protocol::Tcp, Direction::Reverse),
    case("tcp-host-to-guest", Protocol::Tcp, Direction::Forward),
];

const fn case(name: &'static str, protocol: Protocol, direction: Direction) -> Case {
    Case {
        name,
        protocol,
        direction,
    }
}

/// Default sizes of payloads in bytes.
pub const SIZES: [u64; 2] = [64, 1400];

/// Possible sizes of payloads in bytes: a datagram with its IPv4 and UDP headers fits one frame.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1..=1472;

/// Name of the system with a tap of QEMU in a bridge.
pub const PEER: &str = "tap";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, PEER];

/// Required ratio to [`PEER`], in every case and at every size.
pub const BAR: f64 = 1.0;

/// Boots the guest and measures. The process must be in a network namespace of its own
/// ([`require_network`](crate::vm_and_host::require_network)). Failed measurements are reported in
/// addition to the samples of the other systems.
///
/// # Errors
/// Something is missing or does not start, or too many measurements in succession fail. The error
/// contains logs.
pub fn run(options: &Options<Case>, guest_program: Option<&Path>) -> Result<Results> {
    let mut site = Site::start(guest_program, options.progress)?;
    let mut samples = Samples::default();
    let measured = options.measure_each(
        |case| case.name,
        |run, case, size| {
            let both = measure_both(&mut site, case, size, options.time_ns, run % 2 == 0)?;
            for (system, found) in both {
                found.add_to(&mut samples, case.name, size, system);
            }
            Ok(())
        },
    );
    let failures = measured.map_err(|error| site.explain(error))?;
    let (rows, factors) = (samples.rows(), samples.factors());
    let mut notes = site.notes();
    notes.extend(metric_notes());
    notes.extend(processor_notes(&rows, site.has_kvm()));
    notes.extend(compare_with_bars(
        &factors,
        PEER,
        Metric::GoodputMbps,
        |_| Some(BAR),
    ));
    Ok(Results {
        bench: "guest".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors,
        failures,
    })
}

/// Measures both systems. The values count only if both were measured, so that samples come in
/// pairs.
fn measure_both(
    site: &mut Site,
    case: Case,
    size: u64,
    time_ns: u64,
    is_reversed: bool,
) -> Result<[(&'static str, Measured); 2]> {
    let mut systems = systems(case.protocol);
    if is_reversed {
        systems.reverse();
    }
    let [first, second] = systems;
    Ok([
        (first.name, measure(site, case, &first, size, time_ns)?),
        (second.name, measure(site, case, &second, size, time_ns)?),
    ])
}

fn measure(
    site: &mut Site,
    case: Case,
    system: &System,
    size: u64,
    time_ns: u64,
) -> Result<Measured> {
    let before = site.cpu_times()?;
    let trial = system.measure(&mut site.client, case.direction, size, time_ns, None)?;
    let after = site.cpu_times()?;
    let seen = trial.receiver();
    // The rate is computed from the time between the first and the last payload.
    if seen.received < 2 || seen.elapsed_ns == 0 {
        let (name, received) = (system.name, seen.received);
        let what = format!("{name}: {received} payloads of {size} bytes have arrived");
        return Err(Error::NoAnswer(what));
    }
    let spent = |of: fn(&CpuTimes) -> u64| of(&after).saturating_sub(of(&before)) as f64;
    let guest_share = spent(|times| times.guest_ns) / seen.elapsed_ns as f64;
    Ok(Measured {
        goodput_mbps: seen.goodput_mbps(),
        msgs_per_s: seen.sdus_per_s(),
        host_cpu_ns_per_sdu: spent(|times| times.host_ns) / seen.received as f64,
        // The time before the first payload and after the last one is included.
        guest_cpu_percent: f64::min(guest_share * 100.0, 100.0),
    })
}

/// The measured values of one system.
#[derive(Debug, Clone, Copy)]
struct Measured {
    goodput_mbps: f64,
    msgs_per_s: f64,
    host_cpu_ns_per_sdu: f64,
    guest_cpu_percent: f64,
}

impl Measured {
    fn add_to(&self, samples: &mut Samples, case: &str, size: u64, system: &str) {
        for (metric, value) in [
            (Metric::GoodputMbps, self.goodput_mbps),
            (Metric::MsgsPerS, self.msgs_per_s),
            (Metric::HostCpuNsPerSdu, self.host_cpu_ns_per_sdu),
            (Metric::GuestCpuPercent, self.guest_cpu_percent),
        ] {
            samples.add(case, size, system, metric, value);
        }
    }
}

/// Explanations of the metrics, for readers of the figures.
fn metric_notes() -> [String; 2] {
    [
        goodput_note("what was lost on the way does not count"),
        "host_cpu_ns_per_sdu: CPU time of QEMU without the guest's processor, and of the graph, \
         per payload that arrived; guest_cpu_percent: how much of its processor the guest's took \
         while payloads came"
            .to_owned(),
    ]
}

/// Notes what limits the rates: the load of the guest's processor, and what that means for other
/// machines.
fn processor_notes(rows: &[Row], has_kvm: bool) -> Vec<String> {
    let shares = rows.iter().filter(|r| r.metric == Metric::GuestCpuPercent);
    let shares = shares.map(|row| row.median);
    let low = shares.clone().fold(f64::INFINITY, f64::min);
    let high = shares.fold(0.0, f64::max);
    if high == 0.0 {
        return Vec::new();
    }
    let busy = format!("the guest's processor was busy for {low:.0} to {high:.0} % of the time");
    let meaning = if has_kvm {
        "KVM runs it on a real processor, so that the ratios below hold for guests on real \
             processors"
    } else {
        "it is emulated (TCG), and where it is busy all the time it limits the rates: with a \
             back end that cost nothing they would be at most 1.2 times those of tap. The ratio of \
             a guest on a real processor cannot be measured without KVM; `carina bench vhost` has \
             the rings with a driver on a real processor"
    };
    vec![format!("{busy}; {meaning}")]
}

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); METRICS_SHOWN.len() * CASES.len()] = {
    let mut tables = [("", Metric::GoodputMbps, ""); METRICS_SHOWN.len() * CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        let (metric, title) = METRICS_SHOWN[at % METRICS_SHOWN.len()];
        tables[at] = (CASES[at / METRICS_SHOWN.len()].name, metric, title);
        at += 1;
    }
    tables
};

const METRICS_SHOWN: [(Metric, &str); 3] = [
    (Metric::GoodputMbps, "goodput, Mbit/s"),
    (
        Metric::HostCpuNsPerSdu,
        "CPU time of the host beside the two applications, per payload, ns",
    ),
    (Metric::GuestCpuPercent, "the guest's processor, %"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_what_the_processor_of_the_guest_did() {
        let mut samples = Samples::default();
        for (system, busy) in [(OURS, 99.0), (PEER, 96.0)] {
            let measured = Measured {
                goodput_mbps: 70.0,
                msgs_per_s: 140_000.0,
                host_cpu_ns_per_sdu: 3000.0,
                guest_cpu_percent: busy,
            };
            measured.add_to(&mut samples, CASES[0].name, 64, system);
        }
        let emulated = processor_notes(&samples.rows(), false);
        assert!(emulated[0].contains("busy for 96 to 99 %"), "{emulated:?}");
        assert!(emulated[0].contains("without KVM"), "{emulated:?}");
        let real = processor_notes(&samples.rows(), true);
        assert!(
            real[0].contains("KVM runs it on a real processor"),
            "{real:?}"
        );
        assert_eq!(processor_notes(&[], true), Vec::<String>::new());
    }

    #[test]
    fn tables_have_every_case_with_every_metric() {
        for case in CASES {
            for (metric, _) in METRICS_SHOWN {
                let tables = TABLES.iter();
                let has = tables.filter(|table| (table.0, table.1) == (case.name, metric));
                assert_eq!(has.count(), 1, "{} {metric:?}", case.name);
            }
        }
    }
}
