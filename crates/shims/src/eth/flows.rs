//! The flows of an Ethernet shim: one per station, and where its SDUs go.

use std::collections::{HashMap, VecDeque};

use carina_api::{AppName, FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet};
use carina_wire::ether::Mac;

use super::{Caller, Eth};
use crate::command::Event;
use crate::hub::{Place, Wires, free_port};

/// A flow, asked for by this side or the other.
pub(super) struct Line {
    /// Its place in [`Lines`]; links are tagged with it plus one.
    at: usize,
    pub mac: Mac,
    pub port: PortId,
    pub names: Caller,
    /// The station asked for it.
    pub is_passive: bool,
    /// Absent until the application has accepted.
    pub wires: Option<Wires>,
    /// SDUs that came before that.
    waiting: VecDeque<Packet>,
    /// The last packet was a piece of an SDU that is too long.
    pub is_in_pieces: bool,
    since: u64,
}

/// All flows.
#[derive(Default)]
pub(super) struct Lines {
    slots: Vec<Option<Line>>,
    free: Vec<usize>,
    by_mac: HashMap<Mac, usize>,
    by_port: HashMap<PortId, usize>,
    /// The station of the last SDU: most come in bursts.
    last: Option<(Mac, usize)>,
    /// The manager knows that the interface is down.
    pub was_told: bool,
}

impl Lines {
    fn insert(&mut self, mac: Mac, port: PortId, names: Caller, wires: Option<Wires>, now: u64) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(Line {
            at,
            mac,
            port,
            names,
            is_passive: wires.is_none(),
            wires,
            waiting: VecDeque::new(),
            is_in_pieces: false,
            since: now,
        });
        self.by_mac.insert(mac, at);
        self.by_port.insert(port, at);
    }

    fn of_mac(&mut self, mac: Mac) -> Option<usize> {
        if let Some((last, at)) = self.last
            && last == mac
        {
            return Some(at);
        }
        let at = *self.by_mac.get(&mac)?;
        self.last = Some((mac, at));
        Some(at)
    }

    fn get(&mut self, at: usize) -> Option<&mut Line> {
        self.slots.get_mut(at)?.as_mut()
    }

    fn remove(&mut self, at: usize) -> Option<Line> {
        let line = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        self.by_mac.remove(&line.mac);
        self.by_port.remove(&line.port);
        self.last = None;
        Some(line)
    }

    pub fn of_port(&self, port: PortId) -> Option<usize> {
        self.by_port.get(&port).copied()
    }

    /// Takes the flow out that has this tag and link, to be put back.
    pub fn take_by_link(&mut self, tag: u32, link: LinkId) -> Option<Line> {
        let slot = self.slots.get_mut((tag as usize).checked_sub(1)?)?;
        let is_its = |wires: Wires| wires.from_flow == link;
        match slot.as_ref()?.wires.is_some_and(is_its) {
            true => slot.take(),
            false => None,
        }
    }

    pub fn put_back(&mut self, line: Line) {
        let at = line.at;
        self.slots[at] = Some(line);
    }

    fn places(&self) -> Vec<usize> {
        self.by_port.values().copied().collect()
    }
}

impl Eth {
    /// Delivers an SDU of a station.
    pub(super) fn receive_sdu(&mut self, from: Mac, packet: Packet, links: &mut Links) {
        let Some(at) = self.lines.of_mac(from) else {
            return self.first_sdu(from, packet);
        };
        let Some(line) = self.lines.get(at) else {
            return;
        };
        match line.wires {
            Some(wires) => {
                let bytes = packet.len() as u64;
                // A reader that is too slow loses SDUs: nothing holds the sender back.
                if !links.may_push(wires.to_flow, packet.len()) {
                    self.row.add(Value::DropRingFull, 1);
                } else if links.push(wires.to_flow, packet).is_err() {
                    self.row.add(Value::DropFlowEnded, 1);
                } else {
                    self.row.add(Value::SdusIn, 1);
                    self.row.add(Value::BytesIn, bytes);
                }
            }
            None => Self::hold(line, packet, &self.pool, &self.row),
        }
    }

    /// Keeps an SDU until the flow is accepted.
    fn hold(
        line: &mut Line,
        mut packet: Packet,
        pool: &carina_engine::Pool,
        row: &carina_engine::counters::Row,
    ) {
        if line.waiting.len() >= WAITING_MAX || !packet.materialise(pool) {
            row.add(Value::DropNoBuffer, 1);
        } else {
            line.waiting.push_back(packet);
        }
    }

    /// The first SDU of a station begins a flow.
    fn first_sdu(&mut self, from: Mac, packet: Packet) {
        if !self.is_up || self.stations.is_late(from, self.now) {
            return self.row.add(Value::DropFlowEnded, 1);
        }
        let asked = self.stations.caller(from).cloned();
        let is_known = |caller: &Caller| self.names.contains(&caller.local);
        // A station that this side has forgotten, such as by a restart: it means whoever is here.
        let anyone = || {
            let local = self.names.first()?.clone();
            let remote = AppName::new(format!("station {from}")).ok()?;
            Some(Caller { remote, local })
        };
        let Some(names) = asked.filter(is_known).or_else(anyone) else {
            return self.row.add(Value::DropUnknownChannel, 1);
        };
        if self.lines.by_mac.len() >= LINES_MAX {
            return self.row.add(Value::DropNoBuffer, 1);
        }
        let port = free_port(&self.directory, &mut self.next_port);
        let Caller { remote, local } = names.clone();
        let name = format!("{local} < {remote} via ipcp {}", self.ipcp);
        let place = Place::offered(self.ipcp, name);
        self.directory.borrow_mut().insert(port, place);
        self.lines.insert(from, port, names, None, self.now);
        self.events.put(Event::IncomingFlow {
            ipcp: self.ipcp,
            port,
            local,
            remote,
            spec: FlowSpec::unreliable(),
        });
        if let Some(line) = self.lines.of_port(port).and_then(|at| self.lines.get(at)) {
            Self::hold(line, packet, &self.pool, &self.row);
        }
    }

    /// A station asks for a flow to a name here.
    pub(super) fn called(&mut self, from: Mac, caller: Caller, links: &mut Links) {
        let now = self.now;
        // The station would not ask for a flow that it has: the old one has ended there. A question
        // that was repeated and comes late says nothing.
        if let Some(at) = self.lines.of_mac(from)
            && let Some(line) = self.lines.get(at)
            && line.is_passive
            && line.names == caller
            && now.saturating_sub(line.since) > SETTLED_NS
        {
            let close = Close::Graceful(format!("{} has begun anew", caller.remote));
            self.end_line(at, close, links);
        }
        self.stations.called(from, caller);
    }

    /// A station has answered for a name.
    pub(super) fn answered(
        &mut self,
        from: Mac,
        remote: &AppName,
        local: &AppName,
        links: &mut Links,
    ) {
        let Some(question) = self.resolver.answered(remote.as_str(), local.as_str()) else {
            return;
        };
        if let Some(at) = self.lines.of_mac(from)
            && let Some(line) = self.lines.get(at)
        {
            if line.wires.is_some() {
                let (mac, names) = (line.mac, line.names.clone());
                let reason = format!(
                    "{remote} is at {mac}, with which there is a flow already (from {} to {}); \
                     Ethernet has one per pair of stations",
                    names.local, names.remote
                );
                return self.deny(question.port, question.wires, reason, links);
            }
            // Both sides asked at once: one flow is enough, and here is one that is wanted.
            let close = Close::Failed(format!("{local} has a flow to {remote} of its own"));
            self.end_line(at, close, links);
        }
        self.stations.flow_begins(from);
        let names = Caller {
            remote: remote.clone(),
            local: local.clone(),
        };
        let (port, wires) = (question.port, question.wires);
        self.lines.insert(from, port, names, Some(wires), self.now);
        self.open(port, links);
        self.events.put(Event::AllocateResult {
            port,
            result: Ok(()),
        });
    }

    /// Lets SDUs flow over a line that has its links.
    fn open(&mut self, port: PortId, links: &mut Links) {
        let sdu_max = self.nic.sdu_bytes_max();
        let Some(line) = self.lines.of_port(port).and_then(|at| self.lines.get(at)) else {
            return;
        };
        let Some(wires) = line.wires else { return };
        let tag = line.at as u32 + 1;
        links.set_tag(wires.to_flow, tag);
        links.set_tag(wires.from_flow, tag);
        links.set_credit(wires.from_flow, CREDIT, sdu_max);
        self.row.add(Value::FlowsOpened, 1);
        for packet in std::mem::take(&mut line.waiting) {
            if !links.may_push(wires.to_flow, packet.len()) {
                self.row.add(Value::DropRingFull, 1);
                continue;
            }
            let bytes = packet.len() as u64;
            if links.push(wires.to_flow, packet).is_ok() {
                self.row.add(Value::SdusIn, 1);
                self.row.add(Value::BytesIn, bytes);
            }
        }
    }

    /// The application has taken a flow that a station began.
    pub(super) fn accepted(&mut self, port: PortId, wires: Wires, links: &mut Links) -> bool {
        let Some(line) = self.lines.of_port(port).and_then(|at| self.lines.get(at)) else {
            return false;
        };
        line.wires = Some(wires);
        self.open(port, links);
        true
    }

    /// The interface has another MTU.
    pub(super) fn restate_credit(&mut self, links: &mut Links) {
        let sdu_max = self.nic.sdu_bytes_max();
        for at in self.lines.places() {
            if let Some(wires) = self.lines.get(at).and_then(|line| line.wires) {
                links.set_credit(wires.from_flow, CREDIT, sdu_max);
            }
        }
    }

    /// Ends a flow from this side's IPCP.
    pub(super) fn end_line(&mut self, at: usize, close: Close, links: &mut Links) {
        let Some(line) = self.lines.remove(at) else {
            return;
        };
        match line.wires {
            Some(wires) => {
                self.row.add(Value::FlowsClosed, 1);
                links.close(wires.to_flow, close);
                let lost = links.disconnect(wires.from_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            None => {
                self.directory.borrow_mut().remove(&line.port);
                let lost = line.waiting.len() as u64;
                self.row.add(Value::DropFlowEnded, lost);
                self.events.put(Event::FlowClosed {
                    port: line.port,
                    reason: close.reason().to_owned(),
                });
            }
        }
    }

    /// A flow has ended from its application's side, and what it sent is in the ring.
    pub(super) fn flow_ended(&mut self, link: LinkId, links: &mut Links) {
        if let Some(port) = self.resolver.by_link(link) {
            self.resolver.take(port);
        }
        let tag = links.tag(link);
        if let Some(line) = self.lines.take_by_link(tag, link) {
            let (at, mac) = (line.at, line.mac);
            if let Some(wires) = line.wires {
                let lost = links.disconnect(wires.to_flow);
                self.row.add(Value::DropFlowEnded, lost as u64);
            }
            self.lines.put_back(line);
            self.lines.remove(at);
            self.stations.flow_ended(mac, self.now);
            self.row.add(Value::FlowsClosed, 1);
        }
        links.disconnect(link);
    }

    /// Ends a flow that no application has taken.
    pub(super) fn refused(&mut self, port: PortId) {
        let Some(at) = self.lines.of_port(port) else {
            return;
        };
        if self.lines.get(at).is_some_and(|line| line.wires.is_none())
            && let Some(line) = self.lines.remove(at)
        {
            self.directory.borrow_mut().remove(&port);
            self.row
                .add(Value::DropFlowEnded, line.waiting.len() as u64);
            self.stations.flow_ended(line.mac, self.now);
        }
    }

    /// The medium is gone: so are all flows and questions.
    pub(super) fn fail_all(&mut self, reason: &str, links: &mut Links) {
        while let Some(question) = self.resolver.pop() {
            self.deny(question.port, question.wires, reason.to_owned(), links);
        }
        for at in self.lines.places() {
            self.end_line(at, Close::Failed(reason.to_owned()), links);
        }
        self.stalled.clear();
    }
}

/// Credit of a flow: Ethernet holds nobody back, the room of the ring does.
const CREDIT: u64 = u64::MAX / 2;

/// SDUs that wait for an application to accept a flow.
const WAITING_MAX: usize = 64;

/// Flows of one shim.
const LINES_MAX: usize = 4096;

/// Age from which on a flow is not the one that a repeated question is about, in ns.
const SETTLED_NS: u64 = 1_000_000_000;
