//! Links between two namespaces of one host: those of a virtual network, and a bridge of the kernel
//! between two veths.
//!
//! ```text
//!   carina   node a == veth => the link's path => veth == node b
//!   bridge   node a == veth => bridge => veth == node b
//! ```

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use carina_api::paths::RunDir;
use carina_frame::PoolConfig;
use carina_frame_engine::counter_file::CounterFile;
use carina_frame_engine::{Graph, Workers};
use carina_measure::results::{Metric, OURS, Samples};
use carina_namespaces::{NamespaceAccess, namespace_file, remove_namespaces};
use carina_ports::af_packet::AfPacketConfig;
use carina_scratch::Scratch;
use carina_vnet::document::{Document, Form};
use carina_vnet::report::{LinkPath, VnetState};
use carina_vnet_host::Agent;
use carina_vnet_host::names::node_namespace;

use super::flow::Flows;
use crate::engine::workers::wrong;
use crate::error::{Attempt, Error, Result};
use crate::in_namespace::within;
use crate::two_nodes::{ADDRESS_A, ADDRESS_B, Echo, connection, stream};

/// What crosses a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// One TCP stream.
    Stream,
    /// Frames of 64 bytes at the highest rate.
    Frames,
    /// One UDP echo after the other.
    Echoes,
}

/// The systems that carry the links.
pub(super) const SYSTEMS: [&str; 2] = [OURS, BRIDGE];

/// Measures both systems, one after the other. `limit` is the rate of the link in bits a second, if
/// it has one. Frames are generated on the processor `cpu`.
pub(super) fn measure(
    (case, traffic, limit): (&str, Traffic, Option<u64>),
    samples: &mut Samples,
    time_ns: u64,
    cpu: usize,
) -> Result<()> {
    for system in SYSTEMS {
        let measured = Pair::new(system, limit)
            .and_then(|pair| pair.measure(traffic, Duration::from_nanos(time_ns), cpu));
        let (size, metric, value) = measured.map_err(|error| error.in_case(system))?;
        samples.add(case, size, system, metric, value);
    }
    Ok(())
}

/// Two namespaces with a link. Dropping the value removes them.
struct Pair {
    /// Names of the two namespaces.
    nodes: [String; 2],
    network: Option<Network>,
    access: NamespaceAccess,
}

/// A virtual network in the agent of this process.
struct Network {
    agent: Agent,
    _directory: Scratch,
}

impl Pair {
    fn new(system: &str, limit: Option<u64>) -> Result<Pair> {
        let access = NamespaceAccess::of_root();
        if system == OURS {
            let (network, nodes) = Network::new(limit)?;
            return Ok(Pair {
                nodes,
                network: Some(network),
                access,
            });
        }
        let pair = Pair {
            nodes: [A, B].map(str::to_owned),
            network: None,
            access,
        };
        pair.bridge(limit)?;
        Ok(pair)
    }

    /// Joins the two namespaces by a bridge in a third one.
    fn bridge(&self, limit: Option<u64>) -> Result<()> {
        let access = &self.access;
        for namespace in [A, B, BETWEEN] {
            access.ip(&["netns", "add", namespace])?;
        }
        let mut lines = vec!["link add name br0 type bridge".to_owned()];
        for (port, node) in [("p0", A), ("p1", B)] {
            lines.extend([
                format!("link add name {port} type veth peer name {INTERFACE} netns {node}"),
                format!("link set dev {port} master br0"),
                format!("link set dev {port} up"),
            ]);
        }
        lines.push("link set dev br0 up".to_owned());
        access.ip_batch(BETWEEN, &lines)?;
        for (node, address) in [(A, ADDRESS_A), (B, ADDRESS_B)] {
            let lines = [
                format!("address add {address}/30 dev {INTERFACE}"),
                format!("link set dev {INTERFACE} up"),
            ];
            access.ip_batch(node, &lines)?;
        }
        if let Some(rate) = limit {
            let bucket = format!("rate {rate}bit burst {BURST} latency 5ms");
            let lines = ["p0", "p1"].map(|port| format!("qdisc add dev {port} root tbf {bucket}"));
            access.tc_batch(BETWEEN, &lines)?;
        }
        Ok(())
    }

    /// Measures for `time`, after a warm-up of a third of `time`.
    fn measure(&self, traffic: Traffic, time: Duration, cpu: usize) -> Result<(u64, Metric, f64)> {
        let nodes = self.nodes.each_ref().map(String::as_str);
        // The first echo waits until the nodes know each other's MAC addresses.
        let echo = Echo::between(nodes, ECHO_BYTES, Duration::ZERO)?;
        echo.round_trips(time / 3)?;
        match traffic {
            Traffic::Echoes => {
                let times = echo.round_trips(time)?;
                let sum: Duration = times.iter().sum();
                if times.is_empty() {
                    return Err(Error::NoAnswer("no echo came back".to_owned()));
                }
                let mean = sum.as_secs_f64() * 1e6 / times.len() as f64;
                Ok((ECHO_BYTES, Metric::RttUs, mean))
            }
            Traffic::Stream => {
                let goodput = stream(connection(nodes)?, time / 3, time, || {
                    sleep(time);
                    Ok(())
                })?;
                Ok((STREAM_BYTES, Metric::GoodputMbps, goodput))
            }
            Traffic::Frames => {
                let mpps = self.frames(time, cpu)?;
                Ok((FRAME_BYTES, Metric::Mpps, mpps))
            }
        }
    }

    /// Sends frames from the first namespace. Returns how many arrive at the second one, in 10^6 a
    /// second.
    fn frames(&self, time: Duration, cpu: usize) -> Result<f64> {
        let [near, far] = &self.nodes;
        let flows = Flows::by_number(1, FRAME_BYTES as usize);
        let mut graph = Graph::new();
        graph.app("source", flows.sources[0].clone());
        let port = AfPacketConfig {
            netns: Some(namespace_file(near)),
            ..AfPacketConfig::of(INTERFACE)
        };
        graph.app("port", port);
        graph.link("source.output -> port.input").map_err(wrong)?;
        graph.cpus(&[cpu]);
        let counters = CounterFile::private().attempt("counters")?;
        let mut workers = Workers::new(PoolConfig::default(), counters);
        workers.configure(&graph).map_err(wrong)?;
        sleep(time / 3);
        let (start, before) = (Instant::now(), arrived(far)?);
        sleep(time);
        let (wall, after) = (start.elapsed(), arrived(far)?);
        match after - before {
            0 => Err(Error::NoAnswer("no frame came through".to_owned())),
            frames => Ok(frames as f64 / wall.as_secs_f64() / 1e6),
        }
    }
}

/// Number of frames that the interface of a namespace has received.
fn arrived(namespace: &str) -> Result<u64> {
    within(namespace, || {
        let path = "/proc/thread-self/net/dev";
        let text = fs::read_to_string(path).attempt(path)?;
        super::veths::received_by(INTERFACE, &text)
    })
}

impl Network {
    fn new(limit: Option<u64>) -> Result<(Network, [String; 2])> {
        let directory = Scratch::new("vnet-bench-forward")?;
        let refused = |error: carina_vnet_host::Error| Error::Proc(error.to_string());
        let agent = Agent::new(&RunDir::new(directory.path())).map_err(refused)?;
        let network = Network {
            agent,
            _directory: directory,
        };
        let rate = limit.map_or(UNLIMITED.to_owned(), |rate| format!("{rate}bps"));
        let text = format!(
            "[vnet]\nname = \"{NAME}\"\n[defaults]\nkind = \"namespace\"\n[node.a]\n[node.b]\n\
             [[link]]\nends = [\"a\", \"b\"]\nrate = \"{rate}\"\nmtu = 1500\n"
        );
        let document = Document::read(&text, Form::Toml).expect("the document is well formed");
        network.agent.create(&document).map_err(refused)?;
        let report = loop {
            let report = network.agent.report(NAME).map_err(refused)?;
            if report.state != VnetState::Changing {
                break report;
            }
            sleep(LOOK);
        };
        let path = report.links.first().and_then(|link| link.path);
        if report.state != VnetState::Ready || path != Some(LinkPath::Kernel) {
            return Err(Error::Proc(format!(
                "the network is {:?}, and the path of its link {path:?}: {}",
                report.state,
                report.obstacles.join("; ")
            )));
        }
        let nodes = ["a", "b"].map(|node| node_namespace(report.vnet, node));
        Ok((network, nodes))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // If this fails, the kernel removes the namespaces with those of this process.
        let _ = self.agent.remove(NAME);
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.network.is_none() {
            let names = [A, B, BETWEEN].map(str::to_owned);
            let _ = remove_namespaces(&self.access, &names);
        }
    }
}

const BRIDGE: &str = "bridge";
const A: &str = "forward-a";
const B: &str = "forward-b";
const BETWEEN: &str = "forward-bridge";
const NAME: &str = "forward";
/// The interface of both nodes.
const INTERFACE: &str = "eth0";
/// A rate that is not limited on the kernel's path.
const UNLIMITED: &str = "1000Gbps";
/// Burst of the bridge's rate limits in bytes, the same as for a link at 10 Gbps.
const BURST: u64 = 312_500;
const ECHO_BYTES: u64 = 56;
const FRAME_BYTES: u64 = 64;
const STREAM_BYTES: u64 = 1500;
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_traffic_crosses_both_systems() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIP: network namespaces are made by root");
            return;
        }
        let cpu = *carina_sys::allowed_cpus().unwrap().last().unwrap();
        let traffic = [
            (Traffic::Stream, Metric::GoodputMbps),
            (Traffic::Frames, Metric::Mpps),
            (Traffic::Echoes, Metric::RttUs),
        ];
        for limit in [None, Some(10_000_000_000)] {
            let mut samples = Samples::default();
            for (traffic, metric) in traffic {
                let what = ("case", traffic, limit);
                measure(what, &mut samples, 300_000_000, cpu).unwrap();
                for system in SYSTEMS {
                    let rows = samples.rows();
                    let is_it = |row: &&carina_measure::results::Row| {
                        row.system == system && row.metric == metric
                    };
                    let row = rows.iter().find(is_it).unwrap();
                    println!("{limit:?} {system} {metric:?} {}", row.median);
                    assert!(row.median > 0.0, "{row:?}");
                }
            }
        }
    }
}
