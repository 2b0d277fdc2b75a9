//! A flow as a byte stream.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use carina_client::{Error, FlowInfo};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg, shutdown,
};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use crate::watched::register;

/// A flow as a byte stream, over a socket of the kernel. Shutting it down ends the direction from
/// this end; dropping it ends both.
#[derive(Debug)]
pub struct ByteStream {
    socket: AsyncFd<OwnedFd>,
    info: FlowInfo,
}

impl ByteStream {
    pub(crate) fn new(socket: Option<OwnedFd>, info: FlowInfo) -> Result<ByteStream, Error> {
        let socket = socket.ok_or_else(|| {
            Error::Protocol("no descriptor came with a flow; it must be 1".to_owned())
        })?;
        let socket = register(socket, Interest::READABLE | Interest::WRITABLE)?;
        Ok(ByteStream { socket, info })
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        &self.info
    }

    /// Polls until the socket has room for `write`. The socket stays blocking, because the flag
    /// belongs to every process that has it: `write` itself must not block.
    fn poll_socket_write(
        &self,
        context: &mut Context<'_>,
        mut write: impl FnMut(&OwnedFd) -> rustix::io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.socket.poll_write_ready(context))?;
            let written = guard.try_io(|socket| Ok(write(socket.get_ref())?));
            match written {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncRead for ByteStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled();
            let read = guard.try_io(|socket| {
                let (length, _) = recv(socket.get_ref(), &mut *room, RecvFlags::DONTWAIT)?;
                Ok(length)
            });
            match read {
                Ok(Ok(length)) => {
                    buffer.advance(length);
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for ByteStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_socket_write(context, |socket| send(socket, bytes, FLAGS))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // More slices are an error of the kernel (IOV_MAX).
        let slices = &slices[..slices.len().min(SLICES_MAX)];
        self.poll_socket_write(context, |socket| {
            sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), FLAGS)
        })
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(&self.socket, Shutdown::Write) {
            // The peer has closed the flow.
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

impl AsFd for ByteStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
const SLICES_MAX: usize = 1024;
