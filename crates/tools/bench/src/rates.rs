//! Measures what one TCP stream gets of a link's rate, and how long an echo takes beside it. The
//! comparison is a veth with the token bucket of the kernel, tc-tbf(8).
//!
//! ```text
//!   carina    node a == veth => af_packet -> shaper -> af_packet => veth == node b
//!   tc-tbf    node a == tbf, veth ======================================== node b
//! ```

use std::time::Duration;

use carina_apps::shaper::ShaperConfig;
use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, GraphError, Workers};
use carina_measure::results::{Metric, OURS, Results, Samples, machine};
use carina_namespaces::{NamespaceAccess, remove_namespaces};
use carina_ports::af_packet::AfPacketConfig;

use crate::Options;
use crate::engine::workers::wrong;
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;
use crate::two_nodes::{ADDRESS_A, ADDRESS_B, Echo, connection, stream};

/// A case of the benchmark: all systems are measured on a link with this rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// Name of the case in the results.
    pub name: &'static str,
    /// The rate in bits per second.
    pub bits_per_second: u64,
}

/// The cases of the benchmark.
pub const CASES: [Case; 5] = [
    case("1M", 1_000_000),
    case("10M", 10_000_000),
    case("50M", 50_000_000),
    case("100M", 100_000_000),
    case("1G", 1_000_000_000),
];

const fn case(name: &'static str, bits_per_second: u64) -> Case {
    Case {
        name,
        bits_per_second,
    }
}

/// Default size of the payload of an echo in bytes.
pub const SIZES: [u64; 1] = [56];
/// Possible sizes of the payload of an echo.
pub const SIZES_POSSIBLE: std::ops::RangeInclusive<usize> = 8..=1472;

const TBF: &str = "tc-tbf";

/// The names of the systems in the order of the tables.
pub const SYSTEMS: [&str; 2] = [OURS, TBF];

/// The tables to print, four for each case: name of the case, metric, and title of the table.
pub const TABLES: [(&str, Metric, &str); 4 * CASES.len()] = {
    let columns = [
        (Metric::GoodputMbps, "goodput of one TCP stream, Mbit/s"),
        (Metric::RttUs, "mean round trip on the idle link, µs"),
        (Metric::RttP50Us, "median round trip beside the stream, µs"),
        (Metric::RttP99Us, "99th percentile beside the stream, µs"),
    ];
    let mut tables = [("", Metric::GoodputMbps, ""); 4 * CASES.len()];
    let mut at = 0;
    while at < tables.len() {
        let (metric, title) = columns[at % 4];
        tables[at] = (CASES[at / 4].name, metric, title);
        at += 1;
    }
    tables
};

/// Runs the benchmark, in a network namespace that this process has for itself. A system that the
/// kernel does not support is not measured; the notes say so.
///
/// # Errors
/// The system refuses something that all measurements need, or too many measurements in succession
/// fail.
pub fn run(options: &Options<Case>) -> Result<Results> {
    let (mut samples, mut notes) = (Samples::default(), notes());
    let time = Duration::from_nanos(options.time_ns);
    let mut has_tbf = true;
    let failures = options.measure_each(
        |case| case.name,
        |_, case, size| {
            for system in SYSTEMS {
                if system == TBF && !has_tbf {
                    continue;
                }
                let measured = Link::new(system, case.bits_per_second)
                    .and_then(|link| link.map(|link| link.measure(time, size)).transpose());
                let Some(measured) = measured.map_err(|error| error.in_case(system))? else {
                    has_tbf = false;
                    notes.push(format!("{system} was not measured: this kernel has no tbf"));
                    continue;
                };
                for (metric, value) in measured {
                    samples.add(case.name, size, system, metric, value);
                }
            }
            Ok(())
        },
    )?;
    Ok(Results {
        bench: "rates".to_owned(),
        machine: machine(),
        notes,
        rows: samples.rows(),
        factors: samples.factors(),
        failures,
    })
}

fn notes() -> Vec<String> {
    vec![
        "goodput: bytes of the stream that the receiver got, without headers, which take 4 % of \
         the rate"
            .to_owned(),
        format!(
            "{OURS}: the graph of a link of `carina vnet` on one worker, between two namespaces"
        ),
        format!("{TBF}: a veth between the namespaces; a burst of 5 ms, a queue of 50 ms"),
    ]
}

/// Two nodes with a link. Dropping the value removes them.
struct Link {
    /// Moves the frames of the link.
    workers: Option<Workers>,
    access: NamespaceAccess,
}

impl Link {
    /// Makes a link of this rate; `None` if the kernel does not support the system.
    fn new(system: &str, bits_per_second: u64) -> Result<Option<Link>> {
        let mut link = Link {
            workers: None,
            access: NamespaceAccess::of_root(),
        };
        for namespace in [A, B, PORTS] {
            link.access.ip(&["netns", "add", namespace])?;
        }
        let peers = if system == OURS {
            [(A, "link0", "port0", PORTS), (B, "link0", "port1", PORTS)].as_slice()
        } else {
            [(A, "link0", "link0", B)].as_slice()
        };
        for (namespace, name, peer, beside) in peers {
            let words = format!(
                "-n {namespace} link add name {name} type veth peer name {peer} netns {beside}"
            );
            link.access.ip(&words.split(' ').collect::<Vec<_>>())?;
        }
        for (namespace, address) in [(A, ADDRESS_A), (B, ADDRESS_B)] {
            let lines = [
                format!("address add {address}/24 dev link0"),
                "link set dev link0 up".to_owned(),
            ];
            link.access.ip_batch(namespace, &lines)?;
        }
        if system == OURS {
            let up = |port: &str| format!("link set dev {port} up");
            link.access.ip_batch(PORTS, &PORT_NAMES.map(up))?;
            let graph = graph(bits_per_second).map_err(wrong)?;
            // The worker is a child of this thread, so it runs in the same namespace.
            link.workers = Some(within(PORTS, || start(&graph))?);
            return Ok(Some(link));
        }
        let burst = (bits_per_second / 8 / 200).max(1600);
        let words = format!(
            "qdisc add dev link0 root tbf rate {bits_per_second}bit burst {burst} latency 50ms"
        );
        let shaped = [A, B].iter().all(|namespace| {
            let mut command = link.access.command_in(namespace, "tc");
            let status = command.args(words.split(' ')).status();
            status.is_ok_and(|status| status.success())
        });
        Ok(shaped.then_some(link))
    }

    /// Measures echos on the idle link, then a stream and echos beside it. The first third of the
    /// time of the stream warms up.
    fn measure(&self, time: Duration, size: u64) -> Result<[(Metric, f64); 4]> {
        let echo = Echo::between([A, B], size, ECHO_EVERY)?;
        // The first echo waits until the nodes know each other's MAC addresses.
        echo.round_trips(ECHO_EVERY)?;
        let idle = echo.round_trips(time / 3)?;
        let (warm, mut full) = (time / 3, Vec::new());
        let sender = connection([A, B])?;
        let goodput = stream(sender, warm, time, || {
            full = echo.round_trips(time)?;
            Ok(())
        })?;
        full.sort_unstable();
        let micros = |at: usize| {
            let found = full.get(at * full.len() / 100);
            let found = found.ok_or_else(|| Error::NoAnswer("no echo came back".to_owned()))?;
            Ok::<f64, Error>(found.as_secs_f64() * 1e6)
        };
        let sum: Duration = idle.iter().sum();
        Ok([
            (Metric::GoodputMbps, goodput),
            (
                Metric::RttUs,
                sum.as_secs_f64() * 1e6 / idle.len().max(1) as f64,
            ),
            (Metric::RttP50Us, micros(50)?),
            (Metric::RttP99Us, micros(99)?),
        ])
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.workers = None;
        // If this fails, the kernel removes them with the namespaces of this process.
        let names = [A, B, PORTS].map(str::to_owned);
        let _ = remove_namespaces(&self.access, &names);
    }
}

/// The graph of a link: two ports and a shaper in each direction.
fn graph(bits_per_second: u64) -> std::result::Result<Graph, GraphError> {
    let mut graph = Graph::new();
    for (port, other) in [(0, 1), (1, 0)] {
        let (name, next) = (PORT_NAMES[port], PORT_NAMES[other]);
        graph.app(name, AfPacketConfig::of(name));
        graph.app(
            &format!("rate{port}"),
            ShaperConfig::of_rate(bits_per_second),
        );
        graph.link(&format!("{name}.output -> rate{port}.input"))?;
        graph.link(&format!("rate{port}.output -> {next}.input"))?;
    }
    Ok(graph)
}

fn start(graph: &Graph) -> Result<Workers> {
    let counters = CounterFile::private().attempt("counters")?;
    let mut workers = Workers::new(PoolConfig::default(), counters);
    workers.configure(graph).map_err(wrong)?;
    Ok(workers)
}

const A: &str = "rates-a";
const B: &str = "rates-b";
const PORTS: &str = "rates-ports";
const PORT_NAMES: [&str; 2] = ["port0", "port1"];
/// Time between an answer and the next echo.
const ECHO_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_of_the_benchmark_has_a_shaper_each_way() {
        let graph = graph(1_000_000).unwrap();
        graph.check().unwrap();
        let shapers = graph.apps().filter(|(_, kind)| *kind == "shaper");
        assert_eq!((graph.apps().count(), shapers.count()), (4, 2));
        assert_eq!(TABLES[7], ("10M", Metric::RttP99Us, TABLES[3].2));
    }
}
