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

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use carina_api::{AppName, DifName, NameError};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wildmatch::WildMatch;

mod destinations;

pub use self::destinations::Destinations;

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
    /// The host name, if the address is one of the name table.
    pub host: Option<String>,
    /// The IP address and the port.
    pub socket: SocketAddr,
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The text has no arrow.
    #[error("rule {0:?} has no \"->\"; a rule is HOST[:PORTS] -> TARGET, as \"*.vm -> dif\"")]
    NoArrow(String),
    /// The text has no host before the arrow.
    #[error("rule {0:?} has no host before \"->\"; \"*\" matches every host")]
    NoHost(String),
    /// The text is not a set of destinations.
    #[error("rule {0:?} is not HOST[:PORTS], as \"www.example.com:80\"; \"*\" matches every host")]
    Destination(String),
    /// The text before the arrow is neither a host name nor an address nor a network.
    #[error(
        "rule {rule:?}: {host:?} is neither a host name nor a network such as 10.9.0.0/16 or \
         [fd00::/8]:80"
    )]
    Host {
        /// Text of the rule.
        rule: String,
        /// The text in the place of the host.
        host: String,
    },
    /// The prefix length is not possible for the address.
    #[error("rule {rule:?}: /{length} is no prefix length of {address}; it has 0 to {max}")]
    PrefixLength {
        /// Text of the rule.
        rule: String,
        /// The address before the `/`.
        address: IpAddr,
        /// The text behind the `/`.
        length: String,
        /// The largest possible prefix length.
        max: u8,
    },
    /// The text behind the `:` is not a port, or is a range whose end is less than its start.
    #[error("rule {rule:?}: {ports:?} is neither a port from 1 to 65535 nor a range such as 80-89")]
    Ports {
        /// Text of the rule.
        rule: String,
        /// The text behind the `:`.
        ports: String,
    },
    /// The text behind the arrow is not one of the three targets.
    #[error("rule {rule:?}: target {target:?} must be kernel, refuse or dif [DIF] [as NAME]")]
    Target {
        /// Text of the rule.
        rule: String,
        /// The text behind the arrow.
        target: String,
    },
    /// The name of the application or of the DIF is invalid.
    #[error("rule {rule:?}: {error}")]
    Name {
        /// Text of the rule.
        rule: String,
        /// What is wrong with the name.
        error: NameError,
    },
    /// A placeholder in braces is not one that a name may have.
    #[error("rule {rule:?}: {placeholder} must be {{host}}, {{name}} or {{port}}")]
    Placeholder {
        /// Text of the rule.
        rule: String,
        /// The text in the braces.
        placeholder: String,
    },
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

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        let rule = || text.to_owned();
        let (left, right) = text
            .split_once("->")
            .ok_or_else(|| RuleError::NoArrow(rule()))?;
        let left = left.trim();
        let (direction, left) = match left.strip_prefix("listen ") {
            Some(rest) => (Direction::Listen, rest.trim()),
            None => (Direction::Connect, left),
        };
        let (host, ports) = host_and_ports(left);
        if host.is_empty() {
            return Err(RuleError::NoHost(rule()));
        }
        Ok(Rule {
            direction,
            host: parse_host(text, host)?,
            ports: ports.map_or(Ok(Ports::ALL), |ports| parse_ports(text, ports))?,
            target: parse_target(text, right.trim())?,
        })
    }
}

/// Splits `HOST:PORTS`, where an IPv6 address may have colons itself.
fn host_and_ports(text: &str) -> (&str, Option<&str>) {
    if let Some((host, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        && (rest.is_empty() || rest.starts_with(':'))
    {
        return (host, rest.strip_prefix(':'));
    }
    let address = text.split('/').next().unwrap_or(text);
    match text.rsplit_once(':') {
        Some((host, ports)) if address.parse::<Ipv6Addr>().is_err() => (host, Some(ports)),
        _ => (text, None),
    }
}

fn parse_host(rule: &str, host: &str) -> Result<Host, RuleError> {
    if host == "*" {
        return Ok(Host::Any);
    }
    let (address, length) = match host.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (host, None),
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        // A mistyped network must not become a name that no host has.
        if host.contains(['/', '[', ']']) {
            return Err(RuleError::Host {
                rule: rule.to_owned(),
                host: host.to_owned(),
            });
        }
        return Ok(Host::Name(WildMatch::new(&host.to_ascii_lowercase())));
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    let parsed = length.map_or(Ok(max), str::parse::<u8>);
    match parsed {
        Ok(length) if length <= max => Ok(network(address, length)),
        _ => Err(RuleError::PrefixLength {
            rule: rule.to_owned(),
            address,
            length: length.unwrap_or_default().to_owned(),
            max,
        }),
    }
}

/// A network; one of mapped IPv6 addresses (::ffff:0:0/96) is the network of IPv4 addresses that it
/// stands for, because addresses are compared in that form.
fn network(address: IpAddr, length: u8) -> Host {
    match (address.to_canonical(), address) {
        (IpAddr::V4(canonical), IpAddr::V6(_)) if length >= MAPPED_BITS => Host::Network {
            address: canonical.into(),
            length: length - MAPPED_BITS,
        },
        _ => Host::Network { address, length },
    }
}

/// Prefix length of IPv6 addresses that stand for IPv4 addresses (RFC 4291, section 2.5.5.2).
const MAPPED_BITS: u8 = 96;

fn parse_ports(rule: &str, ports: &str) -> Result<Ports, RuleError> {
    let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if 0 < first && first <= last => Ok(Ports { first, last }),
        _ => Err(RuleError::Ports {
            rule: rule.to_owned(),
            ports: ports.to_owned(),
        }),
    }
}

fn parse_target(rule: &str, target: &str) -> Result<Target, RuleError> {
    let of_name = |error| RuleError::Name {
        rule: rule.to_owned(),
        error,
    };
    let words: Vec<&str> = target.split_whitespace().collect();
    let (dif, template) = match words[..] {
        ["kernel"] => return Ok(Target::Kernel),
        ["refuse"] => return Ok(Target::Refuse),
        ["dif"] => (None, TEMPLATE),
        ["dif", "as", template] => (None, template),
        ["dif", dif] => (Some(dif), TEMPLATE),
        ["dif", dif, "as", template] => (Some(dif), template),
        _ => {
            return Err(RuleError::Target {
                rule: rule.to_owned(),
                target: target.to_owned(),
            });
        }
    };
    check_template(rule, template)?;
    AppName::new(template).map_err(of_name)?;
    Ok(Target::Flow {
        dif: dif.map(DifName::new).transpose().map_err(of_name)?,
        template: template.to_owned(),
    })
}

fn check_template(rule: &str, template: &str) -> Result<(), RuleError> {
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        let end = rest[at..].find('}').map_or(rest.len(), |end| at + end + 1);
        let placeholder = &rest[at..end];
        if !["{host}", "{name}", "{port}"].contains(&placeholder) {
            return Err(RuleError::Placeholder {
                rule: rule.to_owned(),
                placeholder: placeholder.to_owned(),
            });
        }
        rest = &rest[end..];
    }
    Ok(())
}

impl Ports {
    const ALL: Ports = Ports {
        first: 0,
        last: u16::MAX,
    };
}

impl TryFrom<String> for Rule {
    type Error = RuleError;

    fn try_from(text: String) -> Result<Rule, RuleError> {
        text.parse()
    }
}

impl From<Rule> for String {
    fn from(rule: Rule) -> String {
        rule.to_string()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.direction == Direction::Listen {
            f.write_str("listen ")?;
        }
        show_place(f, &self.host, self.ports)?;
        match &self.target {
            Target::Kernel => f.write_str(" -> kernel"),
            Target::Refuse => f.write_str(" -> refuse"),
            Target::Flow { dif, template } => {
                f.write_str(" -> dif")?;
                if let Some(dif) = dif {
                    write!(f, " {dif}")?;
                }
                write!(f, " as {template}")
            }
        }
    }
}

/// Writes `HOST[:PORTS]`.
fn show_place(f: &mut fmt::Formatter<'_>, host: &Host, ports: Ports) -> fmt::Result {
    let has_ports = ports != Ports::ALL;
    match host {
        Host::Any => f.write_str("*")?,
        Host::Name(pattern) => write!(f, "{pattern}")?,
        Host::Network { address, length } if address.is_ipv6() && has_ports => {
            write!(f, "[{address}/{length}]")?;
        }
        Host::Network { address, length } => write!(f, "{address}/{length}")?,
    }
    let Ports { first, last } = ports;
    match () {
        () if !has_ports => Ok(()),
        () if first == last => write!(f, ":{first}"),
        () => write!(f, ":{first}-{last}"),
    }
}

/// The domain of host names that the default rule and the resolver treat as names in DIFs.
pub const DOMAIN: &str = ".dif.internal";

/// Template of the application name for a rule without one.
const TEMPLATE: &str = "{host}:{port}";

#[cfg(test)]
mod tests;
