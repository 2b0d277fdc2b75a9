//! The flows of a shim over a network, whatever the network: their links, their life, and what the
//! manager is told of them.
//!
//! ```text
//!            ask                 open
//!   (none) -------> Asked ------------------> Open --- end, or the application ends --> (none)
//!            offer            accept           ^
//!   (none) -------> Offered -------------------+
//!                      |  refuse, end
//!                      +--------------------> (none)
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_engine::counters::{Row, Value};
use carina_engine::{AppId, Close, LinkId, Links, Packet, Pool};
use carina_wire::pcapng::Direction;

use crate::command::Event;
use crate::hub::{Directory, Order, Orders, Place, Wires, free_port};
use crate::mailbox::Mailbox;
use crate::medium::HubParts;
use crate::tap::Taps;

/// The two names of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names {
    /// The application of this system.
    pub local: AppName,
    /// The application of the other system.
    pub remote: AppName,
}

/// How far a flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Asked of the network by this side.
    Asked,
    /// Asked by the other side; no application has accepted.
    Offered,
    /// SDUs flow.
    Open,
}

/// What holds back a piece that cannot be delivered now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The reader has no room, or is not there yet: the IPCP is visited again when it has.
    Reader,
    /// No buffer is free, of which nobody tells when one is.
    Buffer,
}

/// A flow; `X` is what the network knows it by.
pub(crate) struct Line<X> {
    pub port: PortId,
    pub names: Names,
    pub stage: Stage,
    /// The other side asked for it.
    pub is_passive: bool,
    /// When it began, or was opened, in ns.
    pub since: u64,
    pub peer: X,
    wires: Option<Wires>,
    /// SDUs that came before there was an application to take them.
    waiting: VecDeque<Packet>,
    /// The last packet of the application was a piece of an SDU that is too long.
    is_in_pieces: bool,
}

/// All flows of one IPCP.
pub(crate) struct Board<X> {
    pub id: AppId,
    pub ipcp: IpcpId,
    pub row: Row,
    /// Names registered here.
    pub names: BTreeSet<AppName>,
    pub pool: Pool,
    /// Captures of SDUs.
    pub taps: Taps,
    orders: Orders,
    events: Mailbox<Event>,
    directory: Directory,
    slots: Vec<Option<Line<X>>>,
    free: Vec<usize>,
    by_port: HashMap<PortId, usize>,
}

impl<X> Board<X> {
    /// No flows yet.
    pub fn new(parts: HubParts) -> Board<X> {
        Board {
            id: parts.id,
            ipcp: parts.ipcp,
            row: parts.row,
            names: BTreeSet::new(),
            pool: parts.pool,
            taps: parts.taps,
            orders: parts.orders,
            events: parts.events,
            directory: parts.directory,
            slots: Vec::new(),
            free: Vec::new(),
            by_port: HashMap::new(),
        }
    }

    /// Takes a name in, and tells the manager that it is served.
    pub fn serve(&mut self, name: AppName) {
        self.names.insert(name.clone());
        let ipcp = self.ipcp;
        self.events.put(Event::Registered { ipcp, name });
    }

    /// The next order of the plane.
    pub fn next_order(&self) -> Option<Order> {
        self.orders.borrow_mut().pop_front()
    }

    /// Whether orders wait.
    pub fn has_orders(&self) -> bool {
        !self.orders.borrow().is_empty()
    }

    /// Tells the manager that the medium is there.
    pub fn link_up(&mut self, label: String) {
        self.row.add(Value::LinksUp, 1);
        let (ipcp, peer) = (self.ipcp, label);
        self.events.put(Event::LinkUp { ipcp, peer });
    }

    /// Tells the manager that the medium is gone. The flows are to be failed by the caller.
    pub fn link_down(&mut self, reason: String) {
        self.row.add(Value::LinksDown, 1);
        let ipcp = self.ipcp;
        self.events.put(Event::LinkDown { ipcp, reason });
    }

    /// Tells the manager how long an SDU may be from here on.
    pub fn carries(&mut self, sdu_bytes_max: usize) {
        let ipcp = self.ipcp;
        self.events.put(Event::Carries {
            ipcp,
            sdu_bytes_max,
        });
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.by_port.len()
    }

    #[inline]
    pub fn line(&mut self, at: usize) -> Option<&mut Line<X>> {
        self.slots.get_mut(at)?.as_mut()
    }

    /// The place of a port.
    pub fn of_port(&self, port: PortId) -> Option<usize> {
        self.by_port.get(&port).copied()
    }

    /// The place of the flow whose application writes to `link`.
    #[inline]
    pub fn of_link(&self, link: LinkId, links: &Links) -> Option<usize> {
        let at = (links.tag(link) as usize).checked_sub(1)?;
        let wires = self.slots.get(at)?.as_ref()?.wires?;
        (wires.from_flow == link).then_some(at)
    }

    /// The places of all flows.
    pub fn places(&self) -> Vec<usize> {
        self.by_port.values().copied().collect()
    }

    fn insert(&mut self, line: Line<X>) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.by_port.insert(line.port, at);
        self.slots[at] = Some(line);
        at
    }

    fn remove(&mut self, at: usize) -> Option<Line<X>> {
        let line = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        self.by_port.remove(&line.port);
        Some(line)
    }

    /// An application of this system asks for a flow.
    pub fn ask(
        &mut self,
        now: u64,
        (port, names, wires): (PortId, Names, Wires),
        peer: X,
        links: &mut Links,
    ) -> usize {
        let at = self.insert(Line {
            port,
            names,
            stage: Stage::Asked,
            is_passive: false,
            since: now,
            peer,
            wires: Some(wires),
            waiting: VecDeque::new(),
            is_in_pieces: false,
        });
        links.set_tag(wires.to_flow, at as u32 + 1);
        links.set_tag(wires.from_flow, at as u32 + 1);
        at
    }

    /// The other side asks for a flow: tells the manager. `None` when there are too many.
    pub fn offer(&mut self, now: u64, names: Names, peer: X) -> Option<usize> {
        if self.len() >= LINES_MAX {
            self.row.add(Value::DropNoBuffer, 1);
            return None;
        }
        let port = free_port(&self.directory);
        let Names { local, remote } = names.clone();
        let name = format!("{local} < {remote} via ipcp {}", self.ipcp);
        let place = Place::offered(self.ipcp, name);
        self.directory.borrow_mut().insert(port, place);
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec: FlowSpec::unreliable(),
        });
        Some(self.insert(Line {
            port,
            names,
            stage: Stage::Offered,
            is_passive: true,
            since: now,
            peer,
            wires: None,
            waiting: VecDeque::new(),
            is_in_pieces: false,
        }))
    }

    /// The other side has said yes: SDUs may flow, and the manager is told.
    pub fn answered(&mut self, now: u64, at: usize, credit: (u64, usize), links: &mut Links) {
        self.open(now, at, credit, links);
        if let Some(port) = self.line(at).map(|line| line.port) {
            let result = Ok(());
            self.events.put(Event::AllocateResult { port, result });
        }
    }

    /// An application has taken an offered flow. `None` when that has ended in the meantime, which
    /// the manager has been told; the application's end is closed then.
    pub fn accepted(
        &mut self,
        now: u64,
        (port, wires): (PortId, Wires),
        credit: (u64, usize),
        links: &mut Links,
    ) -> Option<usize> {
        let place = self.of_port(port);
        let Some((at, line)) = place.and_then(|at| Some((at, self.line(at)?))) else {
            links.close(
                wires.to_flow,
                Close::Refused("the request is gone".to_owned()),
            );
            links.disconnect(wires.from_flow);
            self.directory.borrow_mut().remove(&port);
            return None;
        };
        line.wires = Some(wires);
        links.set_tag(wires.to_flow, at as u32 + 1);
        links.set_tag(wires.from_flow, at as u32 + 1);
        self.open(now, at, credit, links);
        Some(at)
    }

    fn open(&mut self, now: u64, at: usize, credit: (u64, usize), links: &mut Links) {
        let Some(line) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let Some(wires) = line.wires else { return };
        line.stage = Stage::Open;
        line.since = now;
        links.set_credit(wires.from_flow, credit.0, credit.1);
        self.row.add(Value::FlowsOpened, 1);
        for packet in std::mem::take(&mut line.waiting) {
            self.pass_on(at, packet, links);
        }
    }

    /// Gives an SDU to the flow's application, or keeps it until there is one. A reader that is too
    /// slow loses it: a datagram network holds nobody back.
    #[inline]
    pub fn deliver(&mut self, at: usize, packet: Packet, links: &mut Links) {
        self.taps.note(Direction::In, &[], &packet);
        self.pass_on(at, packet, links);
    }

    #[inline]
    fn pass_on(&mut self, at: usize, mut packet: Packet, links: &mut Links) {
        let Some(line) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let Some(wires) = line.wires.filter(|_| line.stage == Stage::Open) else {
            let fits = line.waiting.len() < WAITING_MAX && packet.materialise(&self.pool);
            match fits {
                true => line.waiting.push_back(packet),
                false => self.row.add(Value::DropNoBuffer, 1),
            }
            return;
        };
        let bytes = packet.len();
        if !links.may_push(wires.to_flow, bytes) {
            self.row.add(Value::DropRingFull, 1);
        } else if links.push(wires.to_flow, packet).is_err() {
            self.row.add(Value::DropFlowEnded, 1);
        } else {
            self.row.add(Value::SdusIn, 1);
            self.row.add(Value::BytesIn, bytes as u64);
        }
    }

    /// Gives the application the first bytes of a frame, as many as its room and its link's piece
    /// allow; `more` when more of the SDU follows behind the frame.
    ///
    /// # Errors
    /// What holds it back: nothing is lost.
    pub fn deliver_piece(
        &mut self,
        at: usize,
        bytes: &[u8],
        more: bool,
        links: &mut Links,
    ) -> Result<usize, Held> {
        let line = self.slots.get_mut(at).and_then(Option::as_mut);
        let open = line.filter(|line| line.stage == Stage::Open);
        let wires = open.and_then(|line| line.wires).ok_or(Held::Reader)?;
        let to_flow = wires.to_flow;
        let piece = bytes.len().min(links.piece_max(to_flow));
        // A link that has ended takes everything, and nobody misses it.
        if links.closed(to_flow).is_none() && !links.may_push(to_flow, piece) {
            return Err(Held::Reader);
        }
        let is_last = piece == bytes.len() && !more;
        let packet = Packet::copy_of(&bytes[..piece], &self.pool).map(|mut packet| {
            packet.set_more(!is_last);
            packet
        });
        let packet = packet.ok_or(Held::Buffer)?;
        if links.push(to_flow, packet).is_err() {
            self.row.add(Value::DropFlowEnded, 1);
        } else {
            let value = if is_last {
                Value::SdusIn
            } else {
                Value::PiecesIn
            };
            self.row.add(value, 1);
            self.row.add(Value::BytesIn, piece as u64);
        }
        Ok(piece)
    }

    /// Whether a packet of the application is an SDU that fits into `sdu_bytes_max`; one that does
    /// not comes in pieces, and is counted as lost with the last.
    #[inline]
    pub fn fits(&mut self, at: usize, packet: &Packet, sdu_bytes_max: usize) -> bool {
        let Some(line) = self.slots.get_mut(at).and_then(Option::as_mut) else {
            return false;
        };
        let is_start = !std::mem::replace(&mut line.is_in_pieces, packet.more());
        let fits = is_start && !packet.more() && packet.len() <= sdu_bytes_max;
        match fits {
            true => self.taps.note(Direction::Out, &[], packet),
            // Once for each SDU, however many pieces it came in.
            false => self.row.add(Value::DropTooLong, u64::from(!packet.more())),
        }
        fits
    }

    /// Counts an SDU that was sent.
    #[inline]
    pub fn count_sent(&self, bytes: usize) {
        self.row.add(Value::SdusOut, 1);
        self.row.add(Value::BytesOut, bytes as u64);
    }

    /// An application's request came to nothing before there was a line for it.
    pub fn deny(&mut self, port: PortId, wires: Wires, reason: String, links: &mut Links) {
        links.close(wires.to_flow, Close::Refused(reason.clone()));
        links.disconnect(wires.from_flow);
        self.directory.borrow_mut().remove(&port);
        let result = Err(reason);
        self.events.put(Event::AllocateResult { port, result });
    }

    /// Ends a flow from the side of the network: its application, or the manager, is told.
    pub fn end(&mut self, at: usize, close: Close, links: &mut Links) -> Option<X> {
        let line = self.remove(at)?;
        let lost = line.waiting.len() as u64;
        self.row.add(Value::DropFlowEnded, lost);
        match (line.stage, line.wires) {
            (Stage::Asked, Some(wires)) => {
                self.deny(line.port, wires, close.reason().to_owned(), links);
            }
            (_, Some(wires)) => {
                self.row.add(Value::FlowsClosed, 1);
                links.close(wires.to_flow, close);
                let lost = links.disconnect(wires.from_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            (_, None) => {
                self.directory.borrow_mut().remove(&line.port);
                let (port, reason) = (line.port, close.reason().to_owned());
                self.events.put(Event::FlowClosed { port, reason });
            }
        }
        Some(line.peer)
    }

    /// The application has ended its flow, and what it sent was taken off the link.
    pub fn flow_ended(&mut self, link: LinkId, links: &mut Links) -> Option<Line<X>> {
        let line = self.of_link(link, links).and_then(|at| self.remove(at));
        if let Some(line) = &line
            && let Some(wires) = line.wires
        {
            let lost = links.disconnect(wires.to_flow);
            self.row.add(Value::DropFlowEnded, lost as u64);
            self.row.add(Value::FlowsClosed, 1);
        }
        links.disconnect(link);
        line
    }

    /// The manager says no to an offered flow, or nobody wants it any more.
    pub fn refused(&mut self, port: PortId) -> Option<X> {
        let at = self.of_port(port)?;
        if self.line(at)?.stage != Stage::Offered {
            return None;
        }
        let line = self.remove(at)?;
        self.directory.borrow_mut().remove(&port);
        let lost = line.waiting.len() as u64;
        self.row.add(Value::DropFlowEnded, lost);
        Some(line.peer)
    }

    /// States the credit of one flow anew.
    pub fn set_credit(&mut self, at: usize, credit: (u64, usize), links: &mut Links) {
        if let Some(wires) = self.line(at).and_then(|line| line.wires) {
            links.set_credit(wires.from_flow, credit.0, credit.1);
        }
    }

    /// States the credit of all open flows anew.
    pub fn restate_credit(&mut self, credit: (u64, usize), links: &mut Links) {
        for line in self.slots.iter().flatten() {
            if let Some(wires) = line.wires.filter(|_| line.stage == Stage::Open) {
                links.set_credit(wires.from_flow, credit.0, credit.1);
            }
        }
    }
}

/// Credit of a flow over a network that holds nobody back: the room of the device does.
pub(crate) const CREDIT_ANY: u64 = u64::MAX / 2;

/// SDUs that wait for an application to accept a flow.
const WAITING_MAX: usize = 64;

/// Flows of one shim: whoever can send can ask for any number of them.
const LINES_MAX: usize = 4096;
