//! Where a client of a proxy wants to connect to.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use carina_wrap::name_table::is_host;

/// The host and the port to which a client of a proxy wants to connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub host: Host,
    /// The port, which is never 0.
    pub port: u16,
}

/// A host, as its client names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    /// A name in lower case, without a dot at its end.
    Name(String),
    Address(IpAddr),
}

impl Destination {
    /// Makes a destination from the text of a host's name or address. `None` if the text is
    /// neither, or if the port is 0.
    pub(crate) fn new(host: &str, port: u16) -> Option<Destination> {
        let host = match host.parse::<IpAddr>() {
            Ok(address) => Host::Address(address),
            Err(_) => Host::Name(name(host)?),
        };
        (port != 0).then_some(Destination { host, port })
    }

    /// Parses `HOST:PORT` or `[IPv6]:PORT`. If there is a default port, the text may omit the port.
    /// `None` if the text is invalid.
    pub(crate) fn from_authority(text: &str, default_port: Option<u16>) -> Option<Destination> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                host.parse::<Ipv6Addr>().ok()?;
                match rest {
                    "" => (host, None),
                    rest => (host, Some(rest.strip_prefix(':')?)),
                }
            }
            None => match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        let port = match port {
            // RFC 3986 §3.2.3 allows a colon without a port.
            None | Some("") => default_port?,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok()?
            }
            Some(_) => return None,
        };
        Destination::new(host, port)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
        }
    }
}

/// Returns a host name in lower case; `None` if it is invalid. Numbers such as `127.1` and `0x7f.1`
/// are invalid: the system takes them for addresses, but the rules would see names.
fn name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    let mut labels = name.split('.');
    let has_labels = labels.all(|label| !label.is_empty()) && !name.split('.').all(is_number);
    (has_labels && is_host(name)).then(|| name.to_ascii_lowercase())
}

/// Whether the system may take a label for a part of an IPv4 address, in decimal, octal or
/// hexadecimal digits.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x").or(label.strip_prefix("0X")) {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_are_hosts_with_ports() {
        for (text, shown) in [
            ("Web.VM.:80", "web.vm:80"),
            ("10.0.0.1:8080", "10.0.0.1:8080"),
            ("[fd00::1]:443", "[fd00::1]:443"),
            ("web.vm", "web.vm:80"),
            ("[::1]", "[::1]:80"),
            ("web.vm:", "web.vm:80"),
            ("7.vm:80", "7.vm:80"),
            ("web.1:80", "web.1:80"),
        ] {
            let read = Destination::from_authority(text, Some(80)).unwrap();
            assert_eq!(read.to_string(), shown);
        }
    }

    #[test]
    fn what_is_no_authority_is_refused() {
        for text in [
            "",
            ":80",
            "web.vm:0",
            "web.vm:65536",
            // With two dots the resolver would find the name, and no rule would fit it.
            "web.vm..:80",
            ".vm:80",
            "web.vm:+80",
            "web vm:80",
            "u@web.vm:80",
            "[web.vm]:80",
            "[::1]80",
            "[::1:80",
            "::1:80",
            "a\0b:80",
            "ä.vm:80",
            "[fe80::1%25eth0]:80",
            "127.1",
            "127.0.0.1.",
            "0177.1",
            "0x7f.0x1",
            "0X7F000001",
            "2130706433",
        ] {
            assert_eq!(Destination::from_authority(text, Some(80)), None, "{text}");
        }
        assert_eq!(Destination::from_authority("web.vm", None), None);
        assert_eq!(Destination::new(&"a".repeat(254), 1), None);
    }
}
