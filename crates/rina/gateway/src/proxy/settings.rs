//! The settings of a proxy.

use std::fmt;

use carina_api::AppName;
use carina_wrap::name_table::NameTable;
use carina_wrap::rule::{Direction, Rule};

use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::settings::{CONNECTIONS_MAX, check_connections_max};

/// Settings of a proxy: a listening socket whose clients name the destinations of their
/// connections.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// The proxy protocol that clients use.
    pub protocol: Protocol,
    /// The address on which the proxy listens for clients.
    pub listen: Endpoint,
    /// Which destinations become flows: the first rule that fits decides.
    pub rules: Vec<Rule>,
    /// Whether the proxy connects by TCP to destinations that no rule fits. If false, it refuses
    /// them.
    pub pass: bool,
    /// The table that gives each name of a DIF an IP address, for clients that look names up
    /// themselves.
    pub names: NameTable,
    /// Application name under which the proxy requests flows.
    pub local: AppName,
    /// Largest number of client connections at a time.
    pub connections_max: usize,
}

/// The protocol between a proxy and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS Protocol Version 5 (RFC 1928).
    Socks5,
    /// HTTP/1.0 or HTTP/1.1 to a proxy (RFC 9110, RFC 9112).
    Http,
}

impl Proxy {
    /// Makes the settings with defaults: the proxy refuses every destination that no rule fits, and
    /// requests flows under the name `carina.proxy`.
    ///
    /// # Panics
    /// Never: the name of the application is a constant.
    #[must_use]
    pub fn new(protocol: Protocol, listen: Endpoint, rules: Vec<Rule>, names: NameTable) -> Proxy {
        Proxy {
            protocol,
            listen,
            rules,
            pass: false,
            names,
            local: AppName::new("carina.proxy").expect("a constant that is a name"),
            connections_max: CONNECTIONS_MAX,
        }
    }

    /// Checks the settings that can be checked without a node.
    ///
    /// # Errors
    /// A field is wrong; the error names the field, its value and what would be right.
    pub fn check(&self) -> Result<(), GatewayError> {
        if !matches!(self.listen, Endpoint::Tcp(_)) {
            return Err(GatewayError::Setting {
                field: "listen",
                value: self.listen.to_string(),
                right: "tcp:HOST:PORT",
            });
        }
        let is_listen = |rule: &&Rule| rule.direction() == Direction::Listen;
        if let Some(rule) = self.rules.iter().find(is_listen) {
            return Err(GatewayError::Setting {
                field: "rule",
                value: rule.to_string(),
                right: "a rule without `listen`",
            });
        }
        check_connections_max(self.connections_max)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Socks5 => "socks5",
            Protocol::Http => "http",
        })
    }
}
