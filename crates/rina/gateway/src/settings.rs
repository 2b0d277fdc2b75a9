//! The settings of services, as command lines and configuration files give them.

use std::fmt;

use carina_api::{AppName, DifName};
use serde::{Deserialize, Serialize};

use crate::endpoint::Endpoint;
use crate::error::GatewayError;
use crate::internet::Internet;

/// Settings of a service that registers an application name and connects each flow to it with a
/// server outside of DIFs: the table `[[expose]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expose {
    /// The application name to register.
    pub name: AppName,
    /// The DIF in which to register the name; `None` for all DIFs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// The address of the server to which the gateway connects.
    pub to: Endpoint,
    /// Whether the gateway sends a header of the PROXY protocol, version 2, in front of each
    /// connection.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Largest number of connections at a time.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
    /// Time without datagrams after which a UDP peer and its flow are forgotten, in milliseconds.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
}

/// Settings of a service that listens on an address and allocates a flow to an application for each
/// connection: the table `[[connect]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Connect {
    /// Name of the application to which flows are requested.
    pub name: AppName,
    /// The DIF to use; `None` for the first DIF that knows the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dif: Option<DifName>,
    /// Name under which the gateway requests the flows.
    #[serde(default = "local")]
    pub local: AppName,
    /// The address on which the gateway listens.
    pub listen: Endpoint,
    /// Largest number of connections at a time.
    #[serde(default = "connections_max")]
    pub connections_max: usize,
    /// Time without datagrams after which a UDP peer and its flow are forgotten, in milliseconds.
    #[serde(default = "idle_ms")]
    pub idle_ms: u64,
}

/// One service of a gateway, with its settings.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// A service that makes a server reachable by an application name.
    Expose(Expose),
    /// A service that makes an application reachable by a socket.
    Connect(Connect),
    /// A proxy, registered as an application, to the network of this host.
    Internet(Internet),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Expose(expose) => write!(f, "expose {} as {}", expose.to, expose.name),
            Setting::Connect(connect) => {
                write!(f, "connect {} to {}", connect.listen, connect.name)
            }
            Setting::Internet(internet) => {
                write!(f, "the internet as {}", internet.name)
            }
        }
    }
}

impl Expose {
    /// Makes the settings of an exposed server with defaults for the other fields.
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

    /// Checks the settings that can be checked without a node.
    ///
    /// # Errors
    /// A field is wrong; the error names the field, its value and what would be right.
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
    /// Makes the settings of a connector with defaults for the other fields.
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

    /// Checks the settings that can be checked without a node.
    ///
    /// # Errors
    /// A field is wrong; the error names the field, its value and what would be right.
    pub fn check(&self) -> Result<(), GatewayError> {
        check(self.connections_max, self.idle_ms)
    }
}

/// Checks that a limit of connections is in its range.
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

/// Default of `connections_max` of a service.
pub const CONNECTIONS_MAX: usize = 4096;

/// Default of `idle_ms` of a service, in milliseconds.
pub const IDLE_MS: u64 = 60_000;

const IDLE_MS_MIN: u64 = 100;
const IDLE_MS_MAX: u64 = 86_400_000;
