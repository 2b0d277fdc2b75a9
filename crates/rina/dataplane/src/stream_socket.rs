//! The socket at the end of a flow that is a byte stream.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_linger, set_socket_send_buffer_size, set_socket_send_buffer_size_force,
    socket_domain, socket_linger,
};
use rustix::net::{AddressFamily, RecvFlags, Shutdown, connect_unspec, recv, shutdown};

/// A connected stream socket, which an application may have created and may have open as well.
///
/// All processes that have the socket open share its flags and options. So it cannot be set to
/// non-blocking; each call on it passes `MSG_DONTWAIT` instead. Dropping it does not wait for
/// unsent bytes, even if the application has set `SO_LINGER`.
#[derive(Debug)]
pub struct StreamSocket {
    // `None` after `into_fd`.
    socket: Option<OwnedFd>,
    /// Bytes in front of the application's own.
    filler: usize,
    /// Whether the send buffer has its final size.
    has_grown: bool,
}

impl StreamSocket {
    /// Takes ownership of a connected stream socket, which may be shared with an application.
    #[must_use]
    pub fn new(socket: OwnedFd) -> StreamSocket {
        StreamSocket {
            socket: Some(socket),
            filler: 0,
            has_grown: false,
        }
    }

    /// Notes that the application wrote `bytes` filler bytes (at most 64) before its own data.
    /// [`Self::take_filler`] removes them.
    #[must_use]
    pub fn with_filler(mut self, bytes: usize) -> StreamSocket {
        self.filler = bytes.min(FILLER_BYTES_MAX);
        self
    }

    /// Reads the filler bytes off the socket and discards them: from now on the application can
    /// write.
    pub fn take_filler(&mut self) {
        let bytes = std::mem::take(&mut self.filler);
        if bytes > 0 {
            // An application that did not write them loses its own first bytes.
            let _ = recv(
                &*self,
                &mut [0; FILLER_BYTES_MAX][..bytes],
                RecvFlags::DONTWAIT,
            );
        }
    }

    /// Enlarges the send buffer of a Unix socket that is full for the first time, so that one
    /// wake-up of the application serves more bytes. Returns true if the socket may now accept
    /// bytes. Other sockets keep their size: the kernel adapts the buffers of TCP.
    ///
    /// The kernel limits the buffer to `net.core.wmem_max` if the node has no `CAP_NET_ADMIN`.
    pub(crate) fn grow(&mut self) -> bool {
        if std::mem::replace(&mut self.has_grown, true)
            || socket_domain(&*self) != Ok(AddressFamily::UNIX)
        {
            return false;
        }
        // The kernel doubles the number.
        set_socket_send_buffer_size_force(&*self, SEND_BUFFER_BYTES / 2).is_ok()
            || set_socket_send_buffer_size(&*self, SEND_BUFFER_BYTES / 2).is_ok()
    }

    /// Creates another descriptor of the same socket.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn try_clone(&self) -> std::io::Result<StreamSocket> {
        let copy = StreamSocket::new(self.as_fd().try_clone_to_owned()?);
        Ok(copy.with_filler(self.filler))
    }

    /// Returns the descriptor, to pass it to another process. Does not change the socket's options.
    #[must_use]
    pub fn into_fd(mut self) -> OwnedFd {
        self.socket.take().expect("a socket is handed on once")
    }

    /// Ends the connection for all processes that have the socket open. If the protocol has resets,
    /// as TCP has, the other end reads an error instead of the end of the stream.
    pub(crate) fn reset(&self) {
        // `connect` to the address family `AF_UNSPEC` resets the connection of a TCP socket. Unix
        // sockets refuse it.
        if connect_unspec(self).is_err() {
            let _ = set_socket_linger(self, Some(Duration::ZERO));
            let _ = shutdown(self, Shutdown::Both);
        }
    }

    /// Closes both directions for all processes that have the socket open. Discards unread bytes,
    /// because closing a socket with unread bytes would reset the connection.
    pub(crate) fn shut_down(&self) {
        // This fails if the connection has already ended.
        let _ = shutdown(self, Shutdown::Both);
        let mut discarded = [0; 4096];
        // The peer of a TCP socket may continue to write, so the number of reads is limited.
        for _ in 0..DISCARDS_MAX {
            match recv(self, &mut discarded, RecvFlags::DONTWAIT) {
                Ok((_, bytes)) if bytes > 0 => {}
                _ => break,
            }
        }
    }
}

/// Send buffer of a Unix socket that an application reads slower than the flow delivers, in bytes:
/// as many as may be in transit to a socket.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// Largest number of bytes of filler.
const FILLER_BYTES_MAX: usize = 64;

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

/// Largest number of reads to discard bytes. Together they read about as many bytes as a socket
/// holds by default.
const DISCARDS_MAX: usize = 64;
