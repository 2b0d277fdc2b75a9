//! Forwarding by route: the part of the graph for each version of IP.
//!
//! ```text
//!   of one version:  A <--> arp-A --> join --> hop+ --> route --> arp-B <--> B
//!   of both, at A:   A --> split-A --> arp-A, nd-A --> merge-A --> A
//! ```

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use carina_netdev::Interface;
use carina_wire::ether::Mac;

use super::{ForwardError, GraphText};
use crate::destination::Destination;
use crate::port::PortSpec;

/// Where packets go.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// Stations at the ports: at most one of each version of IP at a port.
    pub stations: Vec<Station>,
    /// Routes, each to the port of this name.
    pub routes: Vec<(Destination, String)>,
    /// A file with more of them, of IPv4, a line `10.0.0.0/8 eth1` each.
    pub file: Option<PathBuf>,
    /// The same of IPv6, a line `fd00::/8 eth1` each.
    pub file6: Option<PathBuf>,
}

/// What is at a port: the router's own address there, and the station that gets its packets.
#[derive(Clone, Debug)]
pub struct Station {
    /// The port's name.
    pub port: String,
    /// Own address, for which ARP or neighbour discovery is answered.
    pub address: IpAddr,
    /// The next hop.
    pub next: Next,
}

/// The station that gets the packets that leave at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its address, whose MAC address is asked for.
    Address(IpAddr),
    /// Its MAC address.
    Mac(Mac),
}

/// A version of IP, and the names of its apps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V4,
    V6,
}

impl Version {
    fn of_route(destination: &Destination) -> Version {
        match destination {
            Destination::V4(_) => Version::V4,
            Destination::V6(_) => Version::V6,
        }
    }

    fn of(address: IpAddr) -> Version {
        match address {
            IpAddr::V4(_) => Version::V4,
            IpAddr::V6(_) => Version::V6,
        }
    }

    fn join(self) -> &'static str {
        match self {
            Version::V4 => "join",
            Version::V6 => "join6",
        }
    }

    fn route(self) -> &'static str {
        match self {
            Version::V4 => "route",
            Version::V6 => "route6",
        }
    }

    fn route_kind(self) -> &'static str {
        match self {
            Version::V4 => "route4",
            Version::V6 => "route6",
        }
    }

    /// The kind of the app that finds MAC addresses.
    fn resolver(self) -> &'static str {
        match self {
            Version::V4 => "arp",
            Version::V6 => "nd",
        }
    }

    /// An address of no station, where only a MAC address is known. `own` is not it.
    fn nowhere(self, own: IpAddr) -> IpAddr {
        let link_local = |last| Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        match self {
            Version::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Version::V6 if own == link_local(1) => link_local(2).into(),
            Version::V6 => link_local(1).into(),
        }
    }
}

impl Routes {
    /// Adds the apps of a router between these ports.
    pub(super) fn add_to(
        &self,
        file: &mut GraphText,
        ports: &[PortSpec],
        hops: usize,
    ) -> Result<(), ForwardError> {
        if ports.len() < 2 {
            return Err(ForwardError::TooFew(ports.len()));
        }
        self.check(ports)?;
        for version in [Version::V4, Version::V6] {
            if self.stations.iter().any(|station| station.is_of(version)) {
                let _ = writeln!(file.apps, "[apps.{}]\nkind = \"join\"", version.join());
                let (join, route) = (version.join(), version.route());
                file.chain(join, "output", hops.max(1), route, "input");
            }
        }
        for (at, port) in ports.iter().enumerate() {
            self.add_port(file, at, port);
        }
        for version in [Version::V4, Version::V6] {
            if self.stations.iter().any(|station| station.is_of(version)) {
                self.add_table(file, version);
            }
        }
        Ok(())
    }

    fn station(&self, port: &str, version: Version) -> Option<&Station> {
        let mut stations = self.stations.iter();
        stations.find(|station| station.port == port && station.is_of(version))
    }

    fn check(&self, ports: &[PortSpec]) -> Result<(), ForwardError> {
        let stations = self.stations.iter().map(|station| &station.port);
        let targets = self.routes.iter().map(|(_, port)| port);
        for name in stations.chain(targets) {
            if !ports.iter().any(|port| port.app() == name) {
                let known: Vec<&str> = ports.iter().map(PortSpec::app).collect();
                return Err(ForwardError::NoPort {
                    name: name.clone(),
                    known: known.join(", "),
                });
            }
        }
        for (at, station) in self.stations.iter().enumerate() {
            let is_same = |other: &Station| {
                (&other.port, other.version()) == (&station.port, station.version())
            };
            if self.stations[..at].iter().any(is_same) {
                return Err(ForwardError::TwoStations {
                    port: station.port.clone(),
                    address: station.address,
                });
            }
        }
        let mut names = ports.iter().map(PortSpec::app);
        if let Some(port) = names.find(|name| {
            let mut stations = self.stations.iter();
            !stations.any(|station| station.port == *name)
        }) {
            let port = port.to_owned();
            return Err(ForwardError::NoStation { port });
        }
        for (destination, port) in &self.routes {
            if self.station(port, Version::of_route(destination)).is_none() {
                return Err(ForwardError::OtherVersion {
                    destination: *destination,
                    port: port.clone(),
                });
            }
        }
        let (has4, has6) = [Version::V4, Version::V6]
            .map(|version| self.stations.iter().any(|station| station.is_of(version)))
            .into();
        match (&self.file, &self.file6) {
            (Some(_), _) if !has4 => Err(ForwardError::NoVersion("--routes", "IPv4")),
            (_, Some(_)) if !has6 => Err(ForwardError::NoVersion("--routes6", "IPv6")),
            _ => Ok(()),
        }
    }

    /// The ways between a port and the tables of routes.
    fn add_port(&self, file: &mut GraphText, at: usize, port: &PortSpec) {
        let name = port.app();
        let stations = [Version::V4, Version::V6].map(|version| self.station(name, version));
        let mut way = Way {
            file,
            port,
            number: at,
        };
        match stations {
            [Some(four), Some(six)] => {
                let (split, merge) = (format!("split-{name}"), format!("merge-{name}"));
                let _ = writeln!(
                    way.file.apps,
                    "[apps.{split}]\nkind = \"rss\"\nclasses = [\n    \
                     {{ filter = \"ip6\", outputs = {{ six = 1 }} }},\n    \
                     {{ outputs = {{ four = 1 }} }},\n]\n[apps.{merge}]\nkind = \"join\""
                );
                way.file.link(name, "output", &split, "input");
                way.file.link(&merge, "output", name, "input");
                way.add(four, [&split, "four"], [&merge, "four"]);
                way.add(six, [&split, "six"], [&merge, "six"]);
            }
            [Some(station), None] | [None, Some(station)] => {
                way.add(station, [name, "output"], [name, "input"]);
            }
            // `check` has found the port that has none.
            [None, None] => {}
        }
    }

    fn add_table(&self, file: &mut GraphText, version: Version) {
        let (name, kind) = (version.route(), version.route_kind());
        let _ = writeln!(file.apps, "[apps.{name}]\nkind = \"{kind}\"");
        let more = match version {
            Version::V4 => &self.file,
            Version::V6 => &self.file6,
        };
        if let Some(path) = more {
            let _ = writeln!(file.apps, "file = {:?}", path.to_string_lossy());
        }
        file.apps += "routes = [\n";
        let routes = self.routes.iter();
        for (destination, port) in routes.filter(|route| Version::of_route(&route.0) == version) {
            let _ = writeln!(
                file.apps,
                "    {{ prefix = \"{destination}\", output = \"{port}\" }},"
            );
        }
        file.apps += "]\n";
    }
}

impl Station {
    fn version(&self) -> Version {
        Version::of(self.address)
    }

    fn is_of(&self, version: Version) -> bool {
        self.version() == version
    }
}

/// The way between a port and a table of routes while it is made.
struct Way<'a> {
    file: &'a mut GraphText,
    port: &'a PortSpec,
    /// Number of the port among all of them.
    number: usize,
}

impl Way<'_> {
    /// Puts the app in that finds the station: frames come from an output of one app, and go to
    /// an input of another.
    fn add(&mut self, station: &Station, from: [&str; 2], to: [&str; 2]) {
        let (name, version) = (self.port.app(), station.version());
        let app = format!("{}-{name}", version.resolver());
        let own = Interface::named(self.port.of()).ok();
        let own = own.filter(|_| !self.port.is_ip());
        let mac = own.map_or(Mac([2, 0, 0, 0, 1, self.number as u8]), |own| Mac(own.mac));
        let _ = writeln!(
            self.file.apps,
            "[apps.{app}]\nkind = \"{}\"\naddress = \"{}\"\nmac = \"{mac}\"",
            version.resolver(),
            station.address
        );
        let (next, next_mac) = match station.next {
            Next::Address(next) if self.port.is_ip() => (next, Some(BEHIND_TUN)),
            Next::Address(next) => (next, None),
            Next::Mac(mac) => (version.nowhere(station.address), Some(mac)),
        };
        let _ = writeln!(self.file.apps, "next = \"{next}\"");
        if let Some(mac) = next_mac {
            let _ = writeln!(self.file.apps, "next_mac = \"{mac}\"");
        }
        self.file.link(from[0], from[1], &app, "south");
        self.file.link(&app, "north", version.join(), name);
        self.file.link(version.route(), name, &app, "north");
        self.file.link(&app, "south", to[0], to[1]);
    }
}

/// A device of IP packets takes the MAC header off, whatever is in it.
const BEHIND_TUN: Mac = Mac([2, 0, 0, 0, 0, 1]);
