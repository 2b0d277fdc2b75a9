//! Packets from the kernel to flows: flows are requested when a packet needs one, and packets wait
//! in a short queue while their flow is requested or full.

use std::collections::VecDeque;
use std::time::Instant;

use carina_api::FlowSpec;
use carina_client::{Allocation, Error, FlowReceiver, FlowSender};
use carina_netdev::{MAC_HEADER_BYTES, TapResult, VNET_HEADER_BYTES, VnetHeader};
use carina_sys::Interest;

use super::slots::MESSAGE_BYTES_MAX;
use super::{OUTGOING, SPACE, Worker, token};
use crate::class::Class;
use crate::counters::Reason;
use crate::cut::cut;
use crate::icmp;
use crate::packet::{Packet, clamp_mss};
use crate::router::{Decision, FlowId, FlowKey};
use crate::sdu;

/// A flow that this member allocates, and the packets that wait for it.
#[derive(Debug)]
pub(super) struct Outgoing {
    state: State,
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
    /// Whether the flow stayed full for a whole pause: packets to it no longer hold up others.
    is_slow: bool,
    /// Whether the ring had no space for the next packet, which was not read from the kernel.
    is_blocked: bool,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

#[derive(Debug)]
enum State {
    /// The flow is requested. `is_plain`: without a promise, after the DIF had no flow with the
    /// promise that the class asks for.
    Requested {
        allocation: Allocation,
        key: FlowKey,
        is_plain: bool,
    },
    Open(Box<OpenFlow>),
}

#[derive(Debug)]
struct OpenFlow {
    sender: FlowSender,
    /// Watched for the end of the flow; the other member sends nothing on it.
    receiver: FlowReceiver,
}

/// What happened to an SDU that was to be sent.
enum Pushed {
    Sent,
    Queued,
    Dropped(Reason),
    /// The flow carries SDUs of at most so many bytes.
    TooLong(usize),
    Ended,
}

/// How far [`Outgoing::flush`] came.
enum Flushed {
    /// Nothing waits any more.
    All,
    /// The flow is full. Its descriptor for space becomes readable later.
    Part,
    /// The flow does not carry this SDU, which no longer waits; so many bytes would have fitted.
    TooLong(Vec<u8>, usize),
}

impl Outgoing {
    fn new(state: State) -> Outgoing {
        Outgoing {
            state,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            is_slow: false,
            is_blocked: false,
            packets: 0,
            bytes: 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Notes that the pause for full flows has ended: a flow that is still full causes no other
    /// pause until its queue is empty.
    pub(super) fn note_pause_ended(&mut self) {
        self.is_slow |= self.waiting_bytes > PAUSE_BYTES || self.is_blocked;
    }

    /// The sender into whose ring the next packet may be read: the flow is open, and nothing waits.
    pub(super) fn idle_sender(&mut self) -> Option<&mut FlowSender> {
        let is_free = self.waiting.is_empty() && !self.is_slow;
        match &mut self.state {
            State::Open(flow) if is_free => Some(&mut flow.sender),
            _ => None,
        }
    }

    /// Notes that the ring has no space for a packet. Returns whether the caller must wait until it
    /// has: the descriptor for space becomes readable then.
    pub(super) fn block(&mut self) -> bool {
        let State::Open(flow) = &mut self.state else {
            return false;
        };
        self.is_blocked = matches!(flow.sender.arm(MESSAGE_BYTES_MAX), Ok(true));
        self.is_blocked
    }

    /// Sends an SDU, or queues it behind those that wait.
    fn push(&mut self, sdu: &[u8]) -> Pushed {
        let limit = match &mut self.state {
            State::Requested { .. } => REQUESTED_BYTES_MAX,
            State::Open(flow) if self.waiting.is_empty() => match flow.sender.try_send(sdu) {
                Ok(true) => {
                    self.packets += 1;
                    self.bytes += sdu.len() as u64;
                    return Pushed::Sent;
                }
                Ok(false) => {
                    self.enqueue(sdu);
                    return Pushed::Queued;
                }
                Err(Error::SduTooLarge { max, .. }) => return Pushed::TooLong(max as usize),
                Err(_) => return Pushed::Ended,
            },
            State::Open(_) => OPEN_BYTES_MAX,
        };
        if self.waiting_bytes + sdu.len() > limit {
            return Pushed::Dropped(Reason::QueueFull);
        }
        self.enqueue(sdu);
        Pushed::Queued
    }

    /// Sends as many SDUs as there is space for, unless others wait. Returns how many. Waking the
    /// node for all of them costs less than for each.
    fn push_burst(&mut self, sdus: &[&[u8]]) -> usize {
        let State::Open(flow) = &mut self.state else {
            return 0;
        };
        if !self.waiting.is_empty() {
            return 0;
        }
        // An SDU that fails is sent alone by the caller, and its error is handled then.
        let sent = flow.sender.try_send_burst(sdus).unwrap_or(0);
        self.packets += sent as u64;
        self.bytes += sdus[..sent].iter().map(|sdu| sdu.len() as u64).sum::<u64>();
        sent
    }

    fn enqueue(&mut self, sdu: &[u8]) {
        self.waiting_bytes += sdu.len();
        self.waiting.push_back(sdu.to_vec());
    }

    /// Sends what waits while there is space.
    fn flush(&mut self) -> Result<Flushed, Error> {
        let State::Open(flow) = &mut self.state else {
            return Ok(Flushed::Part);
        };
        while let Some(sdu) = self.waiting.front() {
            match flow.sender.try_send(sdu) {
                Ok(true) => {}
                Ok(false) => {
                    if flow.sender.arm(sdu.len())? {
                        return Ok(Flushed::Part);
                    }
                    continue;
                }
                Err(Error::SduTooLarge { max, .. }) => {
                    self.waiting_bytes -= sdu.len();
                    let sdu = self.waiting.pop_front().unwrap_or_default();
                    return Ok(Flushed::TooLong(sdu, max as usize));
                }
                Err(error) => return Err(error),
            }
            self.packets += 1;
            self.bytes += sdu.len() as u64;
            self.waiting_bytes -= sdu.len();
            self.waiting.pop_front();
        }
        (self.is_slow, self.is_blocked) = (false, false);
        Ok(Flushed::All)
    }
}

impl Worker {
    /// Sends a packet of the kernel. `slot` has [`MAC_HEADER_BYTES`] bytes in front of the packet,
    /// the last ten of which are the kernel's header.
    pub(super) fn send_packet(&mut self, slot: &mut [u8], now: Instant) {
        let (front, packet) = slot.split_at_mut(MAC_HEADER_BYTES);
        let header = front.last_chunk::<VNET_HEADER_BYTES>();
        let header = header.and_then(VnetHeader::read);
        let (Some(header), Some(parsed)) = (header, Packet::read(packet)) else {
            return self.drop_packet(Reason::Malformed);
        };
        let id = match self.router.handle_outgoing(&parsed, now) {
            Decision::Send(id) => id,
            Decision::Request(id, key) => {
                self.request(id, key, false, now);
                id
            }
            Decision::Drop(reason) => {
                if reason == Reason::NoMember {
                    self.link.directory.ask();
                }
                if matches!(reason, Reason::NoMember | Reason::FlowRefused) {
                    self.answer_unreachable(&parsed, slot, now);
                }
                return self.drop_packet(reason);
            }
        };
        if clamp_mss(packet, self.link.mtu, header.checksum.is_some()) {
            self.counters.mss_clamped += 1;
        }
        let sdu_bytes = VNET_HEADER_BYTES + packet.len();
        if header.segments.is_some() && sdu_bytes > self.link.carried.whole_max {
            return self.send_cut(id, slot, &header, now);
        }
        match sdu::header_bytes(&header) {
            None => self.push(id, packet, now),
            Some(bytes) => {
                let at = MAC_HEADER_BYTES - VNET_HEADER_BYTES;
                slot[at..MAC_HEADER_BYTES].copy_from_slice(&bytes);
                self.push(id, &slot[at..], now);
            }
        }
    }

    /// Tells the kernel that no member has the destination of its packet.
    fn answer_unreachable(&mut self, packet: &Packet, slot: &[u8], now: Instant) {
        let error = icmp::unreachable(packet, &slot[MAC_HEADER_BYTES..]);
        self.answer(error, now);
    }

    /// Drops an SDU that is too long for its flow, and tells the sender of the packet what the flow
    /// carries.
    fn drop_too_long(&mut self, sdu: &[u8], sdu_max: usize, now: Instant) {
        self.drop_packet(Reason::TooLong);
        let Some(packet) = sdu::read(sdu).map(|sdu| sdu.packet) else {
            return;
        };
        let mtu = sdu_max.saturating_sub(sdu.len() - packet.len());
        let error = Packet::read(packet);
        let error = error.and_then(|parsed| icmp::too_big(&parsed, packet, mtu));
        self.answer(error, now);
    }

    /// Gives an ICMP error about a packet of the kernel to the kernel, unless there were too many.
    fn answer(&mut self, error: Option<Vec<u8>>, now: Instant) {
        let Some(error) = error.filter(|_| self.error_limit.allows(now)) else {
            return;
        };
        let header = [0; VNET_HEADER_BYTES];
        let mut written = self.tap.write(std::iter::once((&header, &error[..])));
        if matches!(written.next(), Some(TapResult::Done(_))) {
            self.counters.errors_sent += 1;
        }
    }

    /// Cuts a packet of several segments that the DIF would fragment, and sends the segments.
    fn send_cut(&mut self, id: FlowId, slot: &mut [u8], header: &VnetHeader, now: Instant) {
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        if cut(header, slot, |packet| pieces.push(packet)).is_err() {
            self.pieces = pieces;
            return self.drop_packet(Reason::Uncuttable);
        }
        self.counters.packets_cut += 1;
        let sdus: Vec<&[u8]> = pieces.iter().collect();
        let flow = self.outgoing.get_mut(&id);
        let sent = flow.map_or(0, |flow| flow.push_burst(&sdus));
        let bytes = sdus[..sent].iter().map(|sdu| sdu.len() as u64);
        self.counters.packets_sent += sent as u64;
        self.counters.bytes_sent += bytes.sum::<u64>();
        for sdu in &sdus[sent..] {
            self.push(id, sdu, now);
        }
        self.pieces = pieces;
    }

    /// Sends an SDU over a flow, or queues it.
    fn push(&mut self, id: FlowId, sdu: &[u8], now: Instant) {
        let Some(flow) = self.outgoing.get_mut(&id) else {
            return self.drop_packet(Reason::FlowRefused);
        };
        match flow.push(sdu) {
            Pushed::Sent => {
                self.counters.packets_sent += 1;
                self.counters.bytes_sent += sdu.len() as u64;
                self.note_bulk(id, sdu.len());
            }
            Pushed::Queued if flow.is_open() => {
                let may_pause = !flow.is_slow;
                if flow.waiting.len() == 1 {
                    self.flush(id, now);
                }
                let is_full = self
                    .outgoing
                    .get(&id)
                    .is_some_and(|flow| flow.waiting_bytes > PAUSE_BYTES);
                if is_full && may_pause {
                    self.pause(now);
                }
            }
            Pushed::Queued => {}
            Pushed::Dropped(reason) => {
                flow.is_slow = true;
                self.drop_packet(reason);
            }
            Pushed::TooLong(sdu_max) => self.drop_too_long(sdu, sdu_max, now),
            Pushed::Ended => {
                self.drop_packet(Reason::FlowEnded);
                self.end(id);
            }
        }
    }

    /// Requests a flow. `is_plain`: without the promises of the packets' class.
    fn request(&mut self, id: FlowId, key: FlowKey, is_plain: bool, now: Instant) {
        let class = if is_plain { Class::Default } else { key.class };
        let spec: FlowSpec = class.spec();
        let (local, remote) = (key.local.name(), key.remote.name());
        let dif = Some(&self.link.dif);
        let requested = self.link.node.start_allocate(&local, &remote, dif, &spec);
        self.counters.flows_requested += 1;
        let watched = requested.ok().filter(|allocation| {
            let watched = self
                .epoll
                .add(allocation, token(OUTGOING, id), Interest::Read);
            watched.is_ok()
        });
        let Some(allocation) = watched else {
            return self.refused(id, now);
        };
        let state = State::Requested {
            allocation,
            key,
            is_plain,
        };
        match self.outgoing.get_mut(&id) {
            Some(flow) => flow.state = state,
            None => drop(self.outgoing.insert(id, Outgoing::new(state))),
        }
    }

    /// Handles an event of a flow: the node has answered the request, or the flow has ended.
    pub(super) fn progress(&mut self, id: FlowId, now: Instant) {
        let Some(flow) = self.outgoing.get_mut(&id) else {
            return;
        };
        match &mut flow.state {
            State::Requested {
                allocation,
                key,
                is_plain,
            } => match allocation.try_finish() {
                Ok(None) => {}
                Ok(Some(opened)) => {
                    let (sender, receiver) = opened.split();
                    let open = State::Open(Box::new(OpenFlow { sender, receiver }));
                    let requested = std::mem::replace(&mut flow.state, open);
                    if let State::Requested { allocation, .. } = requested {
                        let _ = self.epoll.del(&allocation);
                    }
                    self.opened(id, now);
                }
                Err(error) => {
                    let (key, is_last) = (*key, *is_plain || key.class == Class::Default);
                    let _ = self.epoll.del(&*allocation);
                    tracing::debug!(target: "carina::ip", "flow to {}: {error}", key.remote);
                    if is_last || error.is_end_of_flow() {
                        self.refused(id, now);
                    } else {
                        self.request(id, key, true, now);
                    }
                }
            },
            State::Open(open) => {
                // Only a member that breaks the rules sends here; otherwise the flow has ended.
                let is_alive = matches!(open.receiver.try_recv(&mut [0; 1]), Ok(None));
                if !is_alive || open.receiver.arm().is_err() {
                    self.end(id);
                }
            }
        }
    }

    fn opened(&mut self, id: FlowId, now: Instant) {
        let Some(Outgoing {
            state: State::Open(open),
            ..
        }) = self.outgoing.get_mut(&id)
        else {
            return;
        };
        let epoll = &self.epoll;
        let mut watch = || {
            let added = epoll.add(
                open.receiver.poll_fd()?,
                token(OUTGOING, id),
                Interest::Read,
            );
            let space = || epoll.add(open.sender.space_fd(), token(SPACE, id), Interest::ReadEdge);
            added
                .and_then(|()| space())
                .map_err(|source| Error::System {
                    action: "waiting for the flow",
                    source,
                })?;
            open.receiver.arm()
        };
        if !matches!(watch(), Ok(true)) {
            return self.end(id);
        }
        self.router.handle_opened(id);
        self.flush(id, now);
    }

    /// Sends the packets that wait for a flow.
    pub(super) fn flush(&mut self, id: FlowId, now: Instant) {
        // Each turn takes a packet from the queue, which is bounded.
        loop {
            let Some(flow) = self.outgoing.get_mut(&id) else {
                return;
            };
            let (packets, bytes) = (flow.packets, flow.bytes);
            let flushed = flow.flush();
            self.counters.packets_sent += flow.packets - packets;
            self.counters.bytes_sent += flow.bytes - bytes;
            match flushed {
                Ok(Flushed::All) => return self.resume(),
                Ok(Flushed::Part) => return,
                Ok(Flushed::TooLong(sdu, sdu_max)) => self.drop_too_long(&sdu, sdu_max, now),
                Err(_) => return self.end(id),
            }
        }
    }

    fn refused(&mut self, id: FlowId, now: Instant) {
        let waiting = self.outgoing.remove(&id).map_or(0, |flow| flow.waiting());
        self.counters.drop_many(Reason::FlowRefused, waiting);
        self.router.handle_refused(id, now);
    }

    /// Forgets a flow that has ended; the next packet requests it again.
    pub(super) fn end(&mut self, id: FlowId) {
        let waiting = self.outgoing.remove(&id).map_or(0, |flow| flow.waiting());
        self.counters.drop_many(Reason::FlowEnded, waiting);
        self.router.handle_ended(id);
        self.resume();
    }
}

/// Largest number of bytes that wait for a flow that is requested.
const REQUESTED_BYTES_MAX: usize = 256 << 10;
/// Largest number of bytes that wait for an open flow.
const OPEN_BYTES_MAX: usize = 1 << 20;
/// Number of waiting bytes at which the member stops to read packets from the kernel.
const PAUSE_BYTES: usize = 128 << 10;
