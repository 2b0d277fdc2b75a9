//! The socket at the end of a flow that is a byte stream.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, socket_linger};
use rustix::net::{RecvFlags, Shutdown, connect_unspec, recv, shutdown};

/// A connected stream socket that an application may have made, and may hold as well.
///
/// Its flags and options are shared with every process that holds it: each call on it says
/// `MSG_DONTWAIT`. Dropping it does not wait for unsent bytes, whatever its `SO_LINGER` says.
#[derive(Debug)]
pub struct StreamSocket {
    // `None` once it was handed on.
    socket: Option<OwnedFd>,
}

impl StreamSocket {
    /// Takes a socket over.
    #[must_use]
    pub fn new(socket: OwnedFd) -> StreamSocket {
        StreamSocket {
            socket: Some(socket),
        }
    }

    /// Another descriptor of the same socket.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn try_clone(&self) -> std::io::Result<StreamSocket> {
        self.as_fd().try_clone_to_owned().map(StreamSocket::new)
    }

    /// Gives the socket to another process: it stays as it is.
    #[must_use]
    pub fn into_fd(mut self) -> OwnedFd {
        self.socket.take().expect("a socket is handed on once")
    }

    /// Ends the connection for all processes that hold the socket, with a reset where its protocol
    /// has one: the other end reads an error instead of the end of the stream.
    pub(crate) fn reset(&self) {
        // Dissolving the association of a TCP socket resets its connection. Unix sockets refuse.
        if connect_unspec(self).is_err() {
            let _ = set_socket_linger(self, Some(Duration::ZERO));
            let _ = shutdown(self, Shutdown::Both);
        }
    }

    /// Closes both directions for all processes that hold the socket, and discards what is unread:
    /// closing a socket with unread bytes would be a reset.
    pub(crate) fn shut_down(&self) {
        // It fails when the connection has ended already.
        let _ = shutdown(self, Shutdown::Both);
        let mut discarded = [0; 4096];
        // A peer may go on writing to a TCP socket.
        for _ in 0..DISCARDS_MAX {
            match recv(self, &mut discarded, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) if bytes > 0 => {}
                _ => break,
            }
        }
    }
}

impl AsFd for StreamSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket
            .as_ref()
            .expect("a socket is not used after it was handed on")
            .as_fd()
    }
}

impl Drop for StreamSocket {
    fn drop(&mut self) {
        let Some(socket) = &self.socket else {
            return;
        };
        if matches!(socket_linger(socket), Ok(Some(limit)) if !limit.is_zero()) {
            let _ = set_socket_linger(socket, None);
        }
    }
}

/// Reads of bytes that are discarded, at most: about as many as a socket holds by default.
const DISCARDS_MAX: usize = 64;
