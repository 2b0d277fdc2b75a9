//! Measures TCP connections between two network namespaces of this host, over `carina ip`.
//!
//! ```text
//!   client -- tun -- member == flow in shared memory == member -- tun -- server     carina
//!   client -- tun -- a bare loop that copies packets ----------- tun -- server     limit
//!   client -- veth ------------------------------------------- veth -- server     veth, MTU 1500
//!
//!   client -- tun -- member, node == n.DIF over veth pairs == node, member -- tun -- server
//!   client -- tun -- boringtun, openvpn, tincd == UDP over veth pairs == daemon -- tun -- server
//! ```
//!
//! The systems are measured one right after the other, and take turns at being first.

mod connection;
mod copy_loop;
mod outage;
mod pair;
mod peers;
mod site;

use std::ops::RangeInclusive;
use std::time::Duration;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};

use self::connection::Load;
use self::outage::Gaps;
use self::pair::{LINKS, Pair, Protection};
use self::peers::{BORINGTUN, OPENVPN, TINC, Tunnel};
use self::site::Site;
use crate::Options;
use crate::error::{Error, Result};
use crate::options::in_turns;
use crate::rate::compare_with_bars;

/// A case: its name in the results, and the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// What client and server do, and over which systems.
    pub work: Work,
}

/// What client and server do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The client sends, over shared memory.
    Bulk,
    /// Each message is answered, over shared memory.
    RoundTrips,
    /// The client sends, over an Ethernet between two nodes.
    Ethernet,
    /// One of two links between two nodes goes down.
    PathLoss,
    /// The client's system moves from one link to another.
    Move,
}

/// The cases of the benchmark.
pub const CASES: [Case; 5] = [
    Case {
        name: "bulk",
        work: Work::Bulk,
    },
    Case {
        name: "round-trips",
        work: Work::RoundTrips,
    },
    Case {
        name: "ethernet",
        work: Work::Ethernet,
    },
    Case {
        name: "path-loss",
        work: Work::PathLoss,
    },
    Case {
        name: "move",
        work: Work::Move,
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

/// Name of Carina without SDU protection, where it is measured with and without.
const PLAIN: &str = "plain";

/// Name of the gap of Carina's connections before anything was disturbed.
const UNDISTURBED: &str = "undisturbed";

/// The systems of cases over shared memory.
const SHARED_SYSTEMS: [&str; 3] = [OURS, LIMIT, VETH];

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 8] = [
    OURS,
    LIMIT,
    VETH,
    PLAIN,
    UNDISTURBED,
    BORINGTUN,
    OPENVPN,
    TINC,
];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 6] = [
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
    (
        "ethernet",
        Metric::GoodputMbps,
        "goodput over Ethernet, protected, Mbit/s",
    ),
    (
        "path-loss",
        Metric::GapMs,
        "longest time without a byte when a path is lost, ms",
    ),
    (
        "move",
        Metric::GapMs,
        "longest time without a byte when the client moves, ms",
    ),
];

/// Makes the namespaces, nodes, interfaces and tunnels of the cases, and measures. Failed
/// measurements are reported in addition to the samples of the other systems; tunnels that are not
/// installed are named in the notes.
///
/// # Errors
/// Something does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let bench = Bench::start(options)?;
    let mut samples = Samples::default();
    let failures = options.measure_each(
        |case| case.name,
        |run, case, size| {
            let all = in_turns(run, bench.systems(case.work), |system| {
                let values = bench.measure(system, case.work, size, options.time_ns);
                values.map_err(|error| error.in_case(system))
            });
            for (system, values) in all? {
                for Value {
                    system_part,
                    size,
                    metric,
                    value,
                } in values
                {
                    let system = system_part.unwrap_or(system);
                    samples.add(case.name, size, system, metric, value);
                }
            }
            Ok(())
        },
    )?;
    let factors = samples.factors();
    let mut notes = bench.notes;
    for (peer, case, bar) in BARS {
        let bar = |of: &str| (of == case).then_some(bar);
        let lines = compare_with_bars(&factors, peer, Metric::GoodputMbps, bar);
        let is_of_case = |line: &String| line.starts_with(&format!("{case} at"));
        notes.extend(lines.into_iter().filter(is_of_case));
    }
    let rows = samples.rows();
    for row in &rows {
        if row.metric == Metric::GapMs && row.system == OURS {
            let held = if row.median <= GAP_BAR_MS {
                "held"
            } else {
                "NOT HELD"
            };
            let (case, size, median, high) = (&row.case, row.sdu, row.median, row.high);
            notes.push(format!(
                "{case}, writes of {size} bytes: {median:.1} ms without a byte, at most {high:.1}; \
                 bar {GAP_BAR_MS} ms: {held}"
            ));
        }
    }
    Ok(Results {
        bench: "ip".to_owned(),
        machine: machine(),
        notes,
        rows,
        factors,
        failures,
    })
}

/// What the chosen cases need.
struct Bench {
    shared: Option<Site>,
    /// Carina with SDU protection and without.
    ethernet: Option<[Pair; 2]>,
    tunnels: Vec<(&'static str, Tunnel)>,
    has_boringtun: bool,
    notes: Vec<String>,
}

/// A measured value. `system_part` replaces the name of the system, for a second value of it.
struct Value {
    system_part: Option<&'static str>,
    size: u64,
    metric: Metric,
    value: f64,
}

impl Bench {
    fn start(options: &Options<Case>) -> Result<Bench> {
        let has = |works: &[Work]| options.cases.iter().any(|case| works.contains(&case.work));
        let (installed, notes) = peers::installed();
        let mut bench = Bench {
            shared: None,
            ethernet: None,
            tunnels: Vec::new(),
            has_boringtun: installed.contains(&BORINGTUN),
            notes: Vec::new(),
        };
        if has(&[Work::Bulk, Work::RoundTrips]) {
            options.progress.step("making namespaces and interfaces");
            bench.shared = Some(Site::start()?);
            bench.notes.push(NOTE.to_owned());
        }
        if has(&[Work::Ethernet]) {
            options.progress.step("starting two pairs of nodes");
            let start = |protection| Pair::start(protection_label(protection), 1, protection);
            bench.ethernet = Some([start(Protection::Aead)?, start(Protection::None)?]);
            for system in installed {
                options.progress.step(format!("starting {system}"));
                match Tunnel::start(system) {
                    Ok(tunnel) => bench.tunnels.push((system, tunnel)),
                    Err(error) => bench.notes.push(format!("{system}: left out: {error}")),
                }
            }
            bench.notes.push(ETHERNET_NOTE.to_owned());
        }
        if has(&[Work::PathLoss, Work::Move]) {
            bench.notes.push(GAP_NOTE.to_owned());
        }
        if has(&[Work::Ethernet, Work::PathLoss, Work::Move]) {
            bench.notes.extend(notes);
        }
        Ok(bench)
    }

    /// The systems of a case.
    fn systems(&self, work: Work) -> Vec<&'static str> {
        match work {
            Work::Bulk | Work::RoundTrips => SHARED_SYSTEMS.to_vec(),
            Work::Ethernet => {
                let tunnels = self.tunnels.iter().map(|(system, _)| *system);
                [OURS, PLAIN].into_iter().chain(tunnels).collect()
            }
            Work::PathLoss | Work::Move if self.has_boringtun => vec![OURS, BORINGTUN],
            Work::PathLoss | Work::Move => vec![OURS],
        }
    }

    fn measure(
        &self,
        system: &'static str,
        work: Work,
        size: u64,
        time_ns: u64,
    ) -> Result<Vec<Value>> {
        let time = Duration::from_nanos(time_ns);
        let load = Load {
            size: size as usize,
            time,
            is_echoed: work == Work::RoundTrips,
        };
        match (work, &self.shared) {
            (Work::PathLoss | Work::Move, _) => gaps_of(system, work, size, time),
            (Work::Ethernet, _) => {
                let mbps = self.over_ethernet(system, load)?;
                Ok(vec![value(size, Metric::GoodputMbps, mbps)])
            }
            (Work::Bulk | Work::RoundTrips, Some(site)) => {
                let values = site.measure(system, load)?.into_iter();
                Ok(values.map(|(metric, of)| value(size, metric, of)).collect())
            }
            (Work::Bulk | Work::RoundTrips, None) => {
                Err(Error::NoAnswer(format!("{system} is not started")))
            }
        }
    }

    /// Goodput over the Ethernet between two nodes or two daemons, in 10⁶ bits per second.
    fn over_ethernet(&self, system: &str, load: Load) -> Result<f64> {
        let tunnel = self.tunnels.iter().find(|(name, _)| *name == system);
        let nothing = || Error::NoAnswer("nothing has arrived".to_owned());
        let measured = match (tunnel, &self.ethernet) {
            (Some((_, tunnel)), _) => {
                let [client, server] = tunnel.namespaces();
                connection::measure(client, server, peers::SERVER, load)?
            }
            (None, Some(pairs)) => {
                let pair = &pairs[usize::from(system == PLAIN)];
                let [client, server] = pair.namespaces()?;
                connection::measure(&client, &server, pair::SERVER, load)?
            }
            (None, None) => return Err(Error::NoAnswer("it is not started".to_owned())),
        };
        measured.mbps().ok_or_else(nothing)
    }
}

/// Starts the system, measures the gaps of its connections while it is disturbed, and ends it.
fn gaps_of(system: &'static str, work: Work, size: u64, time: Duration) -> Result<Vec<Value>> {
    // Half of the time must be longer than the gap of a system that detects nothing by itself.
    let time = time.max(GAP_TIME_MIN);
    let bytes = size as usize;
    let gaps = if system == BORINGTUN {
        let tunnel = Tunnel::start(system)?;
        let names = tunnel.namespaces();
        outage::measure(names, peers::SERVER, bytes, time, || {
            tunnel.take_down_first()
        })?
    } else {
        let over = if work == Work::PathLoss { 2 } else { 1 };
        let pair = Pair::start("gap", over, Protection::None)?;
        let [client, server] = pair.namespaces()?;
        let names = [&client[..], &server];
        outage::measure(names, pair::SERVER, bytes, time, || match work {
            Work::PathLoss => pair.take_down(LINKS[0]),
            _ => pair.move_client(),
        })?
    };
    let Gaps { bulk, keys } = gaps;
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    let mut values = Vec::new();
    for (size, gap) in [(size, bulk), (outage::KEY_BYTES as u64, keys)] {
        values.push(value(size, Metric::GapMs, ms(gap.after)));
        if system == OURS {
            values.push(Value {
                system_part: Some(UNDISTURBED),
                ..value(size, Metric::GapMs, ms(gap.before))
            });
        }
    }
    Ok(values)
}

fn value(size: u64, metric: Metric, value: f64) -> Value {
    Value {
        system_part: None,
        size,
        metric,
        value,
    }
}

/// Part of the names of the nodes.
fn protection_label(protection: Protection) -> &'static str {
    match protection {
        Protection::None => "plain",
        Protection::Aead => "aead",
    }
}

const NOTE: &str = "one TCP connection; the interfaces of carina and limit take segments of up to \
    64 KiB and leave checksums out, as the veth pair (MTU 1500) does";

const ETHERNET_NOTE: &str = "ethernet: one TCP connection over a veth pair with an MTU of 1500; \
    carina has sdu-protection=aead, plain has none; the daemons encrypt";

const GAP_NOTE: &str = "path-loss, move: two TCP connections at once, of which one sends as much \
    as it can, the other 64 bytes every 2 ms; undisturbed is the longest time without a byte \
    before; boringtun has its first link taken down and roams to the second in both cases";

/// Required ratios of Carina's goodput: to which system, in which case.
const BARS: [(&str, &str, f64); 5] = [
    (LIMIT, "bulk", 0.8),
    (VETH, "bulk", 1.0),
    (BORINGTUN, "ethernet", 1.0),
    (OPENVPN, "ethernet", 3.0),
    (TINC, "ethernet", 3.0),
];

/// Longest permitted time without a byte, in milliseconds.
const GAP_BAR_MS: f64 = 50.0;

/// Least time of a measurement of a gap.
const GAP_TIME_MIN: Duration = Duration::from_secs(4);
