//! A forwarder: frames that come in at one port leave at another.
//!
//! ```text
//!   wire:  A --[hop]*--> B, B --[hop]*--> A; of one port: A --[hop]+--> A
//!   mac:   A, B, C ... <--> bridge
//!   ip:    A --> arp-A --> join --> hop+ --> route --> arp-B --> B
//! ```

use std::fmt::Write;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use carina_apps::graph_file::{GraphFileError, read_graph_of};
use carina_apps::prefix::Prefix4;
use carina_apps::runner::{GraphRunner, RunnerError};
use carina_engine::counter_file;
use carina_engine::frames::{ConfigureError, Graph, LinkCounts, LinkName};
use carina_frame::PoolConfig;
use carina_netdev::Interface;
use carina_time::Duration;
use carina_wire::ether::Mac;
use serde::Serialize;

use crate::port::{PortError, PortSpec, check_names, frame_bytes_for};

/// What a forwarder consists of.
#[derive(Clone, Debug)]
pub struct Forwarder {
    /// Its ports.
    pub ports: Vec<PortSpec>,
    /// Hops between an input and an output: each swaps the MAC addresses and counts a hop in the
    /// header of IP. By route there is at least one.
    pub hops: usize,
    /// How the output is chosen.
    pub by: By,
}

/// How the output of a frame is chosen.
#[derive(Clone, Debug)]
pub enum By {
    /// The other port.
    Wire,
    /// Where its destination was last seen.
    Mac,
    /// The longest prefix that the destination has.
    Route(Routes),
}

/// Where packets go.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// Stations at the ports, by the ports' names.
    pub stations: Vec<Station>,
    /// Routes, each to the port of this name.
    pub routes: Vec<(Prefix4, String)>,
    /// A file with more of them, a line `10.0.0.0/8 eth1` each.
    pub file: Option<PathBuf>,
}

/// What is at a port: the router's own address there, and the station that gets its packets.
#[derive(Clone, Debug)]
pub struct Station {
    /// The port's name.
    pub port: String,
    /// Own IPv4 address, for which ARP is answered.
    pub address: Ipv4Addr,
    /// The next hop.
    pub next: Next,
}

/// The station that gets the packets that leave at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its IPv4 address; ARP finds the MAC address.
    Address(Ipv4Addr),
    /// Its MAC address.
    Mac(Mac),
}

/// Why there is no forwarder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// A port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A wire has another number of ends.
    #[error("{0} ports: by wire there are two, or one with at least one hop")]
    Wire(usize),
    /// Frames are to go somewhere else.
    #[error("{0} ports: at least two are needed")]
    TooFew(usize),
    /// Hops are not possible.
    #[error("hops are counted by wire and by route; by MAC address frames stay as they are")]
    Hops,
    /// There are more hops than a packet can make.
    #[error("{0} hops: at most {HOPS_MAX} are possible")]
    TooManyHops(usize),
    /// A port has no station.
    #[error(
        "{port} has no address and next hop: by route every port needs both, such as --address \
         {port}=10.0.0.1 --next {port}=10.0.0.2"
    )]
    NoStation {
        /// The port.
        port: String,
    },
    /// A station or a route names a port that does not exist.
    #[error("{name}: there is no such port; there are {known}")]
    NoPort {
        /// The name.
        name: String,
        /// The ports.
        known: String,
    },
    /// The graph cannot be made.
    #[error(transparent)]
    Graph(#[from] GraphFileError),
    /// An app cannot be made.
    #[error(transparent)]
    Configure(#[from] ConfigureError),
    /// There is no engine.
    #[error(transparent)]
    Runner(#[from] RunnerError),
}

impl Forwarder {
    /// The graph as a file, as `carina graph run` reads it.
    ///
    /// # Errors
    /// The ports do not fit together.
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
            By::Route(routes) => self.router(&mut file, routes)?,
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

    fn router(&self, file: &mut GraphText, routes: &Routes) -> Result<(), ForwardError> {
        if self.ports.len() < 2 {
            return Err(ForwardError::TooFew(self.ports.len()));
        }
        let stations = routes.stations.iter().map(|station| &station.port);
        let targets = routes.routes.iter().map(|(_, port)| port);
        for name in stations.chain(targets) {
            if !self.ports.iter().any(|port| port.app() == name) {
                let known: Vec<&str> = self.ports.iter().map(PortSpec::app).collect();
                return Err(ForwardError::NoPort {
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        file.apps += "[apps.join]\nkind = \"join\"\n";
        file.chain("join", "output", self.hops.max(1), "route", "input");
        for (at, port) in self.ports.iter().enumerate() {
            let mut stations = routes.stations.iter();
            let station = stations.find(|station| station.port == port.app());
            let station = station.ok_or_else(|| ForwardError::NoStation {
                port: port.app().to_owned(),
            })?;
            file.station(at, port, station);
        }
        file.apps += "[apps.route]\nkind = \"route4\"\n";
        if let Some(path) = &routes.file {
            let _ = writeln!(file.apps, "file = {:?}", path.to_string_lossy());
        }
        file.apps += "routes = [\n";
        for (prefix, port) in &routes.routes {
            let _ = writeln!(
                file.apps,
                "    {{ prefix = \"{}/{}\", output = \"{port}\" }},",
                prefix.address(),
                prefix.bits()
            );
        }
        file.apps += "]\n";
        Ok(())
    }

    /// The graph.
    ///
    /// # Errors
    /// The ports do not fit together, or one has options that it cannot have.
    pub fn graph(&self) -> Result<Graph, ForwardError> {
        Ok(read_graph_of(&self.file()?, &crate::kinds())?)
    }

    /// Opens the ports and begins to forward. Counters are in a file at `counters`.
    ///
    /// # Errors
    /// What is wrong, or what the system refuses.
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

/// The text of a graph while it is made.
#[derive(Default)]
struct GraphText {
    apps: String,
    links: Vec<String>,
}

impl GraphText {
    fn link(&mut self, from: &str, output: &str, to: &str, input: &str) {
        self.links.push(format!("{from}.{output} -> {to}.{input}"));
    }

    /// Links two apps, with hops between.
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

    /// The way between a port and the table of routes.
    fn station(&mut self, at: usize, port: &PortSpec, station: &Station) {
        let (name, arp) = (port.app(), format!("arp-{}", port.app()));
        let own = Interface::named(port.of()).ok().filter(|_| !port.is_ip());
        let mac = own.map_or(Mac([2, 0, 0, 0, 1, at as u8]), |own| Mac(own.mac));
        let _ = writeln!(
            self.apps,
            "[apps.{arp}]\nkind = \"arp\"\naddress = \"{}\"\nmac = \"{mac}\"",
            station.address
        );
        let _ = match station.next {
            Next::Address(next) if port.is_ip() => writeln!(
                self.apps,
                "next = \"{next}\"\nnext_mac = \"02:00:00:00:00:01\""
            ),
            Next::Address(next) => writeln!(self.apps, "next = \"{next}\""),
            Next::Mac(mac) => writeln!(self.apps, "next = \"0.0.0.0\"\nnext_mac = \"{mac}\""),
        };
        self.link(name, "output", &arp, "south");
        self.link(&arp, "north", "join", name);
        self.link("route", name, &arp, "north");
        self.link(&arp, "south", name, "input");
    }
}

/// A forwarder that runs, until it is dropped.
pub struct Forwarding {
    runner: GraphRunner,
    ports: Vec<String>,
    counters: PathBuf,
}

/// What went through a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PortCounts {
    /// Its name.
    pub port: String,
    /// Frames that came in.
    pub in_packets: u64,
    /// Their bytes, without FCS.
    pub in_bytes: u64,
    /// Frames that left.
    pub out_packets: u64,
    /// Their bytes.
    pub out_bytes: u64,
}

/// What a forwarder has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ForwardCounts {
    /// Of each port.
    pub ports: Vec<PortCounts>,
    /// Frames dropped, by the counter that counts them.
    pub drops: Vec<(String, u64)>,
}

impl Forwarding {
    /// Forwards for so long.
    ///
    /// # Errors
    /// The forwarding thread has ended.
    pub fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.runner.run_for(time).map_err(io::Error::other)
    }

    /// What went through the ports so far.
    ///
    /// # Errors
    /// The file of counters cannot be read, or the forwarding thread does not answer.
    pub fn counts(&self) -> io::Result<ForwardCounts> {
        let links = self.runner.link_counts().map_err(io::Error::other)?;
        let drops = counter_file::read(&self.counters)?.into_iter();
        let drops = drops.filter(|reading| reading.value > 0 && is_drop(&reading.name));
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

fn is_drop(name: &str) -> bool {
    let what = name.rsplit_once('/').map_or(name, |(_, what)| what);
    what == "drops" || what.starts_with("drop_")
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

/// The most hops in a chain: more than a packet's limit is of no use.
pub const HOPS_MAX: usize = 255;

#[cfg(test)]
mod tests {
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
        let station = |port: &str, next| Station {
            port: port.to_owned(),
            address: Ipv4Addr::new(10, 0, 0, 1),
            next,
        };
        let routes = Routes {
            stations: vec![
                station("a", Next::Address(Ipv4Addr::new(10, 0, 0, 2))),
                station("b", Next::Mac(Mac([2, 0, 0, 0, 0, 9]))),
            ],
            routes: vec![("10.0.0.0/8".parse().unwrap(), "b".to_owned())],
            file: None,
        };
        let router = forwarder(&["a", "tun:b"], 0, By::Route(routes));
        assert_eq!(links(&router).len(), 8 + 2);
        let file = router.file().unwrap();
        assert!(
            file.contains("{ prefix = \"10.0.0.0/8\", output = \"b\" }"),
            "{file}"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refusal =
            |ports: &[&str], hops, by| forwarder(ports, hops, by).file().unwrap_err().to_string();
        assert!(refusal(&["a"], 0, By::Wire).starts_with("1 ports: by wire there are two"));
        assert!(refusal(&["a", "b", "c"], 0, By::Wire).starts_with("3 ports"));
        assert!(refusal(&["a"], 0, By::Mac).contains("at least two"));
        assert!(refusal(&["a", "b"], 1, By::Mac).contains("by MAC address frames stay"));
        assert!(refusal(&["a", "b"], 256, By::Wire).contains("at most 255"));
        let error = refusal(&["a", "b"], 0, By::Route(Routes::default()));
        assert!(error.contains("--address a=10.0.0.1"), "{error}");
        let routes = Routes {
            routes: vec![("0.0.0.0/0".parse().unwrap(), "c".to_owned())],
            ..Routes::default()
        };
        let error = refusal(&["a", "b"], 0, By::Route(routes));
        assert_eq!(error, "c: there is no such port; there are a, b");
    }
}
