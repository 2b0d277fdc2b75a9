//! A forwarder: frames that arrive at one port leave at another.
//!
//! ```text
//!   wire:  A --[hop]*--> B, B --[hop]*--> A; of one port: A --[hop]+--> A
//!   mac:   A, B, C ... <--> bridge
//!   route: [`routing`]
//! ```

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use carina_frame::PoolConfig;
use carina_frame_engine::counter_file;
use carina_frame_engine::{ConfigureError, Graph, LinkCounts, LinkName};
use carina_graph::graph_file::{GraphFileError, read_graph_of};
use carina_graph::runner::{GraphRunner, RunnerError};
use carina_time::Duration;
use serde::Serialize;

use crate::port::{PortError, PortSpec, check_names, frame_bytes_for, port_error};

pub mod routing;

pub use self::routing::{Next, Routes, Station};
pub use crate::destination::Destination;

/// The ports of a forwarder, and how it forwards.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// The ports between which frames are forwarded.
    pub ports: Vec<PortSpec>,
    /// Number of hops between input and output. Each hop swaps the MAC addresses and decrements the
    /// TTL or hop limit. With [`By::Route`] there is at least one.
    pub hops: usize,
    /// How the output port of a frame is chosen.
    pub by: By,
}

/// How the forwarder chooses the output of a frame.
#[derive(Clone, Debug)]
pub enum By {
    /// The frame leaves by the other of two ports; if there is only one port, by that port.
    Wire,
    /// The port at which the destination MAC address was last seen as a source; all other ports if
    /// no port has seen the address, as in a switch.
    Mac,
    /// The port of the longest prefix that matches the destination IP address.
    Route(Routes),
}

/// Why a forwarder cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The text of a port on the command line is not valid.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The number of ports does not suit a wire, which needs two ports, or one port and at least
    /// one hop; holds the number.
    #[error("ports: {0}: a wire needs two ports, or one port and at least one hop")]
    Wire(usize),
    /// Fewer than two ports to forward between; holds their number.
    #[error("ports: {0}: must be at least 2")]
    TooFew(usize),
    /// Hops are requested, but a bridge has none.
    #[error(
        "hops are possible by wire and by route only: forwarding by MAC address does not change \
         frames"
    )]
    Hops,
    /// The number of hops exceeds the largest TTL; holds the number of hops.
    #[error("{0} hops: must be at most {HOPS_MAX}")]
    TooManyHops(usize),
    /// Forwarding by route: a port has no address, or no next hop of the IP version of its address.
    #[error(
        "{port} lacks an address, or a next hop of the same IP version: forwarding by route needs \
         both for every port, such as --address {port}=10.0.0.1 --next {port}=10.0.0.2"
    )]
    NoStation {
        /// Name of the port for which no address or no next hop is given.
        port: String,
    },
    /// Forwarding by route: a port has two addresses of one IP version.
    #[error(
        "{port} has another address of the IP version of {address}; give a port one address of \
         each version"
    )]
    TwoStations {
        /// Name of the port with two addresses.
        port: String,
        /// The address that is given in addition to another one of its IP version.
        address: IpAddr,
    },
    /// A route leads to a port that has no address or next hop of the route's IP version.
    #[error(
        "the route of {destination} leads to {port}, which lacks an address and a next hop of \
         this IP version; give both with --address and --next"
    )]
    OtherVersion {
        /// The destinations of the route.
        destination: Destination,
        /// Name of the port to which the route leads.
        port: String,
    },
    /// There is a file of routes, but no port with an address of their IP version.
    #[error("{0} has routes of {1}, but no port has an {1} address; give one with --address")]
    NoVersion(&'static str, &'static str),
    /// An address, a next hop or a route names a port that does not exist.
    #[error("there is no port {name}; the ports are {known}")]
    NoPort {
        /// The name that an address, a next hop or a route gives, and no port has.
        name: String,
        /// The names of all ports.
        known: String,
    },
    /// The graph of apps for the forwarder is not valid.
    #[error(transparent)]
    Graph(#[from] GraphFileError),
    /// An app cannot be made.
    #[error(transparent)]
    Configure(#[from] ConfigureError),
    /// The engine cannot be started.
    #[error(transparent)]
    Runner(#[from] RunnerError),
}

impl Forwarder {
    /// The graph as text, in the format that `carina graph run` reads.
    ///
    /// # Errors
    /// The ports, hops or routes do not fit together.
    pub fn file(&self) -> Result<String, ForwardError> {
        check_names(&self.ports)?;
        if self.hops > HOPS_MAX {
            return Err(ForwardError::TooManyHops(self.hops));
        }
        let mut file = GraphText::default();
        for port in &self.ports {
            file.apps += &port.table();
        }
        match &self.by {
            By::Wire => self.wire(&mut file)?,
            By::Mac => self.bridge(&mut file)?,
            By::Route(routes) => routes.add_to(&mut file, &self.ports, self.hops)?,
        }
        let mut text = String::from("links = [\n");
        for link in &file.links {
            let _ = writeln!(text, "    \"{link}\",");
        }
        Ok(text + "]\n\n" + &file.apps)
    }

    fn wire(&self, file: &mut GraphText) -> Result<(), ForwardError> {
        let (from, to) = match self.ports.as_slice() {
            [one] if self.hops > 0 => (one, None),
            [one, other] => (one, Some(other)),
            ports => return Err(ForwardError::Wire(ports.len())),
        };
        let end = to.unwrap_or(from);
        file.chain(from.app(), "output", self.hops, end.app(), "input");
        if let Some(to) = to {
            file.chain(to.app(), "output", self.hops, from.app(), "input");
        }
        Ok(())
    }

    fn bridge(&self, file: &mut GraphText) -> Result<(), ForwardError> {
        if self.hops > 0 {
            return Err(ForwardError::Hops);
        }
        if self.ports.len() < 2 {
            return Err(ForwardError::TooFew(self.ports.len()));
        }
        file.apps += "[apps.bridge]\nkind = \"bridge\"\n";
        for port in self.ports.iter().map(PortSpec::app) {
            file.link(port, "output", "bridge", port);
            file.link("bridge", port, port, "input");
        }
        Ok(())
    }

    /// The graph.
    ///
    /// # Errors
    /// The ports, hops or routes do not fit together, or a port has an invalid option.
    pub fn graph(&self) -> Result<Graph, ForwardError> {
        read_graph_of(&self.file()?, &crate::kinds()).map_err(|error| {
            match port_error(error, &self.ports) {
                Ok(error) => ForwardError::Port(error),
                Err(error) => ForwardError::Graph(error),
            }
        })
    }

    /// Opens the ports and begins to forward. `frames` is the number of frames in the pool.
    /// Counters are written to the file `counters`.
    ///
    /// # Errors
    /// The configuration is invalid, or the system refuses to open a port.
    pub fn start(&self, frames: usize, counters: &Path) -> Result<Forwarding, ForwardError> {
        let graph = self.graph()?;
        let pool = PoolConfig {
            frames,
            frame_bytes: frame_bytes_for(&self.ports),
        };
        let mut runner = GraphRunner::new(pool, Some(counters))?;
        runner.configure(&graph)?;
        Ok(Forwarding {
            runner,
            ports: self
                .ports
                .iter()
                .map(|port| port.app().to_owned())
                .collect(),
            counters: counters.to_owned(),
        })
    }
}

/// The text of a graph that is being built.
#[derive(Default)]
struct GraphText {
    apps: String,
    links: Vec<String>,
}

impl GraphText {
    fn link(&mut self, from: &str, output: &str, to: &str, input: &str) {
        self.links.push(format!("{from}.{output} -> {to}.{input}"));
    }

    /// Links an output of one app to an input of another, through `hops` apps of kind `hop`.
    fn chain(&mut self, from: &str, output: &str, hops: usize, to: &str, input: &str) {
        let (mut at, mut port) = (from.to_owned(), output);
        for number in 1..=hops {
            let hop = format!("hop{number}-{from}");
            let _ = writeln!(self.apps, "[apps.{hop}]\nkind = \"hop\"");
            self.link(&at, port, &hop, "input");
            (at, port) = (hop, "output");
        }
        self.link(&at, port, to, input);
    }
}

/// A running forwarder. Dropping it stops it.
pub struct Forwarding {
    runner: GraphRunner,
    ports: Vec<String>,
    counters: PathBuf,
}

/// Number of frames and bytes that arrived and left at one port since the forwarder started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounts {
    /// Name of the port that the counts are about.
    pub port: String,
    /// Frames that arrived at the port.
    pub in_packets: u64,
    /// Total bytes of the frames that `in_packets` counts, without FCS.
    pub in_bytes: u64,
    /// Frames that left at the port, or that the port dropped because they could not leave.
    pub out_packets: u64,
    /// Total bytes of the frames that `out_packets` counts, without FCS.
    pub out_bytes: u64,
}

/// Traffic and drops of a forwarder since it was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForwardCounts {
    /// Traffic of each port.
    pub ports: Vec<PortCounts>,
    /// Dropped frames, by the name of the counter.
    pub drops: Vec<(String, u64)>,
}

impl Forwarding {
    /// Blocks for the duration `time`, while frames are forwarded.
    ///
    /// # Errors
    /// The forwarding thread has ended.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.runner.run_for(time).map_err(io::Error::other)
    }

    /// Reads traffic and drops since the forwarder was started.
    ///
    /// # Errors
    /// The file of counters cannot be read, or the forwarding thread does not answer.
    pub fn counts(&self) -> io::Result<ForwardCounts> {
        let links = self.runner.link_counts().map_err(io::Error::other)?;
        let drops = counter_file::read(&self.counters)?.into_iter();
        let drops = drops.filter(|reading| reading.value > 0 && is_drop(reading));
        Ok(ForwardCounts {
            ports: self
                .ports
                .iter()
                .map(|port| port_counts(port, &links))
                .collect(),
            drops: drops.map(|reading| (reading.name, reading.value)).collect(),
        })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.counters);
    }
}

/// Whether frames were dropped by an app, or on a link whose queue was full.
fn is_drop(reading: &counter_file::Reading) -> bool {
    reading.dropped().is_some() || reading.name.ends_with("/drops")
}

fn port_counts(port: &str, links: &[(LinkName, LinkCounts)]) -> PortCounts {
    let mut all = PortCounts {
        port: port.to_owned(),
        ..PortCounts::default()
    };
    for (name, counts) in links {
        if name.from.app == port {
            all.in_packets += counts.packets + counts.drops;
            all.in_bytes += counts.bytes;
        }
        if name.to.app == port {
            all.out_packets += counts.packets;
            all.out_bytes += counts.bytes;
        }
    }
    all
}

/// Largest number of hops in a chain: the largest TTL.
pub const HOPS_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use carina_wire::ether::Mac;

    use super::*;

    fn forwarder(ports: &[&str], hops: usize, by: By) -> Forwarder {
        Forwarder {
            ports: ports.iter().map(|port| port.parse().unwrap()).collect(),
            hops,
            by,
        }
    }

    fn links(forwarder: &Forwarder) -> Vec<String> {
        let graph = forwarder.graph().unwrap();
        graph.links().map(ToString::to_string).collect()
    }

    #[test]
    fn wires_have_hops_both_ways() {
        assert_eq!(
            links(&forwarder(&["a", "b"], 0, By::Wire)),
            ["a.output -> b.input", "b.output -> a.input"]
        );
        assert_eq!(
            links(&forwarder(&["a"], 2, By::Wire)),
            [
                "a.output -> hop1-a.input",
                "hop1-a.output -> hop2-a.input",
                "hop2-a.output -> a.input"
            ]
        );
        assert_eq!(links(&forwarder(&["a", "b"], 8, By::Wire)).len(), 18);
    }

    #[test]
    fn bridges_and_routers_join_all_ports() {
        assert_eq!(links(&forwarder(&["a", "b", "c"], 0, By::Mac)).len(), 6);
        let router = forwarder(
            &["a", "tun:b"],
            0,
            By::Route(routes("10.0.0.", "10.0.0.0/8")),
        );
        assert_eq!(links(&router).len(), 8 + 2);
        let file = router.file().unwrap();
        assert!(
            file.contains("{ prefix = \"10.0.0.0/8\", output = \"b\" }"),
            "{file}"
        );
    }

    /// Routes with stations at ports `a` and `b`, and one route, to `b`.
    fn routes(net: &str, prefix: &str) -> Routes {
        let address = |last: u8| format!("{net}{last}").parse().unwrap();
        let station = |port: &str, address, next| Station {
            port: port.to_owned(),
            address,
            next,
        };
        Routes {
            stations: vec![
                station("a", address(1), Next::Address(address(2))),
                station("b", address(3), Next::Mac(Mac([2, 0, 0, 0, 0, 9]))),
            ],
            routes: vec![(prefix.parse().unwrap(), "b".to_owned())],
            ..Routes::default()
        }
    }

    #[test]
    fn routers_forward_either_version_of_ip_and_both() {
        let router = |routes| forwarder(&["a", "tun:b"], 2, By::Route(routes));
        let six = routes("fd00::", "fd00::/8");
        let links_of_six = links(&router(six.clone()));
        assert_eq!(links_of_six.len(), 8 + 3);
        let expected = "join6.output -> hop1-join6.input";
        assert!(links_of_six.iter().any(|link| link == expected));
        let mut both = routes("10.0.0.", "10.0.0.0/8");
        both.stations.extend(six.stations);
        both.routes.extend(six.routes);
        let links = links(&router(both));
        // The links of a router of each IP version, and the links that both share at each port.
        assert_eq!(links.len(), 2 * (8 + 3) + 2 * 2);
        for link in [
            "a.output -> split-a.input",
            "split-a.six -> nd-a.south",
            "nd-a.south -> merge-a.six",
            "merge-a.output -> a.input",
            "route6.b -> nd-b.north",
            "route.b -> arp-b.north",
        ] {
            assert!(links.iter().any(|found| found == link), "{link}: {links:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refusal =
            |ports: &[&str], hops, by| forwarder(ports, hops, by).file().unwrap_err().to_string();
        assert!(refusal(&["a"], 0, By::Wire).starts_with("ports: 1: a wire needs two ports"));
        assert!(refusal(&["a", "b", "c"], 0, By::Wire).starts_with("ports: 3"));
        assert!(refusal(&["a"], 0, By::Mac).contains("at least 2"));
        assert!(
            refusal(&["a", "b"], 1, By::Mac)
                .contains("forwarding by MAC address does not change frames")
        );
        assert!(refusal(&["a", "b"], 256, By::Wire).contains("at most 255"));
        let error = refusal(&["a", "b"], 0, By::Route(Routes::default()));
        assert!(error.contains("--address a=10.0.0.1"), "{error}");
        let routes = Routes {
            routes: vec![("0.0.0.0/0".parse().unwrap(), "c".to_owned())],
            ..Routes::default()
        };
        let error = refusal(&["a", "b"], 0, By::Route(routes));
        assert_eq!(error, "there is no port c; the ports are a, b");
        let refusal = |routes| refusal(&["a", "b"], 0, By::Route(routes));
        let four = || self::routes("10.0.0.", "10.0.0.0/8");
        let error = refusal(self::routes("10.0.0.", "fd00::/8"));
        assert!(
            error.starts_with("the route of fd00::/8 leads to b, which lacks an address"),
            "{error}"
        );
        let mut twice = four();
        twice.stations.extend(four().stations);
        assert!(refusal(twice).starts_with("a has another address"));
        let file6 = Some("/x".into());
        let error = refusal(Routes { file6, ..four() });
        assert_eq!(
            error,
            "--routes6 has routes of IPv6, but no port has an IPv6 address; give one with --address"
        );
    }
}
