//! How a side gets the connection of its link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use carina_sys::peer_credentials;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use socket2::{Domain, SockAddr, Socket, Type};

/// Default port of AF_VSOCK at which the host's node accepts connections. The number is the PCI
/// device id of ivshmem, 0x1110, written in decimal digits.
pub const PORT_DEFAULT: u32 = 1110;

/// A source of connections.
#[derive(Debug)]
pub(super) enum Connector {
    /// The host's side: the VM's device connects to this socket.
    Host {
        listener: UnixListener,
        /// Set to the process id at the other end of each connection.
        peer: Arc<AtomicI32>,
    },
    /// The guest's side, which connects.
    Guest(Guest),
    /// One connection that was made elsewhere.
    Given(Option<OwnedFd>),
    /// Connects to the Unix socket of a host's port again and again, as a VM's device does.
    #[cfg(test)]
    Path(std::path::PathBuf),
}

impl Connector {
    /// Returns a connection if one is made now.
    pub(super) fn poll(&mut self, now_ns: u64) -> Option<OwnedFd> {
        match self {
            Connector::Host { listener, peer } => {
                let (socket, _) = listener.accept().ok()?;
                if let Ok(credentials) = peer_credentials(&socket) {
                    peer.store(credentials.pid, Ordering::Relaxed);
                }
                socket.set_nonblocking(true).ok()?;
                Some(socket.into())
            }
            Connector::Guest(guest) => guest.poll(now_ns),
            Connector::Given(socket) => socket.take(),
            #[cfg(test)]
            Connector::Path(path) => {
                let socket = std::os::unix::net::UnixStream::connect(path).ok()?;
                socket.set_nonblocking(true).ok()?;
                Some(socket.into())
            }
        }
    }

    /// Closes the connections that arrive while the link has one.
    pub(super) fn refuse_others(&mut self) {
        if let Connector::Host { listener, .. } = self {
            // Bounded by the backlog of the socket.
            for _ in 0..16 {
                if listener.accept().is_err() {
                    break;
                }
            }
        }
    }

    /// The descriptor that becomes readable when a connection waits.
    pub(super) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Connector::Host { listener, .. } => Some(listener.as_fd()),
            Connector::Guest(_) | Connector::Given(_) => None,
            #[cfg(test)]
            Connector::Path(_) => None,
        }
    }
}

/// Connects to the host by AF_VSOCK, again and again.
#[derive(Debug)]
pub(super) struct Guest {
    port: u32,
    pending: Option<OwnedFd>,
    next_ns: u64,
}

impl Guest {
    pub(super) fn new(port: u32) -> io::Result<Guest> {
        // Shows at once whether the kernel has this kind of socket.
        Socket::new(Domain::VSOCK, Type::STREAM, None)?;
        Ok(Guest {
            port,
            pending: None,
            next_ns: 0,
        })
    }

    fn poll(&mut self, now_ns: u64) -> Option<OwnedFd> {
        if let Some(socket) = self.pending.take() {
            return self.follow(socket);
        }
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + RETRY_NS;
        let socket = Socket::new(Domain::VSOCK, Type::STREAM, None).ok()?;
        socket.set_nonblocking(true).ok()?;
        let connected = socket.connect(&SockAddr::vsock(HOST_CID, self.port));
        let socket = OwnedFd::from(socket);
        match connected {
            Ok(()) => Some(socket),
            Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {
                self.follow(socket)
            }
            Err(_) => None,
        }
    }

    /// Looks whether the connection is made.
    fn follow(&mut self, socket: OwnedFd) -> Option<OwnedFd> {
        let mut this = [PollFd::new(&socket, PollFlags::OUT)];
        let is_decided = poll(&mut this, Some(&Timespec::default())) == Ok(1);
        if !is_decided {
            // The kernel gives up after two seconds, and then the socket is decided.
            self.pending = Some(socket);
            return None;
        }
        match socket_error(&socket) {
            Ok(Ok(())) => Some(socket),
            _ => None,
        }
    }
}

/// The context id of the host. (VIRTIO 1.2 §5.10.4)
const HOST_CID: u32 = 2;

/// Time between two attempts to connect, in nanoseconds.
const RETRY_NS: u64 = 100_000_000;
