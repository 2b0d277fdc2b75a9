//! Operations on sockets that several calls use.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::{Errno, FdFlags};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrAny, SocketFlags, SocketType, getsockname, ipproto, send,
    socketpair,
};

use crate::label::Label;
use crate::mark::Mark;
use crate::settings::Settings;
use crate::unix_name::bind_label;

/// Access to the descriptors of the process whose calls are carried out.
pub trait Descriptors {
    /// Puts `new` at the descriptor number of `old`, with `old`'s close-on-exec flag.
    ///
    /// # Errors
    /// The kernel's refusal.
    fn replace(&self, old: BorrowedFd<'_>, new: OwnedFd) -> Result<(), Errno>;

    /// Whether `is_wanted` holds for a descriptor of the process. The default is false, for an
    /// implementation that cannot list the descriptors.
    fn any(&self, is_wanted: &dyn Fn(BorrowedFd<'_>) -> bool) -> bool {
        let _ = is_wanted;
        false
    }

    /// Starts a relay ([`serve`](crate::relay::serve)) at `end`, which runs until the program has
    /// closed its socket, with the rights of the process.
    ///
    /// # Errors
    /// `EOPNOTSUPP` where programs cannot use relayed sockets; the kernel's refusal.
    fn relay(&self, end: OwnedFd, settings: &Settings) -> Result<(), Errno>;
}

/// Flags of the descriptor that `accept` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcceptFlags {
    /// `SOCK_NONBLOCK`: the descriptor is non-blocking.
    pub nonblock: bool,
    /// `SOCK_CLOEXEC`: the descriptor is closed on `exec`.
    pub cloexec: bool,
}

/// Makes the two ends of a stream: the program's end with the label `this`, and the remote end,
/// whose own address is `other`.
pub(crate) fn labelled_pair(
    this: SocketAddr,
    other: SocketAddr,
) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let label = |this, other| Label {
        this,
        other: Some(other),
    };
    bind_label(ours.as_fd(), label(this, other))?;
    bind_label(theirs.as_fd(), label(other, this))?;
    Ok((ours, theirs))
}

/// Fills the buffer of a socket, so that it becomes writable only when the flow exists. Returns the
/// number of bytes that the node must read off the other end.
pub(crate) fn fill(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    sockopt::set_socket_send_buffer_size(socket, 0)?;
    for filler in 0..FILLER_BYTES_MAX {
        if filler >= FILLER_BYTES && !events_now(socket)?.contains(PollFlags::OUT) {
            return Ok(filler);
        }
        match send(socket, b"\0", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => return Ok(filler),
            sent => sent?,
        };
    }
    Err(Errno::NOBUFS)
}

/// Puts `new` at the descriptor number of the program's socket `old`, with the options that the
/// program has set on `old`. `new` has the options of a new socket, save its send timeout.
pub(crate) fn take_over(
    process: &impl Descriptors,
    old: BorrowedFd<'_>,
    new: OwnedFd,
    mark: Mark,
) -> Result<(), Errno> {
    remembered(old, mark).set(new.as_fd())?;
    let limit = |which| sockopt::socket_timeout(old, which).ok().flatten();
    sockopt::set_socket_timeout(&new, Timeout::Send, limit(Timeout::Send))?;
    if let Some(limit) = limit(Timeout::Recv) {
        sockopt::set_socket_timeout(&new, Timeout::Recv, Some(limit))?;
    }
    if sockopt::socket_keepalive(old) == Ok(true) {
        sockopt::set_socket_keepalive(&new, true)?;
    }
    if sockopt::socket_reuseaddr(old) == Ok(true) {
        sockopt::set_socket_reuseaddr(&new, true)?;
    }
    if sockopt::socket_broadcast(old) == Ok(true) {
        sockopt::set_socket_broadcast(&new, true)?;
    }
    if let Ok(Some(linger)) = sockopt::socket_linger(old) {
        sockopt::set_socket_linger(&new, Some(linger))?;
    }
    let flags = rustix::fs::fcntl_getfl(old)? & OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&new, flags)?;
    process.replace(old, new)
}

/// Returns `mark` with the bits of options that the program has set on `old` and that an `AF_UNIX`
/// socket does not have.
fn remembered(old: BorrowedFd<'_>, mark: Mark) -> Mark {
    let options = [Mark::NODELAY, Mark::REUSEPORT, Mark::V6ONLY];
    let former = Mark::of(old);
    let is_set = |option| match former {
        Some(former) => former.has(option),
        None if option == Mark::NODELAY => sockopt::tcp_nodelay(old) == Ok(true),
        None if option == Mark::REUSEPORT => sockopt::socket_reuseport(old) == Ok(true),
        None => sockopt::ipv6_v6only(old) == Ok(true),
    };
    let with = |mark: Mark, option| mark.with_if(is_set(option), option);
    options.into_iter().fold(mark, with)
}

pub(crate) fn set_flags(socket: BorrowedFd<'_>, flags: AcceptFlags) -> Result<(), Errno> {
    let nonblock = if flags.nonblock {
        OFlags::NONBLOCK
    } else {
        OFlags::empty()
    };
    rustix::fs::fcntl_setfl(socket, nonblock)?;
    let cloexec = if flags.cloexec {
        FdFlags::CLOEXEC
    } else {
        FdFlags::empty()
    };
    rustix::io::fcntl_setfd(socket, cloexec)
}

/// Whether the socket is a TCP socket, or one of Multipath TCP (RFC 8684), which Go's servers use.
pub(crate) fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    let protocol = sockopt::socket_protocol(socket);
    matches!(protocol, Ok(Some(ipproto::TCP | ipproto::MPTCP)))
        && is_inet(socket, SocketType::STREAM)
}

/// Whether the socket is one of UDP.
pub(crate) fn is_udp(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_protocol(socket) == Ok(Some(ipproto::UDP)) && is_inet(socket, SocketType::DGRAM)
}

fn is_inet(socket: BorrowedFd<'_>, kind: SocketType) -> bool {
    let family = sockopt::socket_domain(socket);
    matches!(family, Ok(AddressFamily::INET | AddressFamily::INET6))
        && sockopt::socket_type(socket) == Ok(kind)
}

/// Returns the wildcard address with port 0 if the socket is a TCP socket without an address;
/// otherwise `None`.
pub(crate) fn unbound_address(socket: BorrowedFd<'_>) -> Option<SocketAddr> {
    if !is_tcp(socket) {
        return None;
    }
    let name: SocketAddrAny = getsockname(socket).ok()?;
    SocketAddr::try_from(name)
        .ok()
        .filter(|name| name.port() == 0)
}

pub(crate) fn events_now(socket: BorrowedFd<'_>) -> Result<PollFlags, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&now))?;
    Ok(fds[0].revents())
}

/// Number of bytes that make a socket with the smallest buffer unwritable. Each is a message of its
/// own to the kernel.
const FILLER_BYTES: u32 = 2;

/// Largest number of bytes to try, where these are not enough.
const FILLER_BYTES_MAX: u32 = 64;
