//! How a program starts the relay of one of its sockets: the first message, and its answer.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use carina_api::{AppName, DifName};
use carina_sys::{send_with_fds, socketpair_seqpacket};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::{Deserialize, Serialize};

use crate::node;

/// What a relay does from its start on. The message may carry one descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// The address of the program's socket.
    pub local: SocketAddr,
    /// Whether the program made the socket with `AF_INET6`.
    pub is_six: bool,
    /// The name to register; `None` for a client.
    pub name: Option<AppName>,
    /// With `name`: the DIF in which to register.
    pub dif: Option<DifName>,
    /// The address whose flow is the descriptor of this message. Without it, the descriptor is the
    /// program's UDP socket.
    pub peer: Option<SocketAddr>,
}

/// The relay's answer to [`Start`]: the error of the kernel or the node, as a number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    pub error: Option<i32>,
}

/// Makes the pair of sockets of a relay, and sends the first message. Returns the program's end and
/// the relay's.
pub(crate) fn prepare(
    start: &Start,
    descriptor: Option<BorrowedFd<'_>>,
) -> Result<(OwnedFd, OwnedFd), Errno> {
    let system = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOBUFS);
    let (ours, theirs) = socketpair_seqpacket().map_err(system)?;
    let message = serde_json::to_vec(start).map_err(|_| Errno::INVAL)?;
    let descriptors: Vec<_> = descriptor.into_iter().collect();
    send_with_fds(&ours, &message, &descriptors).map_err(system)?;
    Ok((ours, theirs))
}

/// Waits until the relay at the other end of `ours` has started.
pub(crate) fn wait_until_started(ours: BorrowedFd<'_>) -> Result<(), Errno> {
    if !node::wait_readable(ours, Instant::now() + START_LIMIT)? {
        return Err(Errno::TIMEDOUT);
    }
    let mut buffer = [0; 256];
    let (_, bytes) = recv(ours, &mut buffer[..], RecvFlags::DONTWAIT)?;
    // Without an answer the relay was not started: `carina` is missing, or memory.
    let started: Started = serde_json::from_slice(&buffer[..bytes]).map_err(|_| Errno::NETDOWN)?;
    match started.error {
        Some(number) => Err(Errno::from_raw_os_error(number)),
        None => Ok(()),
    }
}

/// Longest time that a relay may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);
