//! Streams: the records of the VMPI over a socket of the kernel, for a VM that may have neither
//! shared memory nor a vhost-user device of Carina's.
//!
//! ```text
//!  guest's node                                                    host's node
//!  AF_VSOCK, connects to (2, 1110) -- the VM's vsock device -- Unix socket PATH_1110, listens
//! ```
//!
//! The guest's end is a stream of AF_VSOCK, which any user of a stock kernel may open. The host's
//! end is a Unix socket: Firecracker, Cloud Hypervisor and the crate `carina-vsock` connect to
//! `PATH_1110` when the guest connects to port 1110. One connection is one link: a node that ends
//! closes its connection, and a node that restarts makes a new one. [`frame`] is the format.
//!
//! A sender has few bytes on the way, whatever the sockets in between would hold: as many as
//! lengthen the way by about a quarter (`flight.rs`), and at most the peer's window. Records of a
//! flow that begins to send therefore wait behind little.

mod connection;
mod connector;
mod device;
mod flight;
pub mod frame;
mod host;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;

pub use self::connector::PORT_DEFAULT;
pub use self::host::HostPort;

use self::connector::{Connector, Guest};
use self::device::StreamDevice;
use super::VmpiImpl;
use crate::hl::Side;

/// Opens the guest's side of a link: connects to `port` of the host by AF_VSOCK. The host may start
/// to listen later.
///
/// # Errors
/// `Unsupported` if the guest's kernel has no AF_VSOCK; the kernel refuses memory.
pub fn open_guest(port: u32) -> io::Result<Box<dyn VmpiImpl + Send>> {
    let connector = Guest::new(port)?;
    Ok(Box::new(StreamDevice::new(
        Side::Guest,
        Connector::Guest(connector),
    )?))
}

/// Opens one side of a link over a connected stream socket, which does not block. When the
/// connection ends, the link stays down.
///
/// # Errors
/// The kernel refuses memory.
pub fn over(side: Side, socket: OwnedFd) -> io::Result<Box<dyn VmpiImpl + Send>> {
    let connector = Connector::Given(Some(socket));
    Ok(Box::new(StreamDevice::new(side, connector)?))
}
