//! The byte stream below TLS, over TCP or over a flow.
//!
//! A flow is a socket whose messages are SDUs. What TLS writes is cut into SDUs; an SDU is read
//! completely before its bytes are passed to TLS.

use std::io::{self, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// The byte stream of a connection, over TCP or over a flow, for a thread that may block.
#[derive(Debug)]
pub enum Wire {
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over a flow; each message of the socket is an SDU.
    Flow(BufReader<UnixStream>),
}

/// A handle to end a connection from another thread.
#[derive(Debug)]
pub enum Ender {
    /// A connection over TCP.
    Tcp(TcpStream),
    /// A connection over a flow.
    Flow(UnixStream),
}

impl Wire {
    /// A connection over the socket of a flow.
    pub fn of_flow(socket: UnixStream) -> Wire {
        // With this capacity, a read of the socket returns the longest SDU completely.
        Wire::Flow(BufReader::with_capacity(SDU_MAX, socket))
    }

    /// Sets the timeouts of reads and writes.
    ///
    /// # Errors
    /// A timeout is zero.
    pub fn set_limits(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => {
                stream.set_read_timeout(Some(read))?;
                stream.set_write_timeout(Some(write))
            }
            Wire::Flow(stream) => {
                stream.get_ref().set_read_timeout(Some(read))?;
                stream.get_ref().set_write_timeout(Some(write))
            }
        }
    }

    /// Limits how many bytes wait in the buffers of a TCP connection at this end
    /// ([`limit_buffers`]). A flow has no such buffers.
    ///
    /// # Errors
    /// As for [`limit_buffers`].
    pub fn limit_buffers(&self, bytes: usize) -> io::Result<()> {
        match self {
            Wire::Tcp(stream) => limit_buffers(stream, bytes),
            Wire::Flow(_) => Ok(()),
        }
    }

    /// A second handle of the same connection, with the same limits.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn duplicate(&self) -> io::Result<Wire> {
        match self {
            Wire::Tcp(stream) => stream.try_clone().map(Wire::Tcp),
            Wire::Flow(stream) => stream.get_ref().try_clone().map(Wire::of_flow),
        }
    }

    /// A handle to end the connection from another thread.
    ///
    /// # Errors
    /// The system has no free descriptor.
    pub fn ender(&self) -> io::Result<Ender> {
        match self {
            Wire::Tcp(stream) => stream.try_clone().map(Ender::Tcp),
            Wire::Flow(stream) => stream.get_ref().try_clone().map(Ender::Flow),
        }
    }
}

/// Limits how many bytes wait to be sent and to be read at this end of a TCP connection. What waits
/// delays what is written after it.
///
/// # Errors
/// The system refuses.
pub fn limit_buffers(stream: &TcpStream, bytes: usize) -> io::Result<()> {
    set_socket_send_buffer_size(stream, bytes)?;
    set_socket_recv_buffer_size(stream, bytes)?;
    Ok(())
}

impl Ender {
    /// Ends the connection, if it has not ended already.
    pub fn end(&self) {
        let _ = match self {
            Ender::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Ender::Flow(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.read(buffer),
            Wire::Flow(stream) => stream.read(buffer),
        }
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Tcp(stream) => stream.write(bytes),
            Wire::Flow(stream) => stream.get_mut().write(sdu_of(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The byte stream of a connection, over TCP or over a flow, for an asynchronous task.
#[derive(Debug)]
pub enum TaskWire {
    /// A connection over TCP.
    Tcp(tokio::net::TcpStream),
    /// A connection over a flow.
    Flow(TaskFlow),
}

/// The socket of a flow as a byte stream, for an asynchronous task.
#[derive(Debug)]
pub struct TaskFlow {
    socket: tokio::net::UnixStream,
    /// The SDU that was last read, and how many of its bytes were already returned.
    sdu: Vec<u8>,
    taken: usize,
}

impl TaskFlow {
    /// A connection over the socket of a flow.
    ///
    /// # Errors
    /// The runtime does not accept the socket.
    pub fn new(socket: UnixStream) -> io::Result<TaskFlow> {
        socket.set_nonblocking(true)?;
        Ok(TaskFlow {
            socket: tokio::net::UnixStream::from_std(socket)?,
            sdu: Vec::new(),
            taken: 0,
        })
    }

    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.taken == self.sdu.len() {
            ready!(self.socket.poll_read_ready(context))?;
            let (socket, sdu) = (&self.socket, &mut self.sdu);
            sdu.resize(SDU_MAX, 0);
            self.taken = SDU_MAX;
            // The runtime's own read would take a short SDU for the end of available data.
            let read = socket.try_io(Interest::READABLE, || {
                let (length, _) = recv(socket, &mut sdu[..], RecvFlags::DONTWAIT)?;
                Ok(length)
            });
            let length = match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                read => read?,
            };
            self.sdu.truncate(length);
            self.taken = 0;
            if self.sdu.is_empty() {
                // The flow has ended.
                return Poll::Ready(Ok(()));
            }
        }
        let left = &self.sdu[self.taken..];
        let length = left.len().min(buffer.remaining());
        buffer.put_slice(&left[..length]);
        self.taken += length;
        Poll::Ready(Ok(()))
    }

    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.poll_write_ready(context))?;
            let written = self.socket.try_io(Interest::WRITABLE, || {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                Ok(send(&self.socket, sdu_of(bytes), flags)?)
            });
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncRead for TaskWire {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TaskWire::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            TaskWire::Flow(flow) => flow.poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for TaskWire {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            TaskWire::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            TaskWire::Flow(flow) => flow.poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TaskWire::Tcp(stream) => Pin::new(stream).poll_flush(context),
            TaskWire::Flow(_) => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            TaskWire::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            // Closing the socket ends the flow.
            TaskWire::Flow(_) => Poll::Ready(Ok(())),
        }
    }
}

/// The beginning of `bytes` that fits into one SDU.
fn sdu_of(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(SDU_MAX)]
}

/// Largest SDU of a flow's socket, bytes.
const SDU_MAX: usize = 65_536;
