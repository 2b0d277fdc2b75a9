//! Prepares the socket of a connection before the node attaches it to a flow.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};

/// Prepares a socket for its use as the end of a flow: makes it blocking, as the application that
/// gets it expects, and lets TCP send at once the data that the node writes in pieces.
pub(crate) fn prepare(socket: impl AsFd, is_tcp: bool) -> rustix::io::Result<()> {
    if is_tcp {
        set_tcp_nodelay(&socket, true)?;
    }
    rustix::io::ioctl_fionbio(&socket, false)
}

/// Closes a connection. If its protocol has a reset (TCP), the client sees an error.
pub(crate) fn reset(socket: OwnedFd) {
    // The option has no effect on a Unix socket; a connection that has ended needs no reset.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}
