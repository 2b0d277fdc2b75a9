//! The settings of services, as command lines and configuration files give them.

use std::fmt;

use carina_api::{AppName, DifName};
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::error::GatewayError;

/// A server outside of DIFs that is reachable by a name: `[[expose]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expose {
    /// The name to register.
    pub name: AppName,
    /// The DIF to register in; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The server.
    pub to: Endpoint,
    /// Send a header of the PROXY protocol, version 2, in front of each connection.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Connections at a time.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
    /// Time after which a UDP peer that is silent is forgotten, in milliseconds.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
}

/// A name that is reachable by a socket: `[[connect]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// The name of the application wanted.
    pub name: AppName,
    /// The DIF to use; `None` for the first that knows the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The name of the application that asks.
    #[serde(default = "local")]
    pub local: AppName,
    /// Where to listen.
    pub listen: Endpoint,
    /// Connections at a time.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
    /// Time after which a UDP peer that is silent is forgotten, in milliseconds.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
}

/// A service of a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// A server that is reachable by a name.
    Expose(Expose),
    /// A name that is reachable by a socket.
    Connect(Connect),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Expose(expose) => write!(f, "expose {} as {}", expose.to, expose.name),
            Setting::Connect(connect) => {
                write!(f, "connect {} to {}", connect.listen, connect.name)
            }
        }
    }
}

impl Expose {
    /// An exposed server with the defaults.
    #[must_use]
    pub fn new(name: AppName, to: Endpoint) -> Expose {
        Expose {
            name,
            dif: None,
            to,
            proxy_protocol: false,
            connections_max: CONNECTIONS_MAX,
            idle_ms: IDLE_MS,
        }
    }

    /// Checks what can be checked without a node.
    ///
    /// # Errors
    /// The field, its value and what would be right.
    pub fn check(&self) -> Result<(), GatewayError> {
        if self.proxy_protocol && matches!(self.to, Endpoint::Udp(_)) {
            return Err(GatewayError::Setting {
                field: "proxy_protocol",
                value: format!("true for {}", self.to),
                right: "a server of TCP or of a Unix socket",
            });
        }
        check(self.connections_max, self.idle_ms)
    }
}

impl Connect {
    /// A connector with the defaults.
    #[must_use]
    pub fn new(name: AppName, listen: Endpoint) -> Connect {
        Connect {
            name,
            dif: None,
            local: local(),
            listen,
            connections_max: CONNECTIONS_MAX,
            idle_ms: IDLE_MS,
        }
    }

    /// Checks what can be checked without a node.
    ///
    /// # Errors
    /// The field, its value and what would be right.
    pub fn check(&self) -> Result<(), GatewayError> {
        check(self.connections_max, self.idle_ms)
    }
}

/// Checks a limit of connections.
pub(crate) fn check_connections_max(connections_max: usize) -> Result<(), GatewayError> {
    if connections_max > 0 {
        return Ok(());
    }
    Err(GatewayError::Setting {
        field: "connections_max",
        value: "0".to_owned(),
        right: "1 or more",
    })
}

fn check(connections_max: usize, idle_ms: u64) -> Result<(), GatewayError> {
    check_connections_max(connections_max)?;
    if !(IDLE_MS_MIN..=IDLE_MS_MAX).contains(&idle_ms) {
        return Err(GatewayError::Setting {
            field: "idle_ms",
            value: idle_ms.to_string(),
            right: "100 to 86400000",
        });
    }
    Ok(())
}

fn connections_max() -> usize {
    CONNECTIONS_MAX
}

fn idle_ms() -> u64 {
    IDLE_MS
}

fn local() -> AppName {
    AppName::new("carina.connect").expect("a constant that is a name")
}

/// Connections of a service at a time, by default.
pub const CONNECTIONS_MAX: usize = 4096;

/// Time after which a silent UDP peer is forgotten, by default, in milliseconds.
pub const IDLE_MS: u64 = 60_000;

const IDLE_MS_MIN: u64 = 100;
const IDLE_MS_MAX: u64 = 86_400_000;
