//! The programs that are measured, one module for each. They know nothing of Carina.

mod iperf3;
mod nginx;
mod python;
mod redis;
pub(super) mod tcp;

use std::path::Path;

use carina_measure::results::Metric;

use super::Work;
use crate::error::Result;
use crate::installed::path_of;

/// A server, and its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Python,
    Iperf3,
    Redis,
    Nginx,
    Tcp,
}

/// Where a server listens, and what it may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    /// A directory of the server's own.
    pub(super) directory: &'a Path,
    /// Path of this program.
    pub(super) carina: &'a str,
    /// Address on which the server listens.
    pub(super) address: &'a str,
    /// Port on which the server listens.
    pub(super) port: u16,
}

/// What a client does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) work: Work,
    /// Path of this program.
    pub(super) carina: &'a str,
    /// Name or address of the server.
    pub(super) host: &'a str,
    /// Port of the server.
    pub(super) port: u16,
    /// Port of the HTTP proxy through which the client connects, if it does.
    pub(super) proxy: Option<u16>,
    /// Size of messages, values or files in bytes.
    pub(super) size: u64,
    /// How long the client works, in nanoseconds.
    pub(super) time_ns: u64,
    /// How many requests a client makes that does not work for a time.
    pub(super) count: u64,
}

impl Program {
    pub(super) const ALL: [Program; 5] = [
        Program::Python,
        Program::Iperf3,
        Program::Redis,
        Program::Nginx,
        Program::Tcp,
    ];

    /// The program of a case.
    pub(super) fn of(work: Work) -> Program {
        match work {
            Work::Bulk | Work::RoundTrips => Program::Python,
            Work::Iperf3 => Program::Iperf3,
            Work::Redis { .. } | Work::Connections => Program::Redis,
            Work::Wrk => Program::Nginx,
            Work::Static | Work::StaticRoundTrips | Work::Many { .. } => Program::Tcp,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Program::Python => "python",
            Program::Iperf3 => "iperf3",
            Program::Redis => "redis",
            Program::Nginx => "nginx",
            Program::Tcp => "static",
        }
    }

    /// Port of the wrapped server. It is only part of a name: no socket of the kernel has it.
    pub(super) fn wrapped_port(self) -> u16 {
        FIRST_PORT + self as u16
    }

    /// The programs of the system that are needed and not installed.
    pub(super) fn missing(self) -> Vec<&'static str> {
        let needed: &[&str] = match self {
            Program::Python => &["python3"],
            Program::Iperf3 => &["iperf3"],
            Program::Redis => &["redis-server", "redis-benchmark"],
            Program::Nginx => &["nginx", "wrk"],
            Program::Tcp => &[],
        };
        let needed = needed.iter().copied();
        needed.filter(|name| path_of(name).is_none()).collect()
    }

    /// The command of the server.
    ///
    /// # Errors
    /// A file of the server cannot be written.
    pub(super) fn server(self, place: Place<'_>) -> Result<Vec<String>> {
        Ok(match self {
            Program::Python => python::server(place),
            Program::Iperf3 => iperf3::server(place),
            Program::Redis => redis::server(place),
            Program::Nginx => nginx::server(place)?,
            Program::Tcp => tcp::server(place),
        })
    }

    /// Makes what the server needs for this size.
    ///
    /// # Errors
    /// A file of the server cannot be written.
    pub(super) fn prepare(self, directory: &Path, size: u64) -> Result<()> {
        match self {
            Program::Nginx => nginx::make_file(directory, size),
            _ => Ok(()),
        }
    }

    /// The command of the client.
    pub(super) fn client(self, job: Job<'_>) -> Vec<String> {
        match self {
            Program::Python => python::client(job),
            Program::Iperf3 => iperf3::client(job),
            Program::Redis => redis::client(job),
            Program::Nginx => nginx::client(job),
            Program::Tcp => tcp::client(job),
        }
    }

    /// The values that the client has printed; `None` if it has not measured any.
    pub(super) fn values(self, work: Work, printed: &str) -> Option<Vec<(Metric, f64)>> {
        match self {
            Program::Python | Program::Tcp => python::values(work, printed),
            Program::Iperf3 => iperf3::goodput_mbps(printed).map(|of| vec![goodput(of)]),
            Program::Redis => redis::per_second(printed).map(|of| vec![rate(of)]),
            Program::Nginx => nginx::per_second(printed).map(|of| vec![rate(of)]),
        }
    }

    /// Whether the client works for a number of requests instead of a time.
    pub(super) fn counts(self) -> bool {
        self == Program::Redis
    }
}

fn goodput(mbps: f64) -> (Metric, f64) {
    (Metric::GoodputMbps, mbps)
}

fn rate(per_second: f64) -> (Metric, f64) {
    (Metric::MsgsPerS, per_second)
}

/// Whole seconds of a time, at least one, for programs that take no fractions.
fn seconds(time_ns: u64) -> String {
    time_ns.div_ceil(1_000_000_000).max(1).to_string()
}

/// Port of the first wrapped server.
const FIRST_PORT: u16 = 7000;
