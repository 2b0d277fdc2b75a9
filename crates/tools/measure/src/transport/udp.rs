//! SDUs as UDP datagrams. Datagrams may be lost, and a special datagram marks the end.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::error::{Attempt, TransportError};
use super::{Arrival, SEND_LOOK, Transport};

/// Largest payload of a UDP datagram over IPv4.
pub const UDP_SDU_MAX: u64 = 65_507;

/// Datagram that marks the end. No benchmark sends SDUs of this length.
const END: &[u8] = b"carina bench: no more SDUs";
/// First datagram of a side that the other one cannot reach before it has sent something.
const CALL: &[u8] = b"carina bench: here I am";
/// Interval at which the first datagram is repeated. A network card that has just started loses
/// some.
const CALL_AGAIN: Duration = Duration::from_millis(200);
/// Largest number of first datagrams.
const CALLS: u32 = 50;
/// Number of times that the end is repeated, because each datagram can be lost.
const END_REPEATS: usize = 2;
/// Time between two of them, in which a full queue can drain.
const END_GAP: Duration = Duration::from_millis(25);

/// A transport over a connected UDP socket, one datagram for each SDU.
#[derive(Debug)]
pub struct UdpTransport {
    socket: UdpSocket,
    limit: Duration,
}

impl UdpTransport {
    /// Binds a socket to the given address and a free port. Returns the socket and its address.
    ///
    /// # Errors
    /// The address does not belong to this system.
    pub fn bind(address: IpAddr) -> Result<(UdpSocket, SocketAddr), TransportError> {
        let socket = UdpSocket::bind((address, 0)).attempt(format!("binding UDP to {address}"))?;
        let local = socket
            .local_addr()
            .attempt("reading the address of a UDP socket")?;
        Ok((socket, local))
    }

    /// Connects the socket to the other side.
    ///
    /// # Errors
    /// There is no route to it.
    pub fn connect(socket: UdpSocket, to: SocketAddr) -> Result<Self, TransportError> {
        socket
            .connect(to)
            .attempt(format!("connecting UDP to {to}"))?;
        let limit = Duration::from_secs(1);
        socket
            .set_read_timeout(Some(limit))
            .attempt("setting a UDP timeout")?;
        socket
            .set_write_timeout(Some(SEND_LOOK))
            .attempt("setting a UDP timeout")?;
        Ok(Self { socket, limit })
    }

    /// Sends datagrams, from which the other side learns this side's address, until one is
    /// answered. The other side must run [`UdpTransport::await_call`].
    ///
    /// # Errors
    /// There is no route, or no answer.
    pub fn call(mut self) -> Result<Self, TransportError> {
        let mut datagram = [0; CALL.len()];
        for _ in 0..CALLS {
            self.socket.send(CALL).attempt("sending a first datagram")?;
            if let Taken::Call = self.take(&mut datagram, CALL_AGAIN)? {
                return Ok(self);
            }
        }
        Err(TransportError::NoAnswer)
    }

    /// Waits for the first datagram of a side that runs [`UdpTransport::call`], connects to that
    /// side and answers.
    ///
    /// # Errors
    /// No datagram arrives.
    pub fn await_call(socket: UdpSocket) -> Result<Self, TransportError> {
        socket
            .set_read_timeout(Some(CALL_AGAIN * CALLS))
            .attempt("setting a UDP timeout")?;
        let mut datagram = [0; CALL.len()];
        let until = Instant::now() + CALL_AGAIN * CALLS;
        while Instant::now() < until {
            let (len, from) = socket
                .recv_from(&mut datagram)
                .attempt("waiting for the other side's first datagram")?;
            if &datagram[..len] == CALL {
                let transport = Self::connect(socket, from)?;
                transport.socket.send(CALL).attempt("answering a call")?;
                return Ok(transport);
            }
        }
        Err(TransportError::NoAnswer)
    }

    fn take(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Taken, TransportError> {
        if limit != self.limit {
            self.socket
                .set_read_timeout(Some(limit))
                .attempt("setting a UDP timeout")?;
            self.limit = limit;
        }
        loop {
            match self.socket.recv(buffer) {
                Ok(len) if len == END.len() && &buffer[..len] == END => return Ok(Taken::End),
                Ok(len) if len == CALL.len() && &buffer[..len] == CALL => return Ok(Taken::Call),
                Ok(len) => return Ok(Taken::Sdu(len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Taken::Idle),
                Err(error) if is_transient(error.kind()) => {}
                Err(error) => return Err(error).attempt("receiving a UDP datagram"),
            }
        }
    }
}

/// Kind of a received datagram.
enum Taken {
    Sdu(usize),
    Call,
    End,
    Idle,
}

impl Transport for UdpTransport {
    #[inline]
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        loop {
            match self.socket.send(sdu) {
                Ok(_) => return Ok(true),
                // A full queue of the device counts as loss, as on any network; the receiver counts
                // it.
                Err(error) if error.raw_os_error() == Some(NO_BUFFERS) => return Ok(true),
                Err(error) if is_transient(error.kind()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error).attempt("sending a UDP datagram"),
            }
        }
    }

    #[inline]
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        loop {
            return Ok(match self.take(buffer, limit)? {
                Taken::Sdu(len) => Arrival::Sdu(len),
                Taken::End => Arrival::End,
                Taken::Idle => Arrival::Idle,
                // The other side repeated its call before the answer arrived.
                Taken::Call => continue,
            });
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        // Sending fails when the other side has already closed; it then needs no end mark.
        let _ = self.socket.send(END);
        for _ in 0..END_REPEATS {
            std::thread::sleep(END_GAP);
            let _ = self.socket.send(END);
        }
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        true
    }
}

/// `ENOBUFS` of Linux on every architecture that Carina runs on.
const NO_BUFFERS: i32 = 105;

/// Whether an error is an interruption, or the report that an earlier datagram found the other
/// side's socket closed. Neither breaks the transport.
fn is_transient(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Interrupted | ErrorKind::ConnectionRefused)
}
