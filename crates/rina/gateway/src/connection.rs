//! Prepares the socket of a connection before the node attaches it to a flow.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_keepalive, set_socket_linger, set_tcp_keepidle, set_tcp_nodelay,
};

/// Prepares a socket for its use as the end of a flow: makes it blocking, as the application that
/// gets it expects, and sets the options of [`prepare_tcp`].
pub(crate) fn prepare(socket: impl AsFd, is_tcp: bool) -> rustix::io::Result<()> {
    if is_tcp {
        prepare_tcp(&socket)?;
    }
    rustix::io::ioctl_fionbio(&socket, false)
}

/// Lets TCP send at once the data that the node writes in pieces, and probe a peer that is silent:
/// a connection to a peer that has lost power ends, and with it the flow.
pub(crate) fn prepare_tcp(socket: impl AsFd) -> rustix::io::Result<()> {
    set_tcp_nodelay(&socket, true)?;
    set_socket_keepalive(&socket, true)?;
    set_tcp_keepidle(&socket, KEEP_IDLE)
}

/// Closes a connection. If its protocol has a reset (TCP), the client sees an error.
pub(crate) fn reset(socket: OwnedFd) {
    // The option has no effect on a Unix socket; a connection that has ended needs no reset.
    let _ = set_socket_linger(&socket, Some(Duration::ZERO));
}

/// Silence after which TCP probes the peer. Many routers forget a connection after five minutes.
const KEEP_IDLE: Duration = Duration::from_secs(120);
