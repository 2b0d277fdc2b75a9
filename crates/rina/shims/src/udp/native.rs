//! Flows of the UDP shim in Carina's own framing.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use carina_engine::counters::Value;
use carina_engine::{Buffer, Close, Links, Packet};
use carina_time::{Duration, Instant};
use carina_wire::Bytes;

use super::frame::{Frame, SDU_HEADER_BYTES};
use super::pace::Pace;
use super::sockets::SocketId;
use super::{Framing, Peer, Udp};
use crate::flow_table::{Names, Stage};

/// State of this framing.
pub(super) struct Native {
    /// Indices of flows, by this side's number.
    by_own: HashMap<u16, usize>,
    /// Indices of flows, by the peer's address and number.
    by_theirs: HashMap<(SocketAddr, u16), usize>,
    next: u16,
    /// Recently refused requests, so that a repetition gets the same answer.
    refused: VecDeque<Refused>,
}

/// A refused request.
struct Refused {
    /// The peer's address, and its number of the flow.
    key: (SocketAddr, u16),
    names: Names,
    reason: String,
    until: Instant,
}

impl Native {
    /// State without flows. Numbers start at a random value, so that SDUs for flows from before a
    /// restart are not taken for SDUs of new flows.
    pub(super) fn new() -> Native {
        Native {
            by_own: HashMap::new(),
            by_theirs: HashMap::new(),
            next: RandomState::new().hash_one(()) as u16,
            refused: VecDeque::new(),
        }
    }

    /// A number that is not in use and has not been used recently.
    fn number(&mut self) -> u16 {
        loop {
            self.next = self.next.checked_add(1).unwrap_or(1);
            if !self.by_own.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    pub(super) fn forget(&mut self, peer: Peer) {
        self.by_own.remove(&peer.own);
        if let (Some(address), Some(theirs)) = (peer.address, peer.theirs) {
            self.by_theirs.remove(&(address, theirs));
        }
    }
}

impl Udp {
    fn native(&mut self) -> Option<&mut Native> {
        match &mut self.framing {
            Framing::Native(native) => Some(native),
            Framing::Rlite(_) => None,
        }
    }

    fn send_frame(&mut self, to: SocketAddr, frame: &Frame<'_>) {
        let mut datagram = Vec::new();
        frame.encode(&mut datagram);
        match self.sockets.send(
            self.now,
            (SocketId::LISTEN, to),
            &datagram,
            &Bytes::default(),
        ) {
            None => self.flows.row.add(Value::ControlOut, 1),
            Some(reason) => self.flows.row.add(reason, 1),
        }
    }

    /// Starts to send requests to the called application, whose address the resolver has found.
    pub(super) fn resolved_native(&mut self, at: usize, address: SocketAddr) {
        let Some(own) = self.native().map(Native::number) else {
            return;
        };
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        flow.peer.address = Some(address);
        flow.peer.own = own;
        self.retries.begin(self.now, flow.port);
        if let Some(native) = self.native() {
            native.by_own.insert(own, at);
        }
    }

    pub(super) fn send_request(&mut self, at: usize) {
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        let (from, names) = (flow.peer.own, flow.names.clone());
        let Some(to) = flow.peer.address else { return };
        let request = Frame::Request {
            from,
            caller: names.local,
            called: names.remote,
        };
        self.send_frame(to, &request);
    }

    pub(super) fn send_accept(&mut self, at: usize) {
        let Some(peer) = self.flows.get_mut(at).map(|flow| flow.peer) else {
            return;
        };
        if let (Some(to), Some(flow)) = (peer.address, peer.theirs) {
            let from = peer.own;
            self.send_frame(to, &Frame::Accept { flow, from });
        }
    }

    pub(super) fn send_refuse(&mut self, names: Names, peer: Peer, reason: &str) {
        let (Some(to), Some(flow)) = (peer.address, peer.theirs) else {
            return;
        };
        self.send_frame(to, &Frame::Refuse { flow, reason });
        let refused = Refused {
            key: (to, flow),
            names,
            reason: reason.to_owned(),
            until: self.now + REMEMBERED,
        };
        if let Some(native) = self.native() {
            if native.refused.len() >= REFUSED_MAX {
                native.refused.pop_front();
            }
            native.refused.push_back(refused);
        }
    }

    pub(super) fn send_end(&mut self, at: usize, reason: &str) {
        let Some(peer) = self.flows.get_mut(at).map(|flow| flow.peer) else {
            return;
        };
        if let (Some(to), Some(flow)) = (peer.address, peer.theirs) {
            let from = peer.own;
            self.send_frame(to, &Frame::End { flow, from, reason });
        }
    }

    /// Processes a received datagram.
    pub(super) fn receive_native(
        &mut self,
        from: SocketAddr,
        mut buffer: Buffer,
        links: &mut Links,
    ) {
        let frame = match Frame::decode(buffer.as_slice()) {
            Some(Frame::Sdu { flow, .. }) => {
                let is_cut = buffer.len() < SDU_HEADER_BYTES;
                buffer.advance(SDU_HEADER_BYTES);
                let place = self.index_of(from, flow).filter(|_| !is_cut);
                return match place {
                    Some(at) => {
                        let packet = Packet::from_buffer(buffer, false);
                        self.flows.deliver(at, packet, links);
                    }
                    None => self.unknown(from, flow),
                };
            }
            Some(frame) => frame,
            None => return self.flows.row.add(Value::DropMalformed, 1),
        };
        self.flows.row.add(Value::ControlIn, 1);
        match frame {
            Frame::Sdu { .. } => {}
            Frame::Request {
                from: theirs,
                caller,
                called,
            } => {
                let names = Names {
                    local: called,
                    remote: caller,
                };
                self.handle_request(from, theirs, names, links);
            }
            Frame::Accept { flow, from: theirs } => self.handle_accept(from, flow, theirs, links),
            Frame::Refuse { flow, reason } => {
                if let Some(at) = self.index_of(from, flow) {
                    let reason = match reason {
                        "" => "the peer refused without a reason".to_owned(),
                        _ => reason.to_owned(),
                    };
                    self.close_flow(at, Close::Refused(reason), links);
                }
            }
            Frame::End {
                flow,
                from: theirs,
                reason,
            } => {
                let by_theirs = self
                    .native()
                    .and_then(|native| native.by_theirs.get(&(from, theirs)).copied());
                let place = match flow {
                    0 => by_theirs,
                    _ => self.index_of(from, flow),
                };
                if let Some(at) = place {
                    let close = match reason {
                        "" => Close::Graceful("the peer closed the flow".to_owned()),
                        _ => Close::Failed(reason.to_owned()),
                    };
                    self.close_flow(at, close, links);
                }
            }
        }
    }

    /// Index of the flow with this side's number `own`, if its peer has the address `from`.
    fn index_of(&mut self, from: SocketAddr, own: u16) -> Option<usize> {
        let at = *self.native()?.by_own.get(&own)?;
        let flow = self.flows.get_mut(at)?;
        (flow.peer.address == Some(from)).then_some(at)
    }

    /// Handles an SDU for a flow that does not exist: an END makes the sender stop.
    fn unknown(&mut self, from: SocketAddr, flow: u16) {
        self.flows.row.add(Value::DropUnknownChannel, 1);
        let reason = "there is no such flow";
        let end = Frame::End {
            flow: 0,
            from: flow,
            reason,
        };
        self.send_frame(from, &end);
    }

    /// Processes a request of the peer, which may be a repetition.
    fn handle_request(&mut self, from: SocketAddr, theirs: u16, names: Names, links: &mut Links) {
        let key = (from, theirs);
        let now = self.now;
        let Some(native) = self.native() else { return };
        if let Some(at) = native.by_theirs.get(&key).copied() {
            if self.asks_again(at, &names) {
                return;
            }
            let text = format!("{} has restarted", names.remote);
            self.close_flow(at, Close::Failed(text), links);
        }
        let Some(native) = self.native() else { return };
        native.refused.retain(|refused| refused.until > now);
        let is_it = |refused: &&Refused| refused.key == key && refused.names == names;
        let again = native.refused.iter().find(is_it);
        let again = again.map(|refused| refused.reason.clone());
        let reason = again.or_else(|| {
            let is_here = self.flows.names.contains(&names.local);
            (!is_here).then(|| format!("no application is registered as {}", names.local))
        });
        if let Some(reason) = reason {
            let flow = theirs;
            return self.send_frame(
                from,
                &Frame::Refuse {
                    flow,
                    reason: &reason,
                },
            );
        }
        let Some(own) = self.native().map(Native::number) else {
            return;
        };
        let peer = Peer {
            address: Some(from),
            socket_id: SocketId::LISTEN,
            own,
            theirs: Some(theirs),
            pace: Pace::default(),
        };
        if let Some(at) = self.flows.add_incoming(now, names, peer)
            && let Some(native) = self.native()
        {
            native.by_own.insert(own, at);
            native.by_theirs.insert(key, at);
        }
    }

    /// Whether a request with the number of this flow repeats the request that created it; if so,
    /// answers as before. Otherwise the peer has restarted and reuses the number: the request has
    /// other names, or the flow has been open for a long time.
    fn asks_again(&mut self, at: usize, names: &Names) -> bool {
        let now = self.now;
        let Some(flow) = self.flows.get_mut(at) else {
            return false;
        };
        let is_recent = now < flow.since + REMEMBERED;
        let is_open = flow.stage == Stage::Open;
        let is_it = flow.is_passive && flow.names == *names && (is_recent || !is_open);
        if is_it && is_open {
            self.send_accept(at);
        }
        is_it
    }

    /// Processes an ACCEPT of the peer.
    fn handle_accept(&mut self, from: SocketAddr, own: u16, theirs: u16, links: &mut Links) {
        let Some(at) = self.index_of(from, own) else {
            // This side has given up the request in the meantime. The END releases the peer's flow
            // at once.
            let reason = "the request was given up";
            let end = Frame::End {
                flow: theirs,
                from: own,
                reason,
            };
            return self.send_frame(from, &end);
        };
        let Some(flow) = self.flows.get_mut(at) else {
            return;
        };
        if flow.stage != Stage::Requested {
            return;
        }
        flow.peer.theirs = Some(theirs);
        let port = flow.port;
        self.retries.end(port);
        if let Some(native) = self.native() {
            native.by_theirs.insert((from, theirs), at);
        }
        let credit = self.credit();
        self.flows.confirm(self.now, at, credit, links);
    }
}

/// How long a repeated request gets the same answer. Requests are repeated for a shorter
/// time.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Largest number of refused requests that are remembered.
const REFUSED_MAX: usize = 1024;
