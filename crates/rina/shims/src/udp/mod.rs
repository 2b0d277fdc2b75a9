//! The shim IPC process over UDP (RFC 768). Specified in the Pouzin Society's "Shim DIF over
//! TCP/UDP".
//!
//! There are two framings ([`UdpFraming`]). Carina's own has flow numbers and allocation by name
//! ([`frame`]). In the framing of rlite and IRATI a datagram is an SDU, a pair of IP addresses and
//! ports identifies a flow, and the address resolver supplies the names of both applications.

mod builder;
pub(crate) mod frame;
mod native;
mod pace;
mod rlite;
mod sockets;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use carina_api::AppName;
use carina_dataplane::Request;
use carina_engine::counters::Value;
use carina_engine::{App, BURST, Close, LinkId, Links};
use carina_sys::Interest;
use carina_time::{Duration, Instant};

pub(crate) use self::builder::UDP_PORT;
pub use self::builder::{UdpConfig, UdpFraming};
use self::native::Native;
use self::pace::Pace;
use self::rlite::Rlite;
use self::sockets::{SocketId, Sockets};
use crate::address_resolver::{AddressResolver, Answer};
use crate::flow_table::{CREDIT_ANY, FlowTable, Names};
use crate::retries::{Due, Retries};

/// The other end of a flow, as the shim knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Address of the peer; `None` until the resolver has found it.
    address: Option<SocketAddr>,
    /// The socket whose address the peer knows.
    socket_id: SocketId,
    /// This side's number of the flow (native framing).
    own: u16,
    /// The peer's number of the flow (native framing), once it is known.
    theirs: Option<u16>,
    /// Limits the rate of datagrams to the peer (framing of rlite).
    pace: Pace,
}

enum Framing {
    Native(Native),
    Rlite(Rlite),
}

/// The app of a UDP shim.
pub(super) struct Udp {
    name: String,
    label: String,
    flows: FlowTable<Peer>,
    sockets: Sockets,
    resolver: AddressResolver,
    retries: Retries,
    framing: Framing,
    sdu_max: usize,
    is_announced: bool,
    is_removed: bool,
    now: Instant,
    stalled: VecDeque<LinkId>,
    /// Links whose pace allows no datagram for some microseconds (framing of rlite).
    paced: VecDeque<LinkId>,
}

impl Udp {
    fn credit(&self) -> (u64, usize) {
        (CREDIT_ANY, self.sdu_max)
    }

    fn handle_requests(&mut self, links: &mut Links) {
        while let Some(request) = self.flows.next_request() {
            match request {
                Request::Register(name, reader) => {
                    if reader.is_some() {
                        self.close_guessed(links);
                    }
                    self.flows.register(name, reader);
                }
                Request::Unregister(name) => self.flows.unregister(&name),
                Request::Allocate {
                    port,
                    local,
                    remote,
                    links: ends,
                    ..
                } => {
                    let names = Names { local, remote };
                    self.resolver.resolve(port, &names.remote);
                    let peer = Peer {
                        address: None,
                        socket_id: SocketId::LISTEN,
                        own: 0,
                        theirs: None,
                        pace: Pace::default(),
                    };
                    self.flows
                        .request(self.now, (port, names, ends), peer, links);
                }
                Request::Respond {
                    port,
                    answer: Ok(ends),
                } => {
                    let credit = self.credit();
                    let at = self.flows.accept(self.now, (port, ends), credit, links);
                    if let Some(at) = at {
                        self.send_acceptance(at);
                    }
                }
                Request::Respond {
                    port,
                    answer: Err(reason),
                }
                | Request::Refuse { port, reason } => {
                    let flow = self
                        .flows
                        .index_of_port(port)
                        .and_then(|at| self.flows.get_mut(at));
                    let names = flow.map(|flow| flow.names.clone());
                    if let Some((names, peer)) = names.zip(self.flows.refuse(port)) {
                        self.send_refusal(names, peer, &reason);
                    }
                }
                // Such requests are only for IPCPs that use N-1 flows.
                Request::Member(_) => {}
                Request::Remove => {
                    for at in self.flows.indices() {
                        let text = "the IPC process was destroyed";
                        self.send_close(at, text);
                        self.close_flow(at, Close::Failed(text.to_owned()), links);
                    }
                    self.sockets.flush(self.now);
                    self.is_removed = true;
                    return links.finish(self.flows.id);
                }
            }
        }
    }

    fn handle_answers(&mut self, links: &mut Links) {
        while let Some(answer) = self.resolver.answer() {
            match answer {
                Answer::Address(port, found) => {
                    let Some(at) = self.flows.index_of_port(port) else {
                        continue;
                    };
                    match found {
                        Ok(address) => self.address_resolved(at, address, links),
                        Err(error) => {
                            let reason = error.to_string();
                            tracing::debug!(target: "carina::shim::ip", reason, "address unknown");
                            self.close_flow(at, Close::Refused(reason), links);
                        }
                    }
                }
                Answer::Name(ip, name) => self.name_resolved(ip, name, links),
            }
        }
    }

    /// Sends the requests that are due, and gives up those that have timed out.
    fn send_due_requests(&mut self, links: &mut Links) {
        while let Some(due) = self.retries.poll(self.now) {
            let (Due::Send(port) | Due::GiveUp(port)) = due;
            let Some(at) = self.flows.index_of_port(port) else {
                continue;
            };
            match due {
                Due::Send(_) => self.send_request(at),
                Due::GiveUp(_) => {
                    let Some(flow) = self.flows.get_mut(at) else {
                        continue;
                    };
                    let place = flow.peer.address.map_or(String::new(), |a| a.to_string());
                    let text = format!("{place} did not answer for {}", flow.names.remote);
                    let ipcp = self.flows.ipcp;
                    tracing::info!(target: "carina::shim::ip", %ipcp, "{text}");
                    self.close_flow(at, Close::Refused(text), links);
                }
            }
        }
    }

    /// Ends a flow because the network ended it.
    fn close_flow(&mut self, at: usize, close: Close, links: &mut Links) {
        if let Some(flow) = self.flows.get_mut(at) {
            self.retries.end(flow.port);
        }
        if let Some(peer) = self.flows.close(at, close, links) {
            self.forget(peer);
        }
    }

    fn receive(&mut self, links: &mut Links) -> usize {
        let Some((socket_id, count)) = self.sockets.receive() else {
            return 0;
        };
        for at in 0..count {
            // The datagram is copied, because processing it may make this side send.
            let Some((datagram, from)) = self.sockets.datagram(socket_id, at) else {
                self.flows.row.add(Value::DropTooLong, 1);
                continue;
            };
            let Some(mut buffer) = self.flows.pool.take(datagram.len()) else {
                self.flows.row.add(Value::DropNoBuffer, 1);
                continue;
            };
            buffer.as_mut_slice().copy_from_slice(datagram);
            match self.framing {
                Framing::Native(_) => self.receive_native(from, buffer, links),
                Framing::Rlite(_) => self.receive_rlite((socket_id, from), buffer, links),
            }
        }
        count
    }

    fn drain(&mut self, link: LinkId, links: &mut Links) -> bool {
        let Some(at) = self.flows.index_of_link(link, links) else {
            return false;
        };
        let Some(peer) = self.flows.get_mut(at).map(|flow| flow.peer) else {
            return false;
        };
        let Some(to) = peer.address else { return false };
        let header = frame::sdu_header(peer.theirs.unwrap_or(0));
        let header: &[u8] = match self.framing {
            Framing::Native(_) => &header,
            Framing::Rlite(_) => &[],
        };
        let is_paced = matches!(self.framing, Framing::Rlite(_));
        let (mut moved, mut is_held_back, mut pace) = (false, true, peer.pace);
        while !is_paced || pace.has_room(self.now) {
            if self.sockets.room(peer.socket_id) == 0 {
                self.sockets.flush(self.now);
                if self.sockets.room(peer.socket_id) == 0 {
                    break;
                }
            }
            let Some(packet) = links.pop(link) else {
                is_held_back = false;
                break;
            };
            moved = true;
            if !self.flows.fits(at, &packet, self.sdu_max) {
                continue;
            }
            pace.spend(self.now);
            match self
                .sockets
                .send(self.now, (peer.socket_id, to), header, &packet)
            {
                None => self.flows.count_sent(packet.len()),
                Some(reason) => self.flows.row.add(reason, 1),
            }
        }
        if let Some(flow) = self.flows.get_mut(at) {
            flow.peer.pace = pace;
        }
        if is_held_back && links.queued(link) > 0 {
            links.leave(link);
            if !is_paced || pace.has_room(self.now) {
                self.stalled.push_back(link)
            } else {
                self.paced.push_back(link)
            }
        }
        moved
    }

    /// Handles a flow that its application has closed, after its SDUs were sent.
    fn flow_ended(&mut self, link: LinkId, links: &mut Links) {
        let reason = links
            .closed(link)
            .map_or(String::new(), |close| close.reason().to_owned());
        if let Some(at) = self.flows.index_of_link(link, links) {
            self.send_close(at, &reason);
        }
        if let Some(flow) = self.flows.take_closed(link, links) {
            self.retries.end(flow.port);
            self.forget(flow.peer);
        }
    }
}

/// Parts that differ between the framings.
impl Udp {
    fn address_resolved(&mut self, at: usize, address: SocketAddr, links: &mut Links) {
        match self.framing {
            Framing::Native(_) => self.resolved_native(at, address),
            Framing::Rlite(_) => self.resolved_rlite(at, address, links),
        }
    }

    fn name_resolved(&mut self, ip: IpAddr, name: AppName, links: &mut Links) {
        if let Framing::Rlite(_) = self.framing {
            self.named_rlite(ip, name, links);
        }
    }

    fn send_acceptance(&mut self, at: usize) {
        if let Framing::Native(_) = self.framing {
            self.send_accept(at);
        }
    }

    fn send_refusal(&mut self, names: Names, peer: Peer, reason: &str) {
        if let Framing::Native(_) = self.framing {
            self.send_refuse(names, peer, reason);
        }
        self.forget(peer);
    }

    fn send_close(&mut self, at: usize, reason: &str) {
        if let Framing::Native(_) = self.framing {
            self.send_end(at, reason);
        }
    }

    fn forget(&mut self, peer: Peer) {
        match &mut self.framing {
            Framing::Native(native) => native.forget(peer),
            Framing::Rlite(rlite) => rlite.forget(peer, self.now),
        }
        let lost = self.sockets.close(peer.socket_id);
        self.flows.row.add(Value::DropNoBuffer, lost);
    }
}

impl App for Udp {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: Instant, links: &mut Links) {
        self.now = now;
        if self.is_removed {
            return;
        }
        if !std::mem::replace(&mut self.is_announced, true) {
            self.flows.link_up(self.label.clone());
        }
        self.handle_requests(links);
        if self.is_removed {
            return;
        }
        self.sockets.poll_ready();
        self.handle_answers(links);
        self.send_due_requests(links);
        let lost = self.sockets.move_due(now);
        self.flows.row.add(Value::DropNoBuffer, lost);
        while links.next_return(self.flows.id).is_some() {}
        for link in self.paced.drain(..) {
            links.retry(link);
        }
        let had_stalled = !self.stalled.is_empty();
        if self.sockets.retry_at.is_none() {
            for link in self.stalled.drain(..) {
                links.retry(link);
            }
        }
        let room = if had_stalled { 0 } else { ROOM };
        links.set_room(self.flows.id, room);
    }

    fn pull(&mut self, now: Instant, links: &mut Links) -> bool {
        self.now = now;
        if self.is_removed {
            return false;
        }
        let mut moved = 0;
        while moved < BURST {
            match self.receive(links) {
                0 => break,
                count => moved += count,
            }
        }
        moved > 0
    }

    fn push(&mut self, now: Instant, links: &mut Links) -> bool {
        // A link may wake an app within a breath, after `prepare` of this breath.
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.flows.id) {
            moved |= self.drain(link, links);
            if links.queued(link) == 0 && links.closed(link).is_some() {
                self.flow_ended(link, links);
                links.wake(self.flows.id);
            }
        }
        moved
    }

    fn release_burst(&mut self, now: Instant, _links: &mut Links) {
        let lost = self.sockets.flush(now);
        self.flows.row.add(Value::DropLinkDown, lost as u64);
    }

    fn arm(&mut self, _now: Instant, _links: &mut Links) -> bool {
        // The last read found the socket empty. The socket wakes the app when a datagram arrives.
        self.is_removed || !self.flows.has_requests()
    }

    fn disarm(&mut self) {}

    fn next_deadline(&self) -> Option<Instant> {
        if self.is_removed {
            return None;
        }
        let waits = !self.stalled.is_empty() || !self.paced.is_empty();
        let stalled = waits.then_some(self.now + RETRY_AFTER);
        [
            self.retries.next_at(),
            self.sockets.next_deadline(),
            stalled,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let [listen, calls] = self.sockets.wait_fds();
        let resolver = self.resolver.as_fd();
        [listen, calls, resolver]
            .map(|fd| (fd, Interest::ReadEdge))
            .to_vec()
    }
}

/// Largest number of bytes that sources may put on their links in one breath. Packets that the
/// socket does not accept wait on the links.
const ROOM: u64 = 1 << 20;

/// How long to wait before datagrams that the kernel did not accept are offered again.
const RETRY_AFTER: Duration = Duration::from_micros(50);
