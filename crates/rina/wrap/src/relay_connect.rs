//! How a program connects a relayed socket to one of its peers: the relay passes the peer's flow to
//! the program, and the flow replaces the socket. A server calls `connect` so on a socket that it
//! has bound, after a datagram has given it the peer's address.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carina_sys::{recv_with_fds, send_with_fds, socketpair_seqpacket};
use rustix::io::Errno;

use crate::datagram_header;
use crate::node;

/// Asks the relay at the other end of `socket` for the flow of a peer. The relay then withdraws the
/// socket's name. Returns `None` if the relay has no flow to this peer.
///
/// # Errors
/// `ENETDOWN` if the relay has ended, `ETIMEDOUT` if it does not answer, `EINTR` for a signal.
pub(crate) fn flow_of_peer(
    socket: BorrowedFd<'_>,
    peer: SocketAddr,
) -> Result<Option<OwnedFd>, Errno> {
    let system = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS);
    let (ours, theirs) = socketpair_seqpacket().map_err(system)?;
    let message = datagram_header::encode_connect(peer);
    send_with_fds(socket, &message, &[theirs.as_fd()]).map_err(system)?;
    drop(theirs);
    if !node::wait_readable(ours.as_fd(), Instant::now() + LIMIT)? {
        return Err(Errno::TIMEDOUT);
    }
    let mut answer = recv_with_fds(&ours, &mut [0; 8]).map_err(system)?;
    match answer.bytes {
        0 => Err(Errno::NETDOWN),
        _ => Ok(answer.fds.pop()),
    }
}

/// Longest time that the relay, and the node that withdraws the name, may take.
const LIMIT: Duration = Duration::from_secs(30);
