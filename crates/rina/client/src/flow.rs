//! A flow: both directions together.

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
/// Dropping it, or [`Flow::close`], deallocates it: the remote application receives what was sent
/// and then learns that the flow is closed. After `kill -9` it learns that the flow has failed.
#[derive(Debug)]
pub struct Flow {
    sender: FlowSender,
    receiver: FlowReceiver,
}

impl Flow {
    pub(crate) fn new(sender: FlowSender, receiver: FlowReceiver) -> Flow {
        Flow { sender, receiver }
    }

    /// The ends of the flow and what it offers.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.sender.info()
    }

    /// Sends one SDU of any length from 0 bytes; waits for space. See [`FlowSender::send`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::send`].
    #[inline]
    pub fn send(&mut self, sdu: &[u8]) -> Result<(), Error> {
        self.sender.send(sdu)
    }

    /// Sends one SDU, waiting for space no longer than `until`. See [`FlowSender::send_until`].
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

    /// Sends several SDUs and makes them visible together. See [`FlowSender::send_burst`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::send_burst`].
    pub fn send_burst(&mut self, sdus: &[&[u8]]) -> Result<(), Error> {
        self.sender.send_burst(sdus)
    }

    /// Gives `length` bytes in the ring to be filled in place. See [`FlowSender::reserve`].
    ///
    /// # Errors
    ///
    /// As for [`FlowSender::reserve`].
    pub fn reserve(&mut self, length: usize) -> Result<SendSlot<'_>, Error> {
        self.sender.reserve(length)
    }

    /// Receives one SDU and gives its length; waits for it. See [`FlowReceiver::recv`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    #[inline]
    pub fn recv(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        self.receiver.recv(buffer)
    }

    /// Receives one SDU, waiting for at most `limit`. See [`FlowReceiver::recv_timeout`].
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

    /// Receives one SDU if there is one. See [`FlowReceiver::try_recv`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    #[inline]
    pub fn try_recv(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Error> {
        self.receiver.try_recv(buffer)
    }

    /// Receives at least one SDU and all others that are there and fit into `batch`. See
    /// [`FlowReceiver::recv_burst`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::recv`].
    pub fn recv_burst(&mut self, batch: &mut SduBatch) -> Result<usize, Error> {
        self.receiver.recv_burst(batch)
    }

    /// Waits for the next fragment of an SDU and looks at it in the ring. See
    /// [`FlowReceiver::peek`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::peek`].
    pub fn peek(&mut self) -> Result<Fragment<'_>, Error> {
        self.receiver.peek()
    }

    /// Asks to be woken when an SDU can be received. See [`FlowReceiver::arm`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::arm`].
    pub fn arm(&mut self) -> Result<bool, Error> {
        self.receiver.arm()
    }

    /// The descriptor for poll and epoll after [`Flow::arm`]. See [`FlowReceiver::poll_fd`].
    ///
    /// # Errors
    ///
    /// As for [`FlowReceiver::poll_fd`].
    pub fn poll_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.receiver.poll_fd()
    }

    /// What the flow has carried so far.
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

    /// The two directions, each for its own thread. The flow is deallocated when both are dropped;
    /// dropping the sender alone tells the remote application that no more comes.
    #[must_use]
    pub fn split(self) -> (FlowSender, FlowReceiver) {
        (self.sender, self.receiver)
    }

    /// Deallocates the flow, as dropping it does.
    pub fn close(self) {
        drop(self);
    }
}

/// A flow that is a `SOCK_SEQPACKET` socket of the kernel: one message is one SDU.
///
/// It costs system calls and copies that a [`Flow`] does not, and works with everything that takes
/// a file descriptor. Closing the socket deallocates the flow.
#[derive(Debug)]
pub struct SocketFlow {
    /// The socket, blocking, close-on-exec.
    pub socket: OwnedFd,
    /// The names at the ends.
    pub info: FlowInfo,
}

/// A flow that is a byte stream of the kernel, with half-close: what `read`, `write`, `poll` and
/// `shutdown` do on a connected `SOCK_STREAM` socket.
#[derive(Debug)]
pub struct StreamFlow {
    /// The socket, blocking, close-on-exec. `None` when this end attached a socket of its own: the
    /// program has its other end.
    pub socket: Option<OwnedFd>,
    /// The names at the ends.
    pub info: FlowInfo,
}

#[cfg(test)]
mod tests;
