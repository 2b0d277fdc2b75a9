//! The sockets of a UDP shim, and the fault layer in front of them.
//!
//! One socket listens. In the framing of rlite, each flow that this side requests has its own
//! socket, because there an endpoint is an address and a port. Everything that arrives at the
//! socket belongs to the flow, whatever port the peer answers from. A flow that is requested again
//! is a new one for the peer.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counters::Value;
use carina_netdev::{DatagramSocket, Fault, FaultPlan};
use carina_sys::{Epoll, Interest};
use carina_time::Instant;
use carina_wire::Payload;

use super::RETRY_AFTER;
use crate::error::ShimError;

/// Number of a socket of the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SocketId(u16);

impl SocketId {
    /// The listening socket.
    pub(super) const LISTEN: SocketId = SocketId(0);
}

/// A datagram in the queue of the fault layer.
type Delayed = (SocketId, SocketAddr, Vec<u8>);

/// The sockets of a UDP shim.
pub(super) struct Sockets {
    listen: DatagramSocket,
    /// Sockets of the flows that this side requested; [`SocketId`] 1 is the first.
    calls: Vec<Option<CallSocket>>,
    /// Epoll set of all sockets in `calls`.
    epoll: Epoll,
    ready: Vec<carina_sys::Ready>,
    fault: Option<Fault<Delayed>>,
    /// When the shim offers datagrams again that the kernel did not accept.
    pub retry_at: Option<Instant>,
}

struct CallSocket {
    socket: DatagramSocket,
    may_have: bool,
}

impl Sockets {
    /// # Errors
    /// The system has no free descriptor.
    pub(super) fn new(listen: DatagramSocket, plan: Option<FaultPlan>) -> std::io::Result<Sockets> {
        Ok(Sockets {
            listen,
            calls: Vec::new(),
            epoll: Epoll::new()?,
            ready: Vec::new(),
            fault: plan.map(Fault::new),
            retry_at: None,
        })
    }

    fn socket(&mut self, socket_id: SocketId) -> Option<&mut DatagramSocket> {
        match socket_id.0.checked_sub(1) {
            None => Some(&mut self.listen),
            Some(at) => {
                let call = self.calls.get_mut(usize::from(at))?.as_mut()?;
                Some(&mut call.socket)
            }
        }
    }

    /// Opens a socket for a flow that this side requests.
    ///
    /// # Errors
    /// There are too many sockets, or a system call fails.
    pub(super) fn open(&mut self) -> Result<SocketId, ShimError> {
        let free = self.calls.iter().position(Option::is_none);
        let at = free.unwrap_or(self.calls.len());
        if at >= CALLS_MAX {
            return Err(ShimError::SocketsExhausted(CALLS_MAX));
        }
        let failed = |error| ShimError::system("a UDP socket")(error);
        let own = self.listen.local_address().map_err(failed)?;
        let own = SocketAddr::new(own.ip(), 0);
        let socket = DatagramSocket::bind(own, self.listen.bytes_max())?;
        self.epoll
            .add(&socket, at as u64, Interest::ReadEdge)
            .map_err(failed)?;
        let call = CallSocket {
            socket,
            may_have: true,
        };
        match self.calls.get_mut(at) {
            Some(place) => *place = Some(call),
            None => self.calls.push(Some(call)),
        }
        Ok(SocketId(at as u16 + 1))
    }

    /// Sends queued datagrams and closes the socket of a flow that has ended. Returns how many
    /// datagrams could not be sent. Does nothing for the listening socket.
    pub(super) fn close(&mut self, socket_id: SocketId) -> u64 {
        let Some(at) = socket_id.0.checked_sub(1) else {
            return 0;
        };
        let Some(mut call) = self.calls.get_mut(usize::from(at)).and_then(Option::take) else {
            return 0;
        };
        let (lost, _) = call.socket.flush();
        // Dropping the socket also removes it from the epoll set.
        (lost + call.socket.queued()) as u64
    }

    /// Number of datagrams that can be sent now through a socket.
    pub(super) fn room(&mut self, socket_id: SocketId) -> usize {
        if self.fault.is_some() {
            return usize::MAX;
        }
        self.socket(socket_id).map_or(0, |socket| socket.room())
    }

    /// Sends `head` and `body` as one datagram. Returns the reason if the datagram was lost.
    pub(super) fn send(
        &mut self,
        now: Instant,
        (socket_id, to): (SocketId, SocketAddr),
        head: &[u8],
        body: &impl Payload,
    ) -> Option<Value> {
        let bytes = head.len() + body.len();
        if let Some(fault) = &mut self.fault {
            let mut datagram = Vec::with_capacity(bytes);
            datagram.extend_from_slice(head);
            body.append_to(&mut datagram);
            let is_passed = fault.offer(now.as_nanos(), (socket_id, to, datagram), bytes);
            return (!is_passed).then_some(Value::DropImpaired);
        }
        if self.room(socket_id) == 0 {
            self.flush(now);
        }
        match self
            .socket(socket_id)
            .and_then(|socket| socket.queue(to, bytes))
        {
            Some(place) => {
                place[..head.len()].copy_from_slice(head);
                body.copy_prefix(&mut place[head.len()..]);
                None
            }
            None => Some(Value::DropNoBuffer),
        }
    }

    /// Moves the datagrams whose delay in the fault layer has passed to the sockets. Returns how
    /// many were lost.
    pub(super) fn move_due(&mut self, now: Instant) -> u64 {
        let mut lost = 0;
        while let Some((socket_id, to, datagram)) =
            self.fault.as_mut().and_then(|f| f.take_due(now.as_nanos()))
        {
            if self
                .socket(socket_id)
                .is_some_and(|socket| socket.room() == 0)
            {
                self.flush(now);
            }
            let socket = self.socket(socket_id);
            match socket.and_then(|socket| socket.queue(to, datagram.len())) {
                Some(place) => place.copy_from_slice(&datagram),
                None => lost += 1,
            }
        }
        lost
    }

    /// Sends queued datagrams. Returns how many the kernel refused for good.
    pub(super) fn flush(&mut self, now: Instant) -> usize {
        let (mut lost, mut is_stuck) = self.listen.flush();
        for call in self.calls.iter_mut().flatten() {
            if call.socket.queued() > 0 {
                let (more, stuck) = call.socket.flush();
                lost += more;
                is_stuck |= stuck;
            }
        }
        self.retry_at = is_stuck.then_some(now + RETRY_AFTER);
        lost
    }

    /// Time at which the next datagram is due; `None` if none waits.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let due = self.fault.as_ref().and_then(Fault::next_due);
        let due = due.map(Instant::from_nanos);
        [due, self.retry_at].into_iter().flatten().min()
    }

    /// Finds out which sockets of flows are readable.
    pub(super) fn poll_ready(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let mut ready = std::mem::take(&mut self.ready);
        while self.epoll.wait(&mut ready, Some(0)).is_ok() && !ready.is_empty() {
            for event in &ready {
                if let Some(Some(call)) = self.calls.get_mut(event.token as usize) {
                    call.may_have = true;
                }
            }
        }
        self.ready = ready;
    }

    /// Receives a burst at a socket that may have datagrams. Returns the socket and the number of
    /// datagrams.
    pub(super) fn receive(&mut self) -> Option<(SocketId, usize)> {
        let count = self.listen.receive();
        if count > 0 {
            return Some((SocketId::LISTEN, count));
        }
        for (at, call) in self.calls.iter_mut().enumerate() {
            let Some(call) = call.as_mut().filter(|call| call.may_have) else {
                continue;
            };
            let count = call.socket.receive();
            call.may_have = count > 0;
            if count > 0 {
                return Some((SocketId(at as u16 + 1), count));
            }
        }
        None
    }

    /// A datagram of the last burst received at a socket, with the sender's address.
    pub(super) fn datagram(
        &mut self,
        socket_id: SocketId,
        at: usize,
    ) -> Option<(&[u8], SocketAddr)> {
        self.socket(socket_id)?.datagram(at)
    }

    /// Descriptors that become readable when a datagram arrives.
    pub(super) fn wait_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.listen.as_fd(), self.epoll.as_fd()]
    }
}

/// Largest number of flows that this side may have requested at a time in the framing of rlite.
const CALLS_MAX: usize = 1024;
