//! An attempt to connect to a server without waiting for the result.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::endpoint::Resolved;

/// An attempt to connect to a server, for a flow that a remote application has requested.
#[derive(Debug)]
pub(crate) struct Dial<R> {
    socket: OwnedFd,
    pub request: R,
    /// Time at which the attempt fails if the server has not accepted the connection.
    pub until: Instant,
    /// If the queue of a Unix socket was full: time at which the attempt must be repeated.
    pub retry_at: Option<Instant>,
}

/// State of a [`Dial`], an attempt to connect to a server.
#[derive(Debug)]
pub(crate) enum Progress {
    /// The connection is established.
    Connected,
    /// The attempt continues: the socket becomes writable when the result is known, or the attempt
    /// is repeated at [`Dial::retry_at`].
    Waiting,
    /// The attempt has failed, for this reason.
    Failed(Failed),
}

/// Why a server did not accept a connection.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The operating system's error, such as `ECONNREFUSED`.
    System(Errno),
    /// The server has not answered before [`Dial::until`].
    Silent,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::System(error) => f.write_str(&words(*error)),
            Failed::Silent => f.write_str(&timeout_text()),
        }
    }
}

impl<R> Dial<R> {
    /// Starts an attempt to connect to `server`.
    pub(crate) fn start(
        server: &Resolved,
        request: R,
        now: Instant,
    ) -> Result<(Dial<R>, Progress), Errno> {
        let (family, kind) = match server {
            Resolved::Tcp(address) if address.is_ipv4() => {
                (AddressFamily::INET, SocketType::STREAM)
            }
            Resolved::Tcp(_) => (AddressFamily::INET6, SocketType::STREAM),
            Resolved::Unix(_) => (AddressFamily::UNIX, SocketType::STREAM),
            // No connections come to a UDP port.
            Resolved::Udp(_) => return Err(Errno::PROTOTYPE),
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, kind, flags, None)?;
        let mut dial = Dial {
            socket,
            request,
            until: now + CONNECT_LIMIT,
            retry_at: None,
        };
        let progress = dial.connect(server, now);
        Ok((dial, progress))
    }

    /// Calls `connect`, for the first time or again after the server's queue was full.
    pub(crate) fn connect(&mut self, server: &Resolved, now: Instant) -> Progress {
        self.retry_at = None;
        let asked = match server {
            Resolved::Tcp(address) | Resolved::Udp(address) => connect(&self.socket, address),
            Resolved::Unix(path) => SocketAddrUnix::new(path.as_path())
                .and_then(|address| connect(&self.socket, &address)),
        };
        match asked {
            Ok(()) => Progress::Connected,
            Err(Errno::INPROGRESS) => Progress::Waiting,
            Err(Errno::AGAIN) => {
                self.retry_at = Some(now + RETRY_INTERVAL);
                Progress::Waiting
            }
            Err(error) => Progress::Failed(Failed::System(error)),
        }
    }

    /// Finds out the state of the attempt, after the socket has become writable or has failed.
    pub(crate) fn progress(&self) -> Progress {
        match socket_error(&self.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&self.socket).is_ok() => Progress::Connected,
            Ok(Ok(())) => Progress::Waiting,
            Ok(Err(error)) | Err(error) => Progress::Failed(Failed::System(error)),
        }
    }

    /// Returns when the attempt must be continued or ended, although no event announces it.
    pub(crate) fn deadline(&self) -> Instant {
        self.retry_at.map_or(self.until, |at| at.min(self.until))
    }

    pub(crate) fn into_parts(self) -> (OwnedFd, R) {
        (self.socket, self.request)
    }
}

impl<R> AsFd for Dial<R> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Describes why a connection cannot be established, as text for the remote application.
pub(crate) fn words(error: Errno) -> String {
    match error {
        Errno::CONNREFUSED => "connection refused".to_owned(),
        Errno::NOENT => "no such socket".to_owned(),
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        Errno::HOSTUNREACH | Errno::NETUNREACH => "host unreachable".to_owned(),
        Errno::TIMEDOUT => timeout_text(),
        Errno::CONNRESET => "connection reset".to_owned(),
        Errno::MFILE | Errno::NFILE => "too many open files".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// Returns the reason for refusing a flow when the server did not answer in time.
pub(crate) fn timeout_text() -> String {
    format!("no answer within {} s", CONNECT_LIMIT.as_secs())
}

/// Longest time that a server may take to accept a connection: less than a node waits for the
/// answer to a flow request.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// Pause before the next attempt to connect to a Unix socket whose queue is full.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
