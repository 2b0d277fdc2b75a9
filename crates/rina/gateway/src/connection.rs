//! What is done to the socket of a connection before it is attached to a flow.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};

/// Makes a socket fit to be the end of a flow: blocking, as the application that is given it
/// expects, and TCP sends at once what the node writes in pieces.
pub(crate) fn prepare(socket: impl AsFd, is_tcp: bool) -> rustix::io::Result<()> {
    if is_tcp {
        set_tcp_nodelay(&socket, true)?;
    }
    rustix::io::ioctl_fionbio(&socket, false)
}

/// Closes a connection so that its client sees an error, where its protocol has a reset.
pub(crate) fn reset(socket: OwnedFd) {
    // Of a Unix socket the option has no effect; a connection that has ended needs no reset.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}
