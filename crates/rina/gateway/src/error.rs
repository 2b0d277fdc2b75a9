//! Why a gateway cannot start, or ends.

use std::io;

use carina_api::AppName;
use carina_client::Error;
use thiserror::Error as ThisError;

use crate::endpoint::Endpoint;

/// Why a gateway cannot start, or ends.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum GatewayError {
    /// A setting that makes no sense.
    #[error("{field} is {value}; {right} would be right")]
    Setting {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        right: &'static str,
    },
    /// A host name that cannot be looked up.
    #[error("looking up {endpoint}: {source}")]
    Resolve {
        /// The endpoint.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// Listening failed.
    #[error("listening on {endpoint}: {}", listening(endpoint, source))]
    Listen {
        /// Where.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// The name cannot be registered.
    #[error("registering {name}: {source}")]
    Register {
        /// The name.
        name: AppName,
        /// What the node said.
        source: Error,
    },
    /// The registration has ended: the node has ended, or the DIF does not take the name.
    #[error("the registration of {name} has ended: {source}")]
    Ended {
        /// The name.
        name: AppName,
        /// What the node said.
        source: Error,
    },
    /// The operating system refused something.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl GatewayError {
    /// Makes a closure for `map_err` that says what was being done.
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
    /// Makes a closure for `map_err` of a look-up.
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
