//! Why a shim cannot be opened or loses its medium.

use std::io;
use std::net::SocketAddr;

use carina_dataplane::BuildError;
use carina_engine::frames::{ConfigureError, GraphError};
use carina_frame::PoolError;
use carina_netdev::{FaultPlanError, NetdevError};
use thiserror::Error;

/// What is wrong with a shim's configuration or medium, and what would be right.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShimError {
    /// The VLAN id is out of its range.
    #[error("VLAN id {id}; 1 to {max} are possible, or 0 for frames without tag")]
    Vlan {
        /// The id.
        id: u16,
        /// The highest id.
        max: u16,
    },
    /// The interface carries too little.
    #[error("the MTU of {interface} is {mtu}; PDUs need at least {min}")]
    Mtu {
        /// The interface.
        interface: String,
        /// Its MTU in bytes.
        mtu: usize,
        /// The smallest MTU in bytes.
        min: usize,
    },
    /// The port of a graph cannot have frames that long.
    #[error("the MTU of the port is {mtu}; {most} are possible")]
    PortMtu {
        /// What was asked for, in bytes.
        mtu: usize,
        /// The highest, in bytes.
        most: usize,
    },
    /// The port of a graph cannot be made.
    #[error(transparent)]
    Port(#[from] ConfigureError),
    /// A link of the port's graph leads nowhere.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is no memory for frames.
    #[error(transparent)]
    Frames(#[from] PoolError),
    /// The interface is down.
    #[error("interface {0} is down, or nothing is connected to it")]
    Down(String),
    /// The longest SDU is out of its range.
    #[error("the longest SDU is {bytes} bytes; 64 to {limit} are possible over UDP")]
    SduMax {
        /// The configured length.
        bytes: usize,
        /// The highest length.
        limit: usize,
    },
    /// The fault layer cannot do what is configured.
    #[error("fault: {0}")]
    Fault(#[from] FaultPlanError),
    /// The interface or socket cannot be opened.
    #[error("{0}")]
    Netdev(#[from] NetdevError),
    /// The system refuses.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// No socket is left for a flow that is requested here.
    #[error("{0} flows are allocated from here already; this framing allows no more")]
    SocketsExhausted(usize),
}

impl ShimError {
    /// Makes the error of a refused system call.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ShimError {
        let what = what.into();
        move |source| ShimError::System { what, source }
    }
}

impl From<ShimError> for BuildError {
    fn from(error: ShimError) -> BuildError {
        BuildError::Kind(Box::new(error))
    }
}

/// Why the address of an application is unknown or unreachable.
#[derive(Debug, Error)]
pub(crate) enum AddressError {
    /// The table's entry cannot be resolved.
    #[error("the address {host} of {name}: {source}")]
    Table {
        name: String,
        host: String,
        source: io::Error,
    },
    /// The table has no entry, and the name is not that of a host.
    #[error(
        "the address of {name} is unknown: it is not in `peers`, and as the name of a host: {source}"
    )]
    Unknown { name: String, source: io::Error },
    /// The address refuses the connection.
    #[error("{address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
}
