//! Errors when a shim is opened or loses its medium.

use std::io;
use std::net::SocketAddr;

use carina_dataplane::BuildError;
use carina_frame::PoolError;
use carina_frame_engine::{ConfigureError, GraphError};
use carina_netdev::{FaultPlanError, NetdevError};
use thiserror::Error;

/// Why a shim cannot be opened, or has lost its medium.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShimError {
    /// The VLAN id is out of range.
    #[error("VLAN id {id}: must be 1 to {max}, or 0 for frames without tag")]
    Vlan {
        /// The configured id.
        id: u16,
        /// The highest valid id.
        max: u16,
    },
    /// The MTU of the interface is too small.
    #[error("the MTU of {interface} is {mtu}; PDUs need at least {min}")]
    Mtu {
        /// Name of the interface whose MTU is too small.
        interface: String,
        /// MTU of the interface in bytes.
        mtu: usize,
        /// The smallest usable MTU in bytes.
        min: usize,
    },
    /// The port of a graph does not support an MTU of this size.
    #[error("the MTU of the port is {mtu}; at most {mtu_max} is possible")]
    PortMtu {
        /// The requested MTU in bytes.
        mtu: usize,
        /// The largest possible MTU in bytes.
        mtu_max: usize,
    },
    /// The port of a graph cannot be created.
    #[error(transparent)]
    Port(#[from] ConfigureError),
    /// A link in the graph of the port has no valid end.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is not enough memory for frames.
    #[error(transparent)]
    Frames(#[from] PoolError),
    /// The interface is down, or no cable is connected.
    #[error("interface {0} is down, or nothing is connected to it")]
    Down(String),
    /// The configured longest SDU is out of range.
    #[error("the longest SDU is set to {bytes} bytes; over UDP it must be 64 to {limit}")]
    SduMax {
        /// The configured length in bytes.
        bytes: usize,
        /// The largest valid length in bytes.
        limit: usize,
    },
    /// The fault layer does not support the configured faults.
    #[error("fault: {0}")]
    Fault(#[from] FaultPlanError),
    /// The interface or socket cannot be opened, for this reason.
    #[error("{0}")]
    Netdev(#[from] NetdevError),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed, as a phrase for people.
        what: String,
        /// The error of the system call.
        source: io::Error,
    },
    /// No socket is left for a flow that an application of this system requests.
    #[error("{0} flows are allocated from here already; this framing allows no more")]
    SocketsExhausted(usize),
}

impl ShimError {
    /// Returns a closure that makes the error of a failed system call; `what` describes the
    /// attempt.
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

/// Why the address of an application is unknown or cannot be reached.
#[derive(Debug, Error)]
pub(crate) enum AddressError {
    /// The host in the table's entry cannot be resolved.
    #[error("looking up {host}, the address of {name}: {source}")]
    Table {
        name: String,
        host: String,
        source: io::Error,
    },
    /// The table has no entry for the name, and no host has this name.
    #[error(
        "the address of {name} is unknown: it is not in `peers`, and looking it up as a host \
         name failed: {source}"
    )]
    Unknown { name: String, source: io::Error },
    /// The connection to the address failed.
    #[error("{address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
}
