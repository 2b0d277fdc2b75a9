//! SDUs over a Unix socket of type `SOCK_SEQPACKET`: the kernel keeps their boundaries.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use super::error::{Attempt, TransportError};
use super::{Arrival, SEND_LOOK, Transport};

/// A transport over a connected Unix socket.
#[derive(Debug)]
pub struct UnixTransport {
    socket: OwnedFd,
    limit: Duration,
}

impl UnixTransport {
    /// A transport over a connected socket.
    ///
    /// # Errors
    /// The kernel refuses to make the socket blocking.
    pub fn new(socket: OwnedFd) -> Result<Self, TransportError> {
        rustix::io::ioctl_fionbio(&socket, false).attempt("making a Unix socket blocking")?;
        let mut transport = Self {
            socket,
            limit: Duration::ZERO,
        };
        transport.set_limit(Duration::from_secs(1))?;
        set_socket_timeout(&transport.socket, Timeout::Send, Some(SEND_LOOK))
            .attempt("setting a timeout")?;
        Ok(transport)
    }

    fn set_limit(&mut self, limit: Duration) -> Result<(), TransportError> {
        // The socket has a receive timeout, so that each message takes one system call, as in a
        // usual program. With poll it would take two.
        set_socket_timeout(&self.socket, Timeout::Recv, Some(limit))
            .attempt("setting a timeout")?;
        self.limit = limit;
        Ok(())
    }
}

impl Transport for UnixTransport {
    #[inline]
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        loop {
            match send(&self.socket, sdu, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if Instant::now() < until => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error).attempt("sending on a Unix socket"),
            }
        }
    }

    #[inline]
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        if limit != self.limit {
            self.set_limit(limit)?;
        }
        loop {
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                // An empty message looks like the end; the benchmarks send none.
                Ok((0, _)) => return Ok(Arrival::End),
                Ok((len, _)) => return Ok(Arrival::Sdu(len)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Arrival::Idle),
                Err(error) => return Err(error).attempt("receiving on a Unix socket"),
            }
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        shutdown(&self.socket, Shutdown::Write).attempt("finishing a Unix socket")
    }
}
