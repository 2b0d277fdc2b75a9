//! The sockets of a UDP shim, and the impaired line before them.
//!
//! One socket listens. In the framing of rlite each flow asked for from here has a socket of its
//! own beside it, as an endpoint is an address and a port there: what comes to it is that flow's,
//! from whichever port the other side answers, and a flow that is asked for again is a new one to
//! the other side.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use carina_engine::counters::Value;
use carina_netdev::{DatagramSocket, Fault, FaultPlan};
use carina_sys::{Epoll, Interest};
use carina_wire::Payload;

use super::RETRY_NS;
use crate::error::ShimError;

/// A socket of the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SocketId(u16);

impl SocketId {
    /// The one that listens.
    pub const LISTEN: SocketId = SocketId(0);
}

/// A datagram on the impaired line.
type Delayed = (SocketId, SocketAddr, Vec<u8>);

/// The sockets.
pub(super) struct Sockets {
    listen: DatagramSocket,
    /// Those of flows asked for from here; [`SocketId`] 1 is the first.
    calls: Vec<Option<CallSocket>>,
    /// Rings for all of `calls`.
    epoll: Epoll,
    ready: Vec<carina_sys::Ready>,
    fault: Option<Fault<Delayed>>,
    /// When to offer again what the kernel did not take, in ns.
    pub retry_at: Option<u64>,
}

struct CallSocket {
    socket: DatagramSocket,
    may_have: bool,
}

impl Sockets {
    /// # Errors
    /// The system has no descriptor to give.
    pub fn new(listen: DatagramSocket, plan: Option<FaultPlan>) -> std::io::Result<Sockets> {
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

    /// Opens a socket for a flow asked for from here.
    ///
    /// # Errors
    /// There are too many, or the kernel refuses.
    pub fn open(&mut self) -> Result<SocketId, ShimError> {
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

    /// Closes the socket of a flow that has ended, after what is queued was sent; returns how many
    /// datagrams could not be. The one that listens stays.
    pub fn close(&mut self, socket_id: SocketId) -> u64 {
        let Some(at) = socket_id.0.checked_sub(1) else {
            return 0;
        };
        let Some(mut call) = self.calls.get_mut(usize::from(at)).and_then(Option::take) else {
            return 0;
        };
        let (lost, _) = call.socket.flush();
        // Dropping it takes it out of the epoll as well.
        (lost + call.socket.queued()) as u64
    }

    /// Datagrams that can be sent now through a socket.
    pub fn room(&mut self, socket_id: SocketId) -> usize {
        if self.fault.is_some() {
            return usize::MAX;
        }
        self.socket(socket_id).map_or(0, |socket| socket.room())
    }

    /// Sends `head` and `body` as one datagram; the reason it was lost, if it was.
    pub fn send(
        &mut self,
        now: u64,
        (socket_id, to): (SocketId, SocketAddr),
        head: &[u8],
        body: &impl Payload,
    ) -> Option<Value> {
        let bytes = head.len() + body.len();
        if let Some(fault) = &mut self.fault {
            let mut datagram = Vec::with_capacity(bytes);
            datagram.extend_from_slice(head);
            body.append_to(&mut datagram);
            let is_passed = fault.offer(now, (socket_id, to, datagram), bytes);
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

    /// Moves what has come to the end of the impaired line to the sockets; returns how many
    /// datagrams were lost.
    pub fn move_due(&mut self, now: u64) -> u64 {
        let mut lost = 0;
        while let Some((socket_id, to, datagram)) =
            self.fault.as_mut().and_then(|f| f.take_due(now))
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

    /// Returns how many datagrams the kernel refused for good.
    pub fn flush(&mut self, now: u64) -> usize {
        let (mut lost, mut is_stuck) = self.listen.flush();
        for call in self.calls.iter_mut().flatten() {
            if call.socket.queued() > 0 {
                let (more, stuck) = call.socket.flush();
                lost += more;
                is_stuck |= stuck;
            }
        }
        self.retry_at = is_stuck.then_some(now + RETRY_NS);
        lost
    }

    /// When something is due next, in ns.
    pub fn next_deadline(&self) -> Option<u64> {
        let due = self.fault.as_ref().and_then(Fault::next_due);
        [due, self.retry_at].into_iter().flatten().min()
    }

    /// Learns which sockets of flows are readable.
    pub fn poll_ready(&mut self) {
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

    /// Receives a burst at a socket that may have one; the socket and how many datagrams came.
    pub fn receive(&mut self) -> Option<(SocketId, usize)> {
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

    /// A datagram of the burst received last at a socket.
    pub fn datagram(&mut self, socket_id: SocketId, at: usize) -> Option<(&[u8], SocketAddr)> {
        self.socket(socket_id)?.datagram(at)
    }

    /// Descriptors that ring when something has come.
    pub fn wait_fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.listen.as_fd(), self.epoll.as_fd()]
    }
}

/// Flows asked for from here at a time, each with a socket of its own.
const CALLS_MAX: usize = 1024;
