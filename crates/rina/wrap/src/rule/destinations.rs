//! Sets of destinations, `HOST[:PORTS]`: the left side of a rule, without a target.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::text::{host_and_ports, parse_host, parse_ports, show_place};
use super::{Host, Ports, RuleError, has_prefix};

/// Hosts and ports to which connections are allowed: `*`, `www.example.com:80`, `*.example.com`,
/// `10.9.0.0/16:80-89`.
#[derive(Debug, Clone, PartialEq)]
pub struct Destinations {
    host: Host,
    ports: Ports,
}

impl Destinations {
    /// Whether the set contains the host with this name, on this port.
    pub fn has_name(&self, name: &str, port: u16) -> bool {
        let is_match = match &self.host {
            Host::Any => true,
            Host::Name(pattern) => pattern.matches(&name.to_ascii_lowercase()),
            Host::Network { .. } => false,
        };
        is_match && self.has_port(port)
    }

    /// Whether the set contains this address, on this port. A set that is given by a name contains
    /// no address.
    pub fn has_address(&self, address: IpAddr, port: u16) -> bool {
        matches!(self.host, Host::Any) && self.has_port(port)
            || self.network_of(address, port).is_some()
    }

    /// If the set is a network that contains this address, on this port, returns the network and
    /// the length of its prefix; otherwise `None`.
    pub fn network_of(&self, address: IpAddr, port: u16) -> Option<(IpAddr, u8)> {
        match self.host {
            Host::Network {
                address: network,
                length,
            } if self.has_port(port) && has_prefix(address.to_canonical(), network, length) => {
                Some((network, length))
            }
            _ => None,
        }
    }

    fn has_port(&self, port: u16) -> bool {
        (self.ports.first..=self.ports.last).contains(&port)
    }
}

impl FromStr for Destinations {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Destinations, RuleError> {
        let (host, ports) = host_and_ports(text.trim());
        let is_of_host = |c: char| c.is_ascii_alphanumeric() || "*?.-_:/".contains(c);
        if host.is_empty() || !host.chars().all(is_of_host) {
            return Err(RuleError::Destination(text.to_owned()));
        }
        let unfit = || RuleError::Destination(text.to_owned());
        let host = parse_host(text, host).map_err(|error| match error {
            RuleError::Host { .. } => unfit(),
            error => error,
        })?;
        if matches!(&host, Host::Name(pattern) if pattern.pattern().contains(':')) {
            return Err(unfit());
        }
        Ok(Destinations {
            host,
            ports: ports.map_or(Ok(Ports::ALL), |ports| parse_ports(text, ports))?,
        })
    }
}

impl fmt::Display for Destinations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show_place(f, &self.host, self.ports)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Destinations {
        text.parse().unwrap()
    }

    #[test]
    fn names_and_addresses_fit_their_own_rules_only() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let name = rule("*.example.com:80");
        assert!(name.has_name("Www.Example.com", 80));
        assert!(!name.has_name("www.example.com", 443) && !name.has_name("example.com.evil", 80));
        assert!(!name.has_address(address("10.0.0.1"), 80));
        let network = rule("10.9.0.0/16:80-89");
        assert!(network.has_address(address("10.9.1.2"), 85));
        assert!(network.has_address(address("::ffff:10.9.1.2"), 85));
        assert!(!network.has_address(address("10.8.1.2"), 85));
        assert!(!network.has_name("10.9.1.2.example", 85));
        let any = rule("*");
        assert!(any.has_name("a", 1) && any.has_address(address("::1"), 1));
        assert_eq!(any.network_of(address("::1"), 1), None);
    }

    #[test]
    fn destinations_are_read_as_they_are_shown() {
        for text in [
            "*",
            "*:80",
            "www.example.com:80",
            "10.0.0.0/8:1-9",
            "[fd00::/8]:80",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
    }

    #[test]
    fn wrong_destinations_are_named_with_what_is_right() {
        for (text, words) in [
            ("", "HOST[:PORTS]"),
            (":80", "HOST[:PORTS]"),
            ("* -> dif", "HOST[:PORTS]"),
            ("http://www.example.com/", "port"),
            ("www.example.com/debian", "HOST[:PORTS]"),
            ("a:0", "port from 1"),
            ("a:80-70", "port from 1"),
            ("10.0.0.0/33", "prefix length"),
        ] {
            let error = text.parse::<Destinations>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
