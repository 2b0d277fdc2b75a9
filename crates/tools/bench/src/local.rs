//! Measures flows between two processes of one host; a bare ring, Unix sockets, UDP and TCP are the
//! comparison.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use carina_client::FlowSpec;
use carina_measure::results::{Metric, OURS, Results, machine};
use carina_measure::transport::bare::BarePlace;
use carina_measure::trial::job::Direction;
use carina_measure::trial::target::Target;

use crate::Progress;
use crate::client::Client;
use crate::comparison::{Comparison, Pin, System, TransportSpec};
use crate::error::{Error, Result};
use crate::peer::{app_name, client_of, start_peer};
use carina_lab::{Network, TestNode};

/// Default SDU sizes in bytes.
pub const SIZES: [u64; 5] = [64, 512, 1500, 4000, 65_536];
/// The cases: name, and direction.
const CASES: [(&str, Direction); 2] = [("one-way", Direction::Forward), ("echo", Direction::Echo)];

/// Which SDU sizes to measure between two processes of this host, for how long, how often, and with
/// which processes pinned.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// Number of times that each system is measured, per case and SDU size.
    pub runs: usize,
    /// Duration of a single measurement in nanoseconds.
    pub time_ns: u64,
    /// SDU sizes in bytes at which each system is measured.
    pub sizes: Vec<u64>,
    /// The systems whose processes are pinned.
    pub pin: Pin,
    /// Called with a line of text at each step of the benchmark.
    pub progress: Progress,
}

/// The systems in the order of the tables.
pub const SYSTEMS: [&str; 5] = [OURS, "limit", "unix", "udp", "tcp"];

/// Starts a node and a server process, and measures flows between two processes and the systems
/// that they are compared with.
///
/// # Errors
/// The node or a measurement fails.
pub fn run(options: &LocalOptions) -> Result<Results> {
    options
        .progress
        .step("starting a node and a second process");
    let mut node = TestNode::start("local", Network::Shared, None)?;
    let peer = app_name("carina.bench.peer")?;
    start_peer(&mut node, &peer)?;
    let target = Target {
        node: client_of(&node)?,
        local: app_name("carina.bench")?,
        remote: peer,
        dif: None,
        spec: FlowSpec::reliable(),
        wait: REACH,
    };
    let mut client = Client::open(target)?;
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let file = |name: &str| node.path().join(name);
    let rings = BarePlace::file_at(file("bare.rings"));
    let transports = [
        TransportSpec::Flow(None),
        TransportSpec::Bare {
            client: rings.clone(),
            server: rings,
        },
        TransportSpec::Unix(file("seqpacket.sock")),
        TransportSpec::Udp {
            through: None,
            server: loopback,
            client: loopback,
        },
        TransportSpec::Tcp(loopback),
    ];
    let systems = SYSTEMS
        .into_iter()
        .zip(transports)
        .map(|(name, transport)| System { name, transport });
    let comparison = Comparison {
        cases: CASES.to_vec(),
        systems: systems.collect(),
        sizes: options.sizes.clone(),
        echo_sizes: options.sizes.clone(),
        runs: options.runs,
        time_ns: options.time_ns,
        pin: options.pin,
        progress: options.progress,
    };
    let (samples, failures) = comparison
        .run(&mut client)
        .map_err(|error| Error::with(error, node.logs()))?;
    Ok(Results {
        bench: "local".to_owned(),
        machine: machine(),
        notes: notes(options),
        rows: samples.rows(),
        factors: samples.factors(),
        failures,
    })
}

fn notes(options: &LocalOptions) -> Vec<String> {
    let mut notes = vec![
        "two processes for every system; goodput counts bytes that the receiving process got"
            .to_owned(),
        "limit: a bare shared-memory ring, one copy in and one out, both ends spinning, pinned to \
         CPUs 0 and 1"
            .to_owned(),
        "udp: dropped datagrams do not count; 65536 bytes do not fit into one datagram".to_owned(),
    ];
    notes.push(match options.pin {
        Pin::Never => "nothing is pinned".to_owned(),
        Pin::Limit => "carina is not pinned".to_owned(),
        Pin::Shared => "carina is pinned like the limit; the kernel's means are left to the \
                        scheduler, where they are faster"
            .to_owned(),
        Pin::All => "all systems are pinned to CPUs 0 and 1".to_owned(),
    });
    notes
}

/// How long the second process may take until it can be reached after a failed measurement.
const REACH: Duration = Duration::from_secs(30);

/// The tables of the results: case, metric, and title.
pub const TABLES: [(&str, Metric, &str); 6] = [
    ("one-way", Metric::GoodputMbps, "goodput, Mbit/s"),
    ("one-way", Metric::MsgsPerS, "SDUs per second"),
    (
        "one-way",
        Metric::CpuNsPerSdu,
        "CPU time of both processes per SDU, ns",
    ),
    ("echo", Metric::RttUs, "round-trip time, mean, µs"),
    ("echo", Metric::RttP50Us, "round-trip time, median, µs"),
    ("echo", Metric::RttP99Us, "round-trip time, 99 of 100, µs"),
];
