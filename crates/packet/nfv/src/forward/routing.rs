//! Forwarding by route: the part of the graph for each IP version.
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

/// Stations and routes of a router.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The stations at the ports; at most one of each IP version per port.
    pub stations: Vec<Station>,
    /// Routes, each with the name of the port that it leads to.
    pub routes: Vec<(Destination, String)>,
    /// A file with further IPv4 routes, one per line: `10.0.0.0/8 eth1`; `None` for no file.
    pub file: Option<PathBuf>,
    /// A file with further IPv6 routes, one per line: `fd00::/8 eth1`; `None` for no file.
    pub file6: Option<PathBuf>,
}

/// The router's own address at a port, and the next hop there.
#[derive(Clone, Debug)]
pub struct Station {
    /// Name of the port to which the station belongs.
    pub port: String,
    /// The router's own address; it answers ARP or neighbour discovery for it.
    pub address: IpAddr,
    /// The next hop for all packets that leave at this port.
    pub next: Next,
}

/// A next hop, given by its IP address or by its MAC address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The IP address; the router finds the MAC address by ARP or neighbour discovery.
    Address(IpAddr),
    /// The MAC address of the next hop; the router asks for no other.
    Mac(Mac),
}

/// An IP version, with the names of its apps.
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

    /// The kind of the app that resolves MAC addresses.
    fn resolver(self) -> &'static str {
        match self {
            Version::V4 => "arp",
            Version::V6 => "nd",
        }
    }

    /// A placeholder for the next hop's IP address if only its MAC address is known. Differs from
    /// `own`.
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
    /// Adds the apps and links of a router between these ports.
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

    /// Links a port with the router of each IP version that it has a station of.
    fn add_port(&self, file: &mut GraphText, at: usize, port: &PortSpec) {
        let name = port.app();
        let stations = [Version::V4, Version::V6].map(|version| self.station(name, version));
        let mut links = PortLinks {
            file,
            port,
            number: at,
        };
        match stations {
            [Some(four), Some(six)] => {
                let (split, merge) = (format!("split-{name}"), format!("merge-{name}"));
                let _ = writeln!(
                    links.file.apps,
                    "[apps.{split}]\nkind = \"rss\"\nclasses = [\n    \
                     {{ filter = \"ip6\", outputs = {{ six = 1 }} }},\n    \
                     {{ outputs = {{ four = 1 }} }},\n]\n[apps.{merge}]\nkind = \"join\""
                );
                links.file.link(name, "output", &split, "input");
                links.file.link(&merge, "output", name, "input");
                links.add(four, [&split, "four"], [&merge, "four"]);
                links.add(six, [&split, "six"], [&merge, "six"]);
            }
            [Some(station), None] | [None, Some(station)] => {
                links.add(station, [name, "output"], [name, "input"]);
            }
            // `check` has already refused a port without a station.
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

/// The links between a port and the routing tables that are being built.
struct PortLinks<'a> {
    file: &'a mut GraphText,
    port: &'a PortSpec,
    /// The port's number among all ports.
    number: usize,
}

impl PortLinks<'_> {
    /// Adds the app that resolves the next hop's MAC address. `from` is the app and output that
    /// frames come from, `to` the app and input that they go to.
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

/// A next hop's MAC address for a tun device, which strips the Ethernet header, so any address will
/// do.
const BEHIND_TUN: Mac = Mac([2, 0, 0, 0, 0, 1]);
