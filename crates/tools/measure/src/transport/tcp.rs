//! SDUs over TCP, or over another stream socket. In front of each SDU is its length, in 4 bytes.

use std::io::IoSlice;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::{Errno, read, writev};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{Shutdown, shutdown};

use super::error::{Attempt, TransportError};
use super::{Arrival, SEND_LOOK, Transport};

const LENGTH_BYTES: usize = 4;
/// Number of bytes to request from the kernel in one read. Reading message by message would be
/// slower.
const READ_BYTES: usize = 256 << 10;

/// How long the rest of a partly sent SDU may wait for room.
const STUCK: Duration = Duration::from_millis(if cfg!(test) { 500 } else { 10_000 });

/// A transport over a TCP connection with TCP_NODELAY, or over another connected stream socket.
#[derive(Debug)]
pub struct TcpTransport {
    stream: OwnedFd,
    input: Vec<u8>,
    start: usize,
    end: usize,
    limit: Duration,
}

impl TcpTransport {
    /// A transport over a connection.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn new(stream: TcpStream) -> Result<Self, TransportError> {
        stream.set_nodelay(true).attempt("setting TCP_NODELAY")?;
        Self::over(stream.into())
    }

    /// A transport over a connected stream socket that blocks.
    ///
    /// # Errors
    /// The socket has no timeouts.
    pub fn over(stream: OwnedFd) -> Result<Self, TransportError> {
        let limit = Duration::from_secs(1);
        set_socket_timeout(&stream, Timeout::Recv, Some(limit)).attempt("setting a timeout")?;
        set_socket_timeout(&stream, Timeout::Send, Some(SEND_LOOK)).attempt("setting a timeout")?;
        let input = vec![0; READ_BYTES];
        Ok(Self {
            stream,
            input,
            start: 0,
            end: 0,
            limit,
        })
    }

    /// Reads until `want` bytes are buffered. Returns `None` then, or the reason why fewer are.
    fn fill(&mut self, want: usize, limit: Duration) -> Result<Option<Arrival>, TransportError> {
        if limit != self.limit {
            set_socket_timeout(&self.stream, Timeout::Recv, Some(limit))
                .attempt("setting a timeout")?;
            self.limit = limit;
        }
        while self.end - self.start < want {
            if self.start + want > self.input.len() {
                self.input.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
                self.input.resize(self.input.len().max(want), 0);
            }
            match read(&self.stream, &mut self.input[self.end..]) {
                Ok(0) if self.start == self.end => return Ok(Some(Arrival::End)),
                Ok(0) => return Err(TransportError::CutShort),
                Ok(len) => self.end += len,
                Err(Errno::AGAIN) => return Ok(Some(Arrival::Idle)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error).attempt("receiving on a stream"),
            }
        }
        Ok(None)
    }
}

impl Transport for TcpTransport {
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        let length = u32::try_from(sdu.len()).map_err(|_| TransportError::SduTooLarge {
            bytes: sdu.len(),
            fits: u32::MAX as usize,
        })?;
        let head = length.to_le_bytes();
        let whole = LENGTH_BYTES + sdu.len();
        let (mut sent, mut stuck) = (0, None);
        while sent < whole {
            let parts = [
                IoSlice::new(&head[sent.min(LENGTH_BYTES)..]),
                IoSlice::new(&sdu[sent.saturating_sub(LENGTH_BYTES)..]),
            ];
            // One call sends both parts; two calls would make two segments.
            match writev(&self.stream, &parts) {
                Ok(len) => (sent, stuck) = (sent + len, None),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let now = Instant::now();
                    if sent == 0 && now >= until {
                        return Ok(false);
                    }
                    // An SDU that was sent in part is finished, unless there is no progress for
                    // `STUCK`.
                    let since = *stuck.get_or_insert(now);
                    if sent > 0 && now >= until.max(since + STUCK) {
                        return Err(TransportError::Stuck { sent, limit: STUCK });
                    }
                }
                Err(error) => return Err(error).attempt("sending on a stream"),
            }
        }
        Ok(true)
    }

    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        if let Some(none) = self.fill(LENGTH_BYTES, limit)? {
            return Ok(none);
        }
        let mut length = [0; LENGTH_BYTES];
        length.copy_from_slice(&self.input[self.start..self.start + LENGTH_BYTES]);
        let len = u32::from_le_bytes(length) as usize;
        if len > buffer.len() {
            return Err(TransportError::SduTooLarge {
                bytes: len,
                fits: buffer.len(),
            });
        }
        if let Some(none) = self.fill(LENGTH_BYTES + len, limit)? {
            return Ok(none);
        }
        let from = self.start + LENGTH_BYTES;
        buffer[..len].copy_from_slice(&self.input[from..from + len]);
        self.start = from + len;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(Arrival::Sdu(len))
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        shutdown(&self.stream, Shutdown::Write).attempt("finishing a stream")
    }
}
