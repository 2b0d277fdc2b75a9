//! The settings of a proxy.

use std::fmt;

use carina_api::AppName;
use carina_wrap::name_table::NameTable;
use carina_wrap::rule::{Direction, Rule};

use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::settings::{CONNECTIONS_MAX, check_connections_max};

/// A listening socket whose clients name their destinations.
#[derive(Debug, Clone)]
pub struct Proxy {
    /// What its clients speak.
    pub protocol: Protocol,
    /// Where it listens.
    pub listen: Endpoint,
    /// Which destinations become flows: the first rule that fits decides.
    pub rules: Vec<Rule>,
    /// Connect by TCP to destinations that no rule fits. Otherwise they are refused.
    pub pass: bool,
    /// The table that gives names of DIFs addresses.
    pub names: NameTable,
    /// The name of the application that asks for flows.
    pub local: AppName,
    /// Connections at a time.
    pub connections_max: usize,
}

/// What clients of a proxy speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// SOCKS Protocol Version 5 (RFC 1928).
    Socks5,
    /// HTTP/1.0 or HTTP/1.1 to a proxy (RFC 9110, RFC 9112).
    Http,
}

impl Proxy {
    /// A proxy with the defaults, which refuses every destination that no rule fits.
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

    /// Checks what can be checked without a node.
    ///
    /// # Errors
    /// The field, its value and what would be right.
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
                right: "a rule without `listen`: a proxy only connects",
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
