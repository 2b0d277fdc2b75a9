//! Stream sockets between a guest and its host: AF_VSOCK in the guest, and at the host the Unix
//! socket of a vsock device that speaks the dialect of Firecracker.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};

use super::error::{Attempt, TransportError};

/// A socket of AF_VSOCK at which a guest takes connections of its host.
#[derive(Debug)]
pub struct VsockListener(Socket);

impl VsockListener {
    /// Listens at `port` of this guest.
    ///
    /// # Errors
    /// The kernel has no AF_VSOCK, or another program listens at the port.
    pub fn bind(port: u32) -> Result<Self, TransportError> {
        let listener = Socket::new(Domain::VSOCK, Type::STREAM, None);
        let listener = listener.attempt("making a socket of AF_VSOCK")?;
        let listens = listener
            .bind(&SockAddr::vsock(ANY_CID, port))
            .and_then(|()| listener.listen(1))
            .and_then(|()| listener.set_nonblocking(true));
        listens.attempt(format!("listening at port {port} of AF_VSOCK"))?;
        Ok(Self(listener))
    }

    /// Takes the connection of a client, and waits for it up to `limit`.
    ///
    /// # Errors
    /// No client connects in time.
    pub fn accept(&self, limit: Duration) -> Result<OwnedFd, TransportError> {
        let deadline = Instant::now() + limit;
        loop {
            match self.0.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).attempt("accepting vsock")?;
                    return Ok(stream.into());
                }
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(error) => return Err(error).attempt("accepting vsock"),
            }
        }
    }
}

/// Connects to `port` of a guest through the Unix socket `path` of the guest's vsock device. Waits
/// for the device's answer up to `limit`.
///
/// # Errors
/// The device does not run, or no program listens at the port.
pub fn connect(path: &Path, port: u32, limit: Duration) -> Result<OwnedFd, TransportError> {
    let mut stream = UnixStream::connect(path).attempt("connecting to a vsock device")?;
    let asked = stream
        .set_read_timeout(Some(limit))
        .and_then(|()| stream.write_all(format!("CONNECT {port}\n").as_bytes()));
    asked.attempt("asking a vsock device for a connection")?;
    // The stream begins right behind the line, so the line is read byte by byte.
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') && line.len() < LINE_BYTES_MAX {
        let mut byte = [0];
        let read = stream.read_exact(&mut byte);
        read.attempt(format!("connecting to port {port} of the guest"))?;
        line.extend(byte);
    }
    if line.starts_with(b"OK ") {
        Ok(stream.into())
    } else {
        Err(TransportError::NoVsock { port })
    }
}

/// The context id by which a listener takes connections for every id of its system.
/// (VMADDR_CID_ANY of the kernel)
const ANY_CID: u32 = u32::MAX;

/// Longest answer of a vsock device: `OK`, a port, and the end of the line.
const LINE_BYTES_MAX: usize = 32;
