//! A flow, with its sending and its receiving half.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::batch::SduBatch;
use crate::error::Error;
use crate::link::FlowInfo;
use crate::recv::{FlowReceiver, Fragment};
use crate::send::{FlowSender, SendSlot};
use crate::stats::FlowStats;

/// A flow to a remote application, over rings in shared memory.
///
/// Dropping the flow, or [`Flow::close`], deallocates it: the remote application receives what was
/// sent, and then learns that the flow is closed. If the process is killed, the remote application
/// learns that the flow has failed.
#[derive(Debug)]
pub struct Flow {
    sender: FlowSender,
    receiver: FlowReceiver,
}

impl Flow {
    pub(crate) fn new(sender: FlowSender, receiver: FlowReceiver) -> Flow {
        Flow { sender, receiver }
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.sender.info()
    }

    /// Sends one SDU of 0 bytes or more; waits for space. See [`FlowSender::send`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::send`].
    #[inline]
    pub fn send(&mut self, sdu: &[u8]) -> Result<(), Error> {
        self.sender.send(sdu)
    }

    /// Sends one SDU, and waits for space until `until` at most. See [`FlowSender::send_until`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::send`].
    pub fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, Error> {
        self.sender.send_until(sdu, until)
    }

    /// Sends one SDU if there is space. See [`FlowSender::try_send`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::try_send`].
    #[inline]
    pub fn try_send(&mut self, sdu: &[u8]) -> Result<bool, Error> {
        self.sender.try_send(sdu)
    }

    /// Sends several SDUs and publishes them to the receiver together. See
    /// [`FlowSender::send_burst`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::send_burst`].
    pub fn send_burst(&mut self, sdus: &[&[u8]]) -> Result<(), Error> {
        self.sender.send_burst(sdus)
    }

    /// Reserves `length` bytes of the ring for an SDU that is written in place. See
    /// [`FlowSender::reserve`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::reserve`].
    pub fn reserve(&mut self, length: usize) -> Result<SendSlot<'_>, Error> {
        self.sender.reserve(length)
    }

    /// Waits for one SDU, copies it into `buffer` and returns its length. See
    /// [`FlowReceiver::recv`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.receiver.recv(buffer)
    }

    /// Receives one SDU, and waits for at most `limit`; `None` if no SDU arrived in this time. See
    /// [`FlowReceiver::recv_timeout`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    pub fn recv_timeout(
        &mut self,
        buffer: &mut [u8],
        limit: Duration,
    ) -> Result<Option<usize>, Error> {
        self.receiver.recv_timeout(buffer, limit)
    }

    /// Receives one SDU of at most `max` bytes into a new vector. See [`FlowReceiver::recv_vec`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    pub fn recv_vec(&mut self, max: usize) -> Result<Vec<u8>, Error> {
        self.receiver.recv_vec(max)
    }

    /// Receives one SDU if one has arrived. See [`FlowReceiver::try_recv`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    #[inline]
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.receiver.try_recv(buffer)
    }

    /// Waits for one SDU, and receives all others that have arrived and fit into `batch`. See
    /// [`FlowReceiver::recv_burst`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    pub fn recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        self.receiver.recv_burst(batch)
    }

    /// Waits for the next fragment of an SDU and returns it in place, without copying. See
    /// [`FlowReceiver::peek`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::peek`].
    pub fn peek(&mut self) -> Result<Fragment<'_>, Error> {
        self.receiver.peek()
    }

    /// Requests a wake-up for when an SDU can be received. See [`FlowReceiver::arm`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::arm`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.receiver.arm()
    }

    /// Returns the descriptor for poll and epoll, to be used after [`Flow::arm`]. See
    /// [`FlowReceiver::poll_fd`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::poll_fd`].
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.receiver.poll_fd()
    }

    /// Returns the counters of both directions since the flow was allocated.
    #[must_use]
    pub fn stats(&self) -> FlowStats {
        let sent = self.sender.stats();
        let received = self.receiver.stats();
        FlowStats {
            sdus_sent: sent.sdus_sent,
            bytes_sent: sent.bytes_sent,
            doorbells_rung: sent.doorbells_rung + received.doorbells_rung,
            sleeps: sent.sleeps + received.sleeps,
            ..received
        }
    }

    /// Splits the flow into its two directions, which different threads can use. The flow is
    /// deallocated when both are dropped. Dropping the sender alone tells the remote application
    /// that no more SDUs follow.
    #[must_use]
    pub fn split(self) -> (FlowSender, FlowReceiver) {
        (self.sender, self.receiver)
    }

    /// Deallocates the flow, as dropping it does.
    pub fn close(self) {
        drop(self);
    }
}

/// A flow whose SDUs travel through a `SOCK_SEQPACKET` socket of the kernel; one message is one
/// SDU.
///
/// Unlike a [`Flow`], it costs a system call and a copy for each SDU, but works with everything
/// that accepts a file descriptor. Closing the socket deallocates the flow.
#[derive(Debug)]
pub struct SocketFlow {
    /// The socket that carries the SDUs: blocking, close-on-exec.
    pub socket: OwnedFd,
    /// The names at the ends of the flow, its DIF and its limits.
    pub info: FlowInfo,
}

/// A flow as a byte stream. The application uses it with the system calls of a connected
/// `SOCK_STREAM` socket: `read`, `write`, `poll`, and `shutdown` to end one direction only.
#[derive(Debug)]
pub struct StreamFlow {
    /// The socket: blocking, with close-on-exec. `None` if the application attached one end of its
    /// own socket, because it then uses the other end of that socket.
    pub socket: Option<OwnedFd>,
    /// The names at the ends of the flow, its DIF and its limits.
    pub info: FlowInfo,
}

#[cfg(test)]
mod tests;
