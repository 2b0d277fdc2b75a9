//! Why a gateway cannot start, or has ended.

use std::io;

use carina_api::AppName;
use carina_client::Error;
use carina_wrap::rule::RuleError;
use thiserror::Error as ThisError;

use crate::endpoint::Endpoint;

/// Why a gateway cannot start, or has ended.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum GatewayError {
    /// A setting has an invalid value.
    #[error("{field} is {value}; {right} would be right")]
    Setting {
        /// Name of the setting that has a wrong value.
        field: &'static str,
        /// The wrong value of the setting.
        value: String,
        /// A description of correct values.
        right: &'static str,
    },
    /// The text of a rule is not valid.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// A host name cannot be resolved.
    #[error("looking up {endpoint}: {source}")]
    Resolve {
        /// The endpoint that names the host.
        endpoint: Endpoint,
        /// Why the operating system could not resolve the host name.
        source: io::Error,
    },
    /// The gateway cannot listen on an address.
    #[error("listening on {endpoint}: {}", listening(endpoint, source))]
    Listen {
        /// The address on which the gateway was to listen.
        endpoint: Endpoint,
        /// Why the operating system refused to listen on the address.
        source: io::Error,
    },
    /// The node does not register a name.
    #[error("registering {name}: {source}")]
    Register {
        /// The name that the gateway tried to register.
        name: AppName,
        /// The error that the node returned.
        source: Error,
    },
    /// A registration has ended: the node has ended, or the DIF no longer accepts the name.
    #[error("the registration of {name} has ended: {source}")]
    Ended {
        /// The name that is no longer registered.
        name: AppName,
        /// The error that the node returned.
        source: Error,
    },
    /// The operating system refused an operation.
    #[error("{action}: {source}")]
    System {
        /// The operation that was attempted.
        action: &'static str,
        /// The error of the refused operation.
        source: io::Error,
    },
}

impl GatewayError {
    /// Makes a closure for `map_err` that adds the attempted operation to an error of the operating
    /// system.
    pub(crate) fn system<E: Into<io::Error>>(
        action: &'static str,
    ) -> impl FnOnce(E) -> GatewayError {
        move |source| GatewayError::System {
            action,
            source: source.into(),
        }
    }
}

impl GatewayError {
    /// Makes a closure for `map_err` that adds the endpoint to the error of a failed look-up.
    pub(crate) fn resolving(endpoint: &Endpoint) -> impl FnOnce(io::Error) -> GatewayError + use<> {
        let endpoint = endpoint.clone();
        move |source| GatewayError::Resolve { endpoint, source }
    }
}

fn listening(endpoint: &Endpoint, source: &io::Error) -> String {
    match (source.kind(), endpoint) {
        (io::ErrorKind::AddrInUse, Endpoint::Unix(_)) => {
            "another process listens there; choose another path".to_owned()
        }
        (io::ErrorKind::AddrInUse, _) => {
            "the port is in use by another socket; choose another one".to_owned()
        }
        (io::ErrorKind::AlreadyExists, _) => {
            "a file exists there that is no socket; remove it or choose another path".to_owned()
        }
        (io::ErrorKind::AddrNotAvailable, _) => {
            "this host does not have the address; `ip address` lists those it has".to_owned()
        }
        (io::ErrorKind::PermissionDenied, Endpoint::Tcp(_) | Endpoint::Udp(_)) => {
            "ports below 1024 need CAP_NET_BIND_SERVICE; run as root, or choose a higher port"
                .to_owned()
        }
        (io::ErrorKind::NotFound, _) => "the directory does not exist".to_owned(),
        _ => source.to_string(),
    }
}
