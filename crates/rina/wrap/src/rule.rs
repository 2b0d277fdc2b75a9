//! Rules: which connections and which listening sockets of a wrapped program become flows.
//!
//! ```text
//! rule    = ["listen "] HOST [":" PORTS] "->" target
//! HOST    = "*" | pattern of a name ("*.vm") | address | address "/" prefix length
//! PORTS   = port | port "-" port
//! target  = "kernel" | "refuse" | "dif" [DIF] ["as" NAME]
//! ```
//!
//! An IPv6 address with ports is written in brackets. `NAME` is the name of the application in the
//! DIF. In it `{host}` and `{port}` are replaced by the host and the port of the address, and
//! `{name}` by the host without its ending `.dif.internal`. The default of `NAME` is
//! `{host}:{port}`. The first rule that fits a socket decides; without one, the kernel handles the
//! socket.

use std::net::{IpAddr, SocketAddr};

use carina_api::{AppName, DifName, NameError};
use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

mod destinations;
mod error;
mod text;

pub use self::destinations::Destinations;
pub use self::error::RuleError;

/// A rule: the sockets that it applies to, and their target: a flow, the kernel or a refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    direction: Direction,
    host: Host,
    ports: Ports,
    target: Target,
}

/// Whether a rule is for sockets that connect or for sockets that listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// `connect`: the address is the destination.
    Connect,
    /// `bind` and `listen`: the address is the program's own.
    Listen,
}

#[derive(Debug, Clone, PartialEq)]
enum Host {
    Any,
    Name(WildMatch),
    Network { address: IpAddr, length: u8 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ports {
    first: u16,
    last: u16,
}

/// What a rule does with a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The kernel handles the socket, as without `carina wrap`.
    Kernel,
    /// The call fails with `ECONNREFUSED` (connect) or `EACCES` (bind).
    Refuse,
    /// The socket becomes a flow, or the registration of a name.
    Flow {
        /// The DIF; `None` for the first DIF that knows the name (connect), or for all DIFs
        /// (listen).
        dif: Option<DifName>,
        /// Template of the application name, with `{host}`, `{port}` or `{name}`.
        template: String,
    },
}

/// The target of one socket, by the first rule that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The kernel handles the socket.
    Kernel,
    /// The call fails.
    Refuse,
    /// The socket becomes a flow to `name`, or the registration of `name`.
    Flow {
        /// The DIF to use; `None` for any DIF.
        dif: Option<DifName>,
        /// Name of the application.
        name: AppName,
    },
}

/// An address that a program uses, with the host name for which the resolver returned it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The host name for which the address stands in the name table; `None` if it stands for none.
    pub host: Option<String>,
    /// The IP address and the port.
    pub socket: SocketAddr,
}

impl Rule {
    /// Makes a rule that registers every socket which listens on a wildcard address as `host:PORT`.
    pub fn listen_as(address: IpAddr, host: &str, dif: Option<DifName>) -> Rule {
        let length = if address.is_ipv4() { 32 } else { 128 };
        Rule {
            direction: Direction::Listen,
            host: Host::Network { address, length },
            ports: Ports::ALL,
            target: Target::Flow {
                dif,
                template: format!("{host}:{{port}}"),
            },
        }
    }

    /// Returns the DIF that the rule names.
    pub fn dif(&self) -> Option<&DifName> {
        match &self.target {
            Target::Flow { dif, .. } => dif.as_ref(),
            Target::Kernel | Target::Refuse => None,
        }
    }

    /// Whether the rule is for sockets that connect or for sockets that listen.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether only the address of a host, not its name, tells if the rule fits.
    pub fn is_of_addresses(&self) -> bool {
        matches!(self.host, Host::Network { .. })
    }

    /// Whether the rule is for a socket with this address in this direction.
    pub fn matches(&self, direction: Direction, address: &Address) -> bool {
        let port = address.socket.port();
        self.direction == direction
            && (self.ports.first..=self.ports.last).contains(&port)
            && self.host.matches(address)
    }

    /// Whether the rule makes flows of connections to the host with this name, at least for some
    /// port, or refuses the host by its name. The resolver must then return an address of the name
    /// table for the name.
    pub fn names(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let is_match = match &self.host {
            Host::Any => host != "localhost" && host.parse::<IpAddr>().is_err(),
            Host::Name(pattern) => pattern.matches(&host),
            Host::Network { .. } => false,
        };
        is_match && self.has_names()
    }

    /// Whether the rule makes flows of connections to hosts by their names, or refuses hosts by
    /// their names.
    pub fn has_names(&self) -> bool {
        let is_of_names = match self.target {
            Target::Flow { .. } => !self.is_of_addresses(),
            Target::Refuse => matches!(self.host, Host::Name(_)),
            Target::Kernel => false,
        };
        is_of_names && self.direction == Direction::Connect
    }

    /// Whether this rule fits everything that `other` fits, so that `other` is never used when it
    /// comes later.
    pub fn shadows(&self, other: &Rule) -> bool {
        let (all, part) = (self.ports, other.ports);
        self.direction == other.direction
            && all.first <= part.first
            && part.last <= all.last
            && self.host.contains(&other.host)
    }

    /// Returns the target of a socket with this address, which the rule must fit.
    ///
    /// # Errors
    /// The name that the template gives is invalid: it is longer than 255 bytes.
    pub fn decide(&self, address: &Address) -> Result<Decision, NameError> {
        Ok(match &self.target {
            Target::Kernel => Decision::Kernel,
            Target::Refuse => Decision::Refuse,
            Target::Flow { dif, template } => Decision::Flow {
                dif: dif.clone(),
                name: AppName::new(filled(template, address))?,
            },
        })
    }
}

fn filled(template: &str, address: &Address) -> String {
    let host = match &address.host {
        Some(host) => host.to_ascii_lowercase(),
        None => address.socket.ip().to_canonical().to_string(),
    };
    let port = address.socket.port().to_string();
    let name = host.strip_suffix(DOMAIN).unwrap_or(&host);
    template
        .replace("{host}", &host)
        .replace("{name}", name)
        .replace("{port}", &port)
}

impl Host {
    fn contains(&self, other: &Host) -> bool {
        match (self, other) {
            (Host::Any, _) => true,
            (
                Host::Network { address, length },
                Host::Network {
                    address: of,
                    length: longer,
                },
            ) => length <= longer && has_prefix(*of, *address, *length),
            (all, part) => all == part,
        }
    }

    fn matches(&self, address: &Address) -> bool {
        match (self, &address.host) {
            (Host::Any, _) => true,
            (Host::Name(pattern), Some(host)) => pattern.matches(&host.to_ascii_lowercase()),
            (Host::Name(_), None) => false,
            (
                Host::Network {
                    address: of,
                    length,
                },
                _,
            ) => has_prefix(address.socket.ip().to_canonical(), *of, *length),
        }
    }
}

fn has_prefix(address: IpAddr, network: IpAddr, length: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differing = u32::from(address) ^ u32::from(network);
            differing.leading_zeros() >= u32::from(length)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differing = u128::from(address) ^ u128::from(network);
            differing.leading_zeros() >= u32::from(length)
        }
        _ => false,
    }
}

impl Ports {
    const ALL: Ports = Ports {
        first: 0,
        last: u16::MAX,
    };
}

/// The domain of host names that the default rule and the resolver treat as names in DIFs.
pub const DOMAIN: &str = ".dif.internal";

#[cfg(test)]
mod tests;
