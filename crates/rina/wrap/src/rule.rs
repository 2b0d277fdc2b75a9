//! Rules: which connections and which listening sockets of a wrapped program become flows.
//!
//! ```text
//! rule    = ["listen "] HOST [":" PORTS] "->" target
//! HOST    = "*" | pattern of a name ("*.vm") | address | address "/" prefix length
//! PORTS   = port | port "-" port
//! target  = "kernel" | "refuse" | "dif" [DIF] ["as" NAME]
//! ```
//!
//! An IPv6 address stands in brackets where ports follow it. `NAME` is the name of the application
//! in the DIF. In it `{host}` and `{port}` are replaced, and `{name}` by the host without its
//! ending `.dif.internal`. A rule without `NAME` has `{host}:{port}`. The first rule that fits
//! decides; where none fits, the kernel has the socket.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use carina_api::{AppName, DifName, NameError};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wildmatch::WildMatch;

/// One rule.
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
    /// The kernel has it, as without `carina wrap`.
    Kernel,
    /// The call fails with `ECONNREFUSED` (connect) or `EACCES` (bind).
    Refuse,
    /// It is a flow, or the registration of a name.
    Flow {
        /// The DIF; `None` for the first that knows the name, or for all in which to register.
        dif: Option<DifName>,
        /// The name of the application, with `{host}` and `{port}`.
        template: String,
    },
}

/// What one socket becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The kernel has it.
    Kernel,
    /// The call is refused.
    Refuse,
    /// A flow to, or the registration of, `name`.
    Flow {
        /// The DIF; `None` for any.
        dif: Option<DifName>,
        /// The name of the application.
        name: AppName,
    },
}

/// An address that a program uses, and the name for which it was given that address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The name, where the address is one of the table of names.
    pub host: Option<String>,
    /// The address and the port.
    pub socket: SocketAddr,
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No arrow.
    #[error("rule {0:?} has no \"->\"; a rule is HOST[:PORTS] -> TARGET, as \"*.vm -> dif\"")]
    NoArrow(String),
    /// No host before the arrow.
    #[error("rule {0:?} has no host before \"->\"; \"*\" stands for every host")]
    NoHost(String),
    /// A prefix length that the address cannot have.
    #[error("rule {rule:?}: /{length} is no prefix length of {address}; it has 0 to {max}")]
    PrefixLength {
        /// The rule.
        rule: String,
        /// The address.
        address: IpAddr,
        /// What stands behind the `/`.
        length: String,
        /// The longest prefix.
        max: u8,
    },
    /// Not a port, or a range whose end lies before its start.
    #[error("rule {rule:?}: {ports:?} is neither a port from 1 to 65535 nor a range such as 80-89")]
    Ports {
        /// The rule.
        rule: String,
        /// What stands behind the `:`.
        ports: String,
    },
    /// Not one of the three targets.
    #[error("rule {rule:?}: target {target:?} is none of kernel, refuse, dif [DIF] [as NAME]")]
    Target {
        /// The rule.
        rule: String,
        /// What stands behind the arrow.
        target: String,
    },
    /// An invalid name.
    #[error("rule {rule:?}: {error}")]
    Name {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        error: NameError,
    },
    /// A placeholder that is not one of the two.
    #[error("rule {rule:?}: {placeholder} is none of {{host}}, {{name}} and {{port}}")]
    Placeholder {
        /// The rule.
        rule: String,
        /// What stands in braces.
        placeholder: String,
    },
}

impl Rule {
    /// A rule that gives every listening socket of a wildcard address the name `host:PORT`.
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

    /// Whether the rule is for sockets that connect or for sockets that listen.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Whether only the address of a host, not its name, tells if the rule fits.
    pub fn is_of_addresses(&self) -> bool {
        matches!(self.host, Host::Network { .. })
    }

    /// Whether the rule is about this address in this direction.
    pub fn fits(&self, direction: Direction, address: &Address) -> bool {
        let port = address.socket.port();
        self.direction == direction
            && (self.ports.first..=self.ports.last).contains(&port)
            && self.host.fits(address)
    }

    /// Whether the rule makes flows of connections to a host with this name, on some port: a
    /// program that looks the name up must be given an address for it.
    pub fn names(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let fits = match &self.host {
            Host::Any => host != "localhost" && host.parse::<IpAddr>().is_err(),
            Host::Name(pattern) => pattern.matches(&host),
            Host::Network { .. } => false,
        };
        fits && self.direction == Direction::Connect && matches!(self.target, Target::Flow { .. })
    }

    /// Whether the rule makes flows of connections to hosts by their names.
    pub fn has_names(&self) -> bool {
        let is_flow = matches!(self.target, Target::Flow { .. });
        is_flow && self.direction == Direction::Connect && !self.is_of_addresses()
    }

    /// Whether this rule fits everything that `other` fits: behind it, `other` is never used.
    pub fn hides(&self, other: &Rule) -> bool {
        let (all, part) = (self.ports, other.ports);
        self.direction == other.direction
            && all.first <= part.first
            && part.last <= all.last
            && self.host.contains(&other.host)
    }

    /// What a socket with this address becomes.
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

    fn fits(&self, address: &Address) -> bool {
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

/// Parts `HOST:PORTS`, where an IPv6 address has colons itself.
fn host_and_ports(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').unwrap_or((rest, ""));
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
        return Ok(Host::Name(WildMatch::new(&host.to_ascii_lowercase())));
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    let parsed = length.map_or(Ok(max), str::parse::<u8>);
    match parsed {
        Ok(length) if length <= max => Ok(Host::Network { address, length }),
        _ => Err(RuleError::PrefixLength {
            rule: rule.to_owned(),
            address,
            length: length.unwrap_or_default().to_owned(),
            max,
        }),
    }
}

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
        let has_ports = self.ports != Ports::ALL;
        match &self.host {
            Host::Any => f.write_str("*")?,
            Host::Name(pattern) => write!(f, "{pattern}")?,
            Host::Network { address, length } if address.is_ipv6() && has_ports => {
                write!(f, "[{address}/{length}]")?;
            }
            Host::Network { address, length } => write!(f, "{address}/{length}")?,
        }
        let Ports { first, last } = self.ports;
        match () {
            () if !has_ports => {}
            () if first == last => write!(f, ":{first}")?,
            () => write!(f, ":{first}-{last}")?,
        }
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

/// The ending of names of hosts in DIFs that the default rule, and the resolver, know.
pub const DOMAIN: &str = ".dif.internal";

/// The name of an application where a rule has none.
const TEMPLATE: &str = "{host}:{port}";

#[cfg(test)]
mod tests;
