//! Measures unmodified programs over flows: clients and servers whose TCP connections `carina wrap`
//! makes flows. TCP over the loopback interface, relays, and the networks of namespaces are the
//! comparison.
//!
//! ```text
//!   client ================ flow ================ server      carina: both wrapped
//!   client -- TCP ------------------------------- server      tcp
//!   client -- TCP -- connect == flow == expose -- server      connect
//!   client -- TCP -- relay -- TCP --------------- server      proxy, socat, ssh
//!   client in a namespace -- daemon -- TCP ------ server      pasta, slirp4netns
//! ```
//!
//! The systems are measured one right after the other, and take turns at being first.

mod bars;
mod processes;
mod programs;
mod site;
mod sshd;
mod systems;
pub mod vm;

use std::ops::RangeInclusive;

use carina_measure::results::{Metric, OURS, Results, Samples, machine};

use self::site::Site;
use crate::Options;
use crate::error::Result;
use crate::options::in_turns;

pub use self::programs::tcp::{TcpJob, run_client as run_tcp_client, serve as serve_tcp};

/// A case: its name in the results, what the programs do, and the default sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// What the programs do.
    pub work: Work,
    /// Default sizes in bytes: of a message, a value or a file.
    pub sizes: &'static [u64],
}

/// What a client does with its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// Python: the client sends, the server counts.
    Bulk,
    /// Python: the client sends a message and waits for its answer.
    RoundTrips,
    /// iperf3: the client sends on one connection.
    Iperf3,
    /// redis-benchmark: 50 clients store values.
    Redis {
        /// Number of commands that a client sends before it waits for answers.
        pipeline: u32,
    },
    /// redis-benchmark: one client makes a connection for each command.
    Connections,
    /// wrk: 16 connections get a file from nginx, again and again.
    Wrk,
    /// A static program: the client sends, the server counts.
    Static,
    /// A static program: the client sends a message and waits for its answer.
    StaticRoundTrips,
    /// A program without `carina wrap` sends on many connections at once. The systems are relays.
    Many {
        /// Number of connections.
        connections: u32,
    },
}

/// The cases of the benchmark.
pub const CASES: [Case; 12] = [
    case("bulk", Work::Bulk, &[64, 65_536]),
    case("round-trips", Work::RoundTrips, &[64, 65_536]),
    case("iperf3", Work::Iperf3, &[131_072]),
    case("redis", Work::Redis { pipeline: 1 }, &[3]),
    case("redis-pipelined", Work::Redis { pipeline: 16 }, &[3]),
    case("wrk", Work::Wrk, &[612]),
    case("static", Work::Static, &[65_536]),
    case("static-round-trips", Work::StaticRoundTrips, &[64]),
    case("connections", Work::Connections, &[3]),
    case("many-1", Work::Many { connections: 1 }, &[65_536]),
    case("many-16", Work::Many { connections: 16 }, &[65_536]),
    case("many-256", Work::Many { connections: 256 }, &[65_536]),
];

const fn case(name: &'static str, work: Work, sizes: &'static [u64]) -> Case {
    Case { name, work, sizes }
}

/// Possible sizes in bytes: the server's buffer has room for the largest.
pub const SIZES_POSSIBLE: RangeInclusive<usize> = 1..=1 << 20;

/// Name of the relay of Carina that needs no change of the client.
pub const CONNECT: &str = "connect";

/// Name of the proxy of Carina, which relays bytes as [`RELAY`] does.
pub const PROXY: &str = "proxy";

/// Name of TCP over the loopback interface.
pub const TCP: &str = "tcp";

/// Name of the relay that [`PROXY`] and [`CONNECT`] are compared with.
pub const RELAY: &str = "socat";

/// Name of the relay through a connection of OpenSSH (`ssh -L`).
pub const SSH: &str = "ssh";

/// Name of the network of namespaces that passt's authors make.
pub const PASTA: &str = "pasta";

/// Name of the network of namespaces that rootless containers have.
pub const SLIRP: &str = "slirp4netns";

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 8] = [OURS, TCP, CONNECT, PROXY, RELAY, SSH, PASTA, SLIRP];

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 16] = [
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
    ("iperf3", Metric::GoodputMbps, "iperf3, goodput, Mbit/s"),
    ("redis", Metric::MsgsPerS, "redis, commands a second"),
    (
        "redis-pipelined",
        Metric::MsgsPerS,
        "redis, commands a second, 16 at once",
    ),
    ("wrk", Metric::MsgsPerS, "nginx, requests a second"),
    (
        "static",
        Metric::GoodputMbps,
        "static program, goodput, Mbit/s",
    ),
    (
        "static-round-trips",
        Metric::MsgsPerS,
        "static program, round trips a second",
    ),
    (
        "static-round-trips",
        Metric::RttP50Us,
        "static program, round-trip time, median, µs",
    ),
    (
        "static-round-trips",
        Metric::RttP99Us,
        "static program, round-trip time, 99 of 100, µs",
    ),
    (
        "connections",
        Metric::MsgsPerS,
        "redis, connections a second",
    ),
    ("many-1", Metric::GoodputMbps, "1 connection, Mbit/s"),
    ("many-16", Metric::GoodputMbps, "16 connections, Mbit/s"),
    ("many-256", Metric::GoodputMbps, "256 connections, Mbit/s"),
];

/// Starts a node, and the servers and systems that the cases need, and measures. Without sizes each
/// case has its own. Programs that are not installed are left out, with a note. Failed measurements
/// are reported in addition to the samples of the other systems.
///
/// # Errors
/// Something does not start, or too many measurements in succession fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let works: Vec<Work> = options.cases.iter().map(|case| case.work).collect();
    let mut site = Site::start(&works, options.progress)?;
    let mut samples = Samples::default();
    let mut failures = Vec::new();
    let cases = options.cases.iter().copied();
    let cases: Vec<Case> = cases.filter(|case| site.can(case.work)).collect();
    for case in cases {
        let failed = options.of_case(case, case.sizes).measure_each(
            |case| case.name,
            |run, case, size| {
                let systems = site.systems(case.work);
                let all = in_turns(run, systems, |system| {
                    let values = site.measure(system, case.work, size, options.time_ns);
                    values.map_err(|error| error.in_case(system))
                });
                for (system, values) in all? {
                    for (metric, value) in values {
                        samples.add(case.name, size, system, metric, value);
                    }
                }
                Ok(())
            },
        )?;
        failures.extend(failed);
    }
    let mut notes = site.into_notes();
    notes.extend(bars::compare(&samples));
    Ok(Results {
        bench: "wrap".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: samples.factors(),
        failures,
    })
}
