//! A connection to a server that is being made, without waiting for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::endpoint::Resolved;

/// A connection to a server that is being made for a request.
#[derive(Debug)]
pub(crate) struct Dial<R> {
    socket: OwnedFd,
    pub request: R,
    /// When the server counts as silent.
    pub until: Instant,
    /// The server's queue was full; a Unix socket must ask again.
    pub retry_at: Option<Instant>,
}

/// How far a connection is.
#[derive(Debug)]
pub(crate) enum Progress {
    /// It is there.
    Connected,
    /// The socket becomes writable when there is news, or it is to be asked again.
    Waiting,
    /// It cannot be made.
    Failed(Failed),
}

/// Why a connection cannot be made.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The system's error.
    System(Errno),
    /// No answer in time.
    Silent,
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::System(error) => f.write_str(&words(*error)),
            Failed::Silent => f.write_str(&silence()),
        }
    }
}

impl<R> Dial<R> {
    /// Begins to connect.
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

    /// Asks the server, for the first time or after its queue was full.
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

    /// The socket is writable, or broken.
    pub(crate) fn progress(&self) -> Progress {
        match socket_error(&self.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&self.socket).is_ok() => Progress::Connected,
            Ok(Ok(())) => Progress::Waiting,
            Ok(Err(error)) | Err(error) => Progress::Failed(Failed::System(error)),
        }
    }

    /// When something is to be done that no event announces.
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

/// Why a connection cannot be made, in words for the other side.
pub(crate) fn words(error: Errno) -> String {
    match error {
        Errno::CONNREFUSED => "connection refused".to_owned(),
        Errno::NOENT => "no such socket".to_owned(),
        Errno::ACCESS | Errno::PERM => "permission denied".to_owned(),
        Errno::HOSTUNREACH | Errno::NETUNREACH => "host unreachable".to_owned(),
        Errno::TIMEDOUT => silence(),
        Errno::CONNRESET => "connection reset".to_owned(),
        Errno::MFILE | Errno::NFILE => "too many open files".to_owned(),
        other => std::io::Error::from(other).to_string(),
    }
}

/// The reason that the caller of the flow is given when the server does not answer.
pub(crate) fn silence() -> String {
    format!("no answer within {} s", CONNECT_LIMIT.as_secs())
}

/// How long a server may take to accept a connection: less than a node waits for an answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// How soon a Unix socket with a full queue is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(20);
