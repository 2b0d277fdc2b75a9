//! Reads a rule from its text, and writes it.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use carina_api::{AppName, DifName};
use wildmatch::WildMatch;

use super::{Direction, Host, Ports, Rule, RuleError, Target};

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
pub(super) fn host_and_ports(text: &str) -> (&str, Option<&str>) {
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

pub(super) fn parse_host(rule: &str, host: &str) -> Result<Host, RuleError> {
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

pub(super) fn parse_ports(rule: &str, ports: &str) -> Result<Ports, RuleError> {
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
pub(super) fn show_place(f: &mut fmt::Formatter<'_>, host: &Host, ports: Ports) -> fmt::Result {
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

/// Template of the application name for a rule without one.
const TEMPLATE: &str = "{host}:{port}";

/// Prefix length of IPv6 addresses that stand for IPv4 addresses (RFC 4291, section 2.5.5.2).
const MAPPED_BITS: u8 = 96;
