//! Addresses of sockets as a user writes them: `tcp:127.0.0.1:22`, `unix:/run/web.sock`,
//! `udp:127.0.0.1:53`.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The address of a kernel socket, outside of DIFs, as a user writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Endpoint {
    /// A TCP address: `HOST:PORT`.
    Tcp(String),
    /// The path of a Unix stream socket.
    Unix(PathBuf),
    /// A UDP address: `HOST:PORT`.
    Udp(String),
}

/// Why a text is not the address of a socket. `Display` gives the reason.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text:?} {what}; tcp:HOST:PORT, udp:HOST:PORT or unix:PATH would be right")]
pub struct EndpointError {
    text: String,
    what: String,
}

impl EndpointError {
    /// What is wrong with the text, as a phrase such as "has no host and port".
    pub fn reason(&self) -> &str {
        &self.what
    }
}

/// An endpoint whose host name has been replaced by an IP address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resolved {
    Tcp(SocketAddr),
    Unix(PathBuf),
    Udp(SocketAddr),
}

impl Endpoint {
    /// Looks up the IP address if the endpoint names a host. The call may wait for a name server.
    pub(crate) fn resolve(&self) -> io::Result<Resolved> {
        let address = |text: &str| {
            let first = text.to_socket_addrs()?.next();
            first.ok_or_else(|| io::Error::other("the host has no address"))
        };
        Ok(match self {
            Endpoint::Tcp(text) => Resolved::Tcp(address(text)?),
            Endpoint::Udp(text) => Resolved::Udp(address(text)?),
            Endpoint::Unix(path) => Resolved::Unix(path.clone()),
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(address) => write!(f, "tcp:{address}"),
            Endpoint::Unix(path) => write!(f, "unix:{}", path.display()),
            Endpoint::Udp(address) => write!(f, "udp:{address}"),
        }
    }
}

impl From<Endpoint> for String {
    fn from(endpoint: Endpoint) -> String {
        endpoint.to_string()
    }
}

impl TryFrom<String> for Endpoint {
    type Error = EndpointError;

    fn try_from(text: String) -> Result<Endpoint, EndpointError> {
        text.parse()
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let wrong = |what: &str| EndpointError {
            text: text.to_owned(),
            what: what.to_owned(),
        };
        let (kind, address) = text.split_once(':').ok_or_else(|| wrong("has no kind"))?;
        match kind {
            "tcp" | "udp" => {
                let port = address
                    .rsplit_once(':')
                    .map(|(host, port)| (host, port.parse::<u16>()));
                match port {
                    Some((host, Ok(_))) if !host.is_empty() => {}
                    Some((_, Err(_))) => return Err(wrong("has no port from 0 to 65535")),
                    _ => return Err(wrong("has no host and port")),
                }
                let address = address.to_owned();
                Ok(if kind == "tcp" {
                    Endpoint::Tcp(address)
                } else {
                    Endpoint::Udp(address)
                })
            }
            "unix" if address.is_empty() => Err(wrong("has no path")),
            "unix" if address.len() > UNIX_PATH_MAX => Err(wrong("is longer than 107 bytes")),
            "unix" => Ok(Endpoint::Unix(address.into())),
            _ => Err(wrong("is of an unknown kind")),
        }
    }
}

/// Longest path of a Unix socket, in bytes.
const UNIX_PATH_MAX: usize = 107;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_shown() {
        for text in [
            "tcp:127.0.0.1:22",
            "tcp:[::1]:80",
            "unix:/run/a b",
            "udp:host.example:53",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_endpoints_are_named_with_what_is_right() {
        for (text, words) in [
            ("127.0.0.1", "has no kind"),
            ("ftp:1.2.3.4:5", "unknown kind"),
            ("tcp:127.0.0.1", "no host and port"),
            ("tcp::22", "no host and port"),
            ("udp:host:port", "no port"),
            ("tcp:host:70000", "no port"),
            ("unix:", "no path"),
        ] {
            let error = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(
                error.contains(words) && error.contains("unix:PATH"),
                "{error}"
            );
        }
        let long = format!("unix:/{}", "x".repeat(120));
        assert!(long.parse::<Endpoint>().is_err());
    }
}
