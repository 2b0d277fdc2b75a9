//! The shim IPC process over UDP.
//!
//! Two framings ([`UdpFraming`]). Carina's own has flow numbers and allocation by name
//! ([`frame`]). The other is that of rlite and IRATI: a datagram is an SDU and nothing else, a pair
//! of addresses is a flow, and the names of both come from the address book.

mod doors;
pub(crate) mod frame;
mod native;
mod rlite;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use carina_api::AppName;
use carina_engine::counters::Value;
use carina_engine::{App, BURST, Close, LinkId, Links};
use carina_netdev::{DatagramSocket, FaultPlan};
use carina_sys::Interest;

use self::doors::{Door, Doors};
use self::frame::SDU_HEADER_BYTES;
use self::native::Native;
use self::rlite::Rlite;
use crate::board::{Board, CREDIT_ANY, Names};
use crate::book::{Answer, Book};
use crate::hub::Order;
use crate::medium::{Boot, HubParts, Medium};
use crate::offered::Offered;
use crate::retries::{Due, Retries};

/// How SDUs lie in datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpFraming {
    /// With flow numbers and allocation by name.
    Native,
    /// Bare, as rlite and IRATI.
    Rlite,
}

/// What a UDP shim is made from.
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// How SDUs lie in datagrams.
    pub framing: UdpFraming,
    /// `HOST` or `HOST:PORT` of applications.
    pub peers: Vec<(AppName, String)>,
    /// Longest SDU in bytes.
    pub sdu_max: usize,
    /// How long a name is asked for, in ns.
    pub timeout_ns: u64,
    /// Impairment of everything sent.
    pub fault: Option<FaultPlan>,
}

impl UdpConfig {
    /// A shim that listens on `listen`, with the usual settings.
    #[must_use]
    pub fn new(listen: SocketAddr, framing: UdpFraming) -> UdpConfig {
        UdpConfig {
            listen,
            framing,
            peers: Vec::new(),
            sdu_max: UDP_SDU_MAX_DEFAULT,
            timeout_ns: 5_000_000_000,
            fault: None,
        }
    }

    /// Opens the socket: the medium for the data plane, and what its flows offer.
    ///
    /// # Errors
    /// What is wrong and what would be right.
    pub fn open(self) -> Result<(Medium, Offered), String> {
        let head = match self.framing {
            UdpFraming::Native => SDU_HEADER_BYTES,
            UdpFraming::Rlite => 0,
        };
        let limit = carina_netdev::DATAGRAM_BYTES_MAX - head;
        if !(64..=limit).contains(&self.sdu_max) {
            return Err(format!(
                "the longest SDU is {} bytes; 64 to {limit} are possible over UDP",
                self.sdu_max
            ));
        }
        if let Some(plan) = &self.fault {
            plan.check().map_err(|what| format!("fault: {what}"))?;
        }
        // Control datagrams carry two names; they fit whatever the SDUs are.
        let bytes_max = (self.sdu_max + head).max(CONTROL_BYTES_MAX);
        let socket =
            DatagramSocket::bind(self.listen, bytes_max).map_err(|error| error.to_string())?;
        let book = Book::open(self.peers.clone(), UDP_PORT)
            .map_err(|error| format!("the address book: {error}"))?;
        let orderly = |plan: &FaultPlan| plan.reorder == 0.0 && plan.jitter_ns == 0;
        // The Internet reorders, so the shim promises no order; see docs/shims.md.
        let offered = Offered {
            in_order: self.listen.ip().is_loopback() && self.fault.as_ref().is_none_or(orderly),
            ..Offered::datagrams(self.sdu_max)
        };
        Ok((
            Medium::new(UdpBoot {
                config: self,
                socket,
                book,
            }),
            offered,
        ))
    }
}

struct UdpBoot {
    config: UdpConfig,
    socket: DatagramSocket,
    book: Book,
}

impl Boot for UdpBoot {
    fn label(&self) -> String {
        format!("udp {}", self.config.listen)
    }

    fn into_app(self: Box<Self>, parts: HubParts) -> Result<Box<dyn App>, String> {
        let address = self.socket.local_address();
        let address = address.map_err(|error| format!("the UDP socket: {error}"))?;
        let plan = self.config.fault.filter(|plan| !plan.is_harmless());
        Ok(Box::new(Udp {
            name: format!("ipcp-{}", parts.ipcp),
            label: address.to_string(),
            board: Board::new(parts),
            io: Doors::new(self.socket, plan)
                .map_err(|error| format!("the UDP sockets: {error}"))?,
            book: self.book,
            retries: Retries::new(self.config.timeout_ns),
            dialect: match self.config.framing {
                UdpFraming::Native => Speech::Native(Native::new()),
                UdpFraming::Rlite => Speech::Rlite(Rlite::default()),
            },
            sdu_max: self.config.sdu_max,
            is_told: false,
            is_removed: false,
            now: 0,
            stalled: VecDeque::new(),
        }))
    }
}

/// What the shim knows of the other end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    /// Its address; `None` while the book is asked.
    address: Option<SocketAddr>,
    /// The socket that it knows.
    door: Door,
    /// This side's number of the flow (native).
    own: u16,
    /// The other side's number of the flow (native), once known.
    theirs: Option<u16>,
}

enum Speech {
    Native(Native),
    Rlite(Rlite),
}

/// The app.
pub(super) struct Udp {
    name: String,
    label: String,
    board: Board<Peer>,
    io: Doors,
    book: Book,
    retries: Retries,
    dialect: Speech,
    sdu_max: usize,
    is_told: bool,
    is_removed: bool,
    now: u64,
    stalled: VecDeque<LinkId>,
}

impl Udp {
    fn credit(&self) -> (u64, usize) {
        (CREDIT_ANY, self.sdu_max)
    }

    fn obey(&mut self, links: &mut Links) {
        while let Some(order) = self.board.next_order() {
            match order {
                Order::Register(name) => self.board.serve(name),
                Order::Unregister(name) => drop(self.board.names.remove(&name)),
                Order::Allocate {
                    port,
                    local,
                    remote,
                    wires,
                    ..
                } => {
                    let names = Names { local, remote };
                    self.book.ask_where(port, &names.remote);
                    let peer = Peer {
                        address: None,
                        door: Door::LISTEN,
                        own: 0,
                        theirs: None,
                    };
                    self.board.ask(self.now, (port, names, wires), peer, links);
                }
                Order::Respond {
                    port,
                    answer: Ok(wires),
                } => {
                    let credit = self.credit();
                    let at = self.board.accepted(self.now, (port, wires), credit, links);
                    if let Some(at) = at {
                        self.was_accepted(at);
                    }
                }
                Order::Respond {
                    port,
                    answer: Err(reason),
                }
                | Order::Refuse { port, reason } => {
                    let line = self.board.of_port(port).and_then(|at| self.board.line(at));
                    let names = line.map(|line| line.names.clone());
                    if let Some((names, peer)) = names.zip(self.board.refused(port)) {
                        self.was_refused(names, peer, &reason);
                    }
                }
                Order::Remove => {
                    for at in self.board.places() {
                        let text = "the IPC process was destroyed";
                        self.say_end(at, text);
                        self.end(at, Close::Failed(text.to_owned()), links);
                    }
                    self.io.flush(self.now);
                    self.is_removed = true;
                    return links.finish(self.board.id);
                }
            }
        }
    }

    fn hear_book(&mut self, links: &mut Links) {
        while let Some(answer) = self.book.answer() {
            match answer {
                Answer::Where(port, found) => {
                    let Some(at) = self.board.of_port(port) else {
                        continue;
                    };
                    match found {
                        Ok(address) => self.found(at, address, links),
                        Err(reason) => self.end(at, Close::Refused(reason), links),
                    }
                }
                Answer::Who(ip, name) => self.met(ip, name, links),
            }
        }
    }

    /// Asks what is due to be asked.
    fn ask(&mut self, links: &mut Links) {
        while let Some(due) = self.retries.poll(self.now) {
            let (Due::Ask(port) | Due::GiveUp(port)) = due;
            let Some(at) = self.board.of_port(port) else {
                continue;
            };
            match due {
                Due::Ask(_) => self.send_request(at),
                Due::GiveUp(_) => {
                    let Some(line) = self.board.line(at) else {
                        continue;
                    };
                    let place = line.peer.address.map_or(String::new(), |a| a.to_string());
                    let text = format!("{place} did not answer for {}", line.names.remote);
                    self.end(at, Close::Refused(text), links);
                }
            }
        }
    }

    /// Ends a flow from this side of the network.
    fn end(&mut self, at: usize, close: Close, links: &mut Links) {
        if let Some(line) = self.board.line(at) {
            self.retries.end(line.port);
        }
        if let Some(peer) = self.board.end(at, close, links) {
            self.forget(peer);
        }
    }

    fn receive(&mut self, links: &mut Links) -> usize {
        let Some((door, count)) = self.io.receive() else {
            return 0;
        };
        for at in 0..count {
            // The datagram is copied out because what it says may make this side send.
            let Some((datagram, from)) = self.io.datagram(door, at) else {
                self.board.row.add(Value::DropTooLong, 1);
                continue;
            };
            let Some(mut buffer) = self.board.pool.take(datagram.len()) else {
                self.board.row.add(Value::DropNoBuffer, 1);
                continue;
            };
            buffer.as_mut_slice().copy_from_slice(datagram);
            match self.dialect {
                Speech::Native(_) => self.receive_native(from, buffer, links),
                Speech::Rlite(_) => self.receive_rlite((door, from), buffer, links),
            }
        }
        count
    }

    fn drain(&mut self, link: LinkId, links: &mut Links) -> bool {
        let Some(at) = self.board.of_link(link, links) else {
            return false;
        };
        let Some(peer) = self.board.line(at).map(|line| line.peer) else {
            return false;
        };
        let Some(to) = peer.address else { return false };
        let header = frame::sdu_header(peer.theirs.unwrap_or(0));
        let header: &[u8] = match self.dialect {
            Speech::Native(_) => &header,
            Speech::Rlite(_) => &[],
        };
        let mut moved = false;
        loop {
            if self.io.room(peer.door) == 0 {
                self.io.flush(self.now);
                if self.io.room(peer.door) == 0 {
                    break;
                }
            }
            let Some(packet) = links.pop(link) else {
                return moved;
            };
            moved = true;
            if !self.board.fits(at, &packet, self.sdu_max) {
                continue;
            }
            match self.io.send(self.now, (peer.door, to), header, &packet) {
                None => self.board.count_sent(packet.len()),
                Some(reason) => self.board.row.add(reason, 1),
            }
        }
        if links.queued(link) > 0 {
            links.leave(link);
            self.stalled.push_back(link);
        }
        moved
    }

    /// A flow has ended from its application's side, and what it sent is on its way.
    fn flow_ended(&mut self, link: LinkId, links: &mut Links) {
        let reason = links
            .closed(link)
            .map_or(String::new(), |close| close.reason().to_owned());
        if let Some(at) = self.board.of_link(link, links) {
            self.say_end(at, &reason);
        }
        if let Some(line) = self.board.flow_ended(link, links) {
            self.retries.end(line.port);
            self.forget(line.peer);
        }
    }
}

/// What differs between the framings.
impl Udp {
    fn found(&mut self, at: usize, address: SocketAddr, links: &mut Links) {
        match self.dialect {
            Speech::Native(_) => self.found_native(at, address),
            Speech::Rlite(_) => self.found_rlite(at, address, links),
        }
    }

    fn met(&mut self, ip: IpAddr, name: AppName, links: &mut Links) {
        if let Speech::Rlite(_) = self.dialect {
            self.met_rlite(ip, name, links);
        }
    }

    fn was_accepted(&mut self, at: usize) {
        if let Speech::Native(_) = self.dialect {
            self.send_accept(at);
        }
    }

    fn was_refused(&mut self, names: Names, peer: Peer, reason: &str) {
        if let Speech::Native(_) = self.dialect {
            self.send_refuse(names, peer, reason);
        }
        self.forget(peer);
    }

    fn say_end(&mut self, at: usize, reason: &str) {
        if let Speech::Native(_) = self.dialect {
            self.send_end(at, reason);
        }
    }

    fn forget(&mut self, peer: Peer) {
        match &mut self.dialect {
            Speech::Native(native) => native.forget(peer),
            Speech::Rlite(rlite) => rlite.forget(peer, self.now),
        }
        let lost = self.io.close(peer.door);
        self.board.row.add(Value::DropNoBuffer, lost);
    }
}

impl App for Udp {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&mut self, now: u64, links: &mut Links) {
        self.now = now;
        if self.is_removed {
            return;
        }
        if !std::mem::replace(&mut self.is_told, true) {
            self.board.link_up(self.label.clone());
        }
        self.obey(links);
        if self.is_removed {
            return;
        }
        self.io.hear();
        self.hear_book(links);
        self.ask(links);
        let lost = self.io.move_due(now);
        self.board.row.add(Value::DropNoBuffer, lost);
        while links.next_return(self.board.id).is_some() {}
        let had_stalled = !self.stalled.is_empty();
        if self.io.retry_at.is_none() {
            for link in self.stalled.drain(..) {
                links.retry(link);
            }
        }
        let room = if had_stalled { 0 } else { ROOM };
        links.set_room(self.board.id, room);
    }

    fn pull(&mut self, now: u64, links: &mut Links) -> bool {
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

    fn push(&mut self, now: u64, links: &mut Links) -> bool {
        // An app that a link has woken within a breath was not prepared in it.
        self.now = now;
        let mut moved = false;
        while let Some(link) = links.next_ready(self.board.id) {
            moved |= self.drain(link, links);
            if links.queued(link) == 0 && links.closed(link).is_some() {
                self.flow_ended(link, links);
                links.wake(self.board.id);
            }
        }
        moved
    }

    fn settle(&mut self, now: u64, _links: &mut Links) {
        let lost = self.io.flush(now);
        self.board.row.add(Value::DropLinkDown, lost as u64);
    }

    fn arm(&mut self, _now: u64, _links: &mut Links) -> bool {
        // The last look at the socket found it empty, and it rings when that changes.
        self.is_removed || !self.board.has_orders()
    }

    fn disarm(&mut self) {}

    fn next_deadline(&self) -> Option<u64> {
        if self.is_removed {
            return None;
        }
        let stalled = (!self.stalled.is_empty()).then_some(self.now + RETRY_NS);
        [self.retries.next_at(), self.io.next_deadline(), stalled]
            .into_iter()
            .flatten()
            .min()
    }

    fn wait_fds(&self) -> Vec<(BorrowedFd<'_>, Interest)> {
        let [listen, calls] = self.io.wait_fds();
        let book = self.book.as_fd();
        [listen, calls, book]
            .map(|fd| (fd, Interest::ReadEdge))
            .to_vec()
    }
}

/// The UDP port of RINA over UDP.
pub(crate) const UDP_PORT: u16 = 3359;

/// Longest SDU unless configured: what fits an Ethernet frame with IPv6 and UDP in front, and what
/// rlite takes.
const UDP_SDU_MAX_DEFAULT: usize = 1452;

/// A request with two names of 255 bytes.
const CONTROL_BYTES_MAX: usize = 4 + 2 + 2 * 256;

/// Ring bytes that sources may put on their links in one breath; what the socket does not take
/// waits there.
const ROOM: u64 = 1 << 20;

/// Time after which datagrams that the kernel did not take are offered again, in ns.
const RETRY_NS: u64 = 50_000;
