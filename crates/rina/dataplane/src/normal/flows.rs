//! The flows that a normal IPCP provides: moving SDUs, the room of readers, and how flows end.

use std::collections::VecDeque;

use carina_api::{FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet, record_cost};
use carina_ipcp::{Command, FlowKey};
use carina_wire::Payload;

use super::Normal;
use crate::flow::cut;
use crate::ipcp_app::FlowLinks;

/// A flow that the IPCP provides.
pub(super) struct NormalFlow {
    pub port: PortId,
    pub state: FlowState,
    pub links: Option<FlowLinks>,
    /// Whether every SDU must arrive.
    is_lossless: bool,
    /// Ring bytes put on the link toward the reader, and how many of them the reader has consumed.
    delivered: u64,
    consumed: u64,
    /// SDUs for which the reader had no room.
    held: VecDeque<Packet>,
    held_bytes: usize,
    /// Payload bytes and ring bytes of recently delivered SDUs. Their ratio estimates the cost of
    /// small SDUs.
    recent: (u64, u64),
    /// The reader's room in bytes as the IPCP's state machine assumes it: the room last reported,
    /// minus the bytes delivered since.
    stated: usize,
    /// How to close the flow once `held` is delivered.
    ending: Option<Close>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowState {
    /// An application of this system has requested the flow; the remote application has not
    /// accepted or refused it yet.
    Requested,
    /// A remote application has requested the flow; the application of this system has not accepted
    /// or refused it yet.
    Offered,
    Open,
    /// The flow has ended, but the application of this system has not received all SDUs.
    Ending,
}

impl NormalFlow {
    pub(super) fn new(
        port: PortId,
        state: FlowState,
        links: Option<FlowLinks>,
        spec: &FlowSpec,
    ) -> NormalFlow {
        NormalFlow {
            port,
            state,
            links,
            is_lossless: spec.max_loss == 0 || spec.max_sdu_gap == 0,
            delivered: 0,
            consumed: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            recent: (0, 0),
            stated: 0,
            ending: None,
        }
    }

    /// Ring bytes that the reader has room for.
    fn room(&self) -> u64 {
        let window = self.links.map_or(0, |ends| ends.window);
        window.saturating_sub(self.delivered - self.consumed)
    }

    /// The room of the reader to report to the machine, in bytes of SDUs. The reader's ring also
    /// needs room for record headers, which dominate when SDUs are small.
    fn payload_room(&mut self) -> usize {
        let (payload, cost) = self.recent;
        let share = if cost > 0 { payload.max(1) } else { 1 };
        let room = self.room() * share / cost.max(1);
        if cost > ROOM_SAMPLE {
            self.recent = (payload / 2, cost / 2);
        }
        let room = (room as usize).saturating_sub(self.held_bytes);
        let is_empty = self.held.is_empty() && self.delivered == self.consumed;
        match (self.is_lossless, self.held.is_empty()) {
            // A piece longer than the whole ring is held here, and moved to the ring part by part.
            (true, _) if is_empty => room.max(OVERHANG),
            (false, true) if room > 0 => room.max(OVERHANG),
            _ => room,
        }
    }

    /// Puts a packet on the link if the reader has room for it; otherwise returns it.
    fn push(&mut self, packet: Packet, links: &mut Links) -> Result<(), Packet> {
        let Some(ends) = self.links else {
            return Err(packet);
        };
        let cost = record_cost(packet.len());
        if cost > self.room() {
            return Err(packet);
        }
        self.delivered += cost;
        // An empty SDU counts as one byte; in a PDU it also has at least one, its header.
        self.recent.0 += packet.len().max(1) as u64;
        self.recent.1 += cost;
        links.push(ends.to_flow, packet)
    }
}

impl Normal {
    pub(super) fn flow(&self, key: FlowKey) -> Option<&NormalFlow> {
        self.flows.get(key.0 as usize)?.as_ref()
    }

    pub(super) fn flow_mut(&mut self, key: FlowKey) -> Option<&mut NormalFlow> {
        self.flows.get_mut(key.0 as usize)?.as_mut()
    }

    pub(super) fn insert_flow(&mut self, key: FlowKey, flow: NormalFlow, links: &mut Links) {
        let index = key.0 as usize;
        if self.flows.len() <= index {
            self.flows.resize_with(index + 1, || None);
        }
        if let Some(ends) = flow.links {
            self.set_cookies(key, ends, links);
        }
        // The machine reuses the key of an ended flow while its reader may still be reading.
        let old = self.remove_flow(key);
        self.keys.insert(flow.port, key);
        self.flows[index] = Some(flow);
        match old {
            Some(old) if old.state == FlowState::Ending && !old.held.is_empty() => {
                self.lingering.push(old);
            }
            Some(old) => self.end_flow(old, links),
            None => {}
        }
    }

    pub(super) fn remove_flow(&mut self, key: FlowKey) -> Option<NormalFlow> {
        let flow = self.flows.get_mut(key.0 as usize)?.take()?;
        if self.keys.get(&flow.port) == Some(&key) {
            self.keys.remove(&flow.port);
        }
        Some(flow)
    }

    /// Sets the cookies of a flow's links, and schedules a report of the reader's room.
    pub(super) fn set_cookies(&mut self, key: FlowKey, ends: FlowLinks, links: &mut Links) {
        links.set_source_cookie(ends.to_flow, key.0 + 1);
        links.set_sink_cookie(ends.from_flow, key.0 + 1);
        self.touched.push(key);
    }

    /// Passes everything that a flow's writer has sent to the machine. Returns whether there was
    /// any.
    pub(super) fn drain_flow(&mut self, link: LinkId, links: &mut Links) -> bool {
        let is_writer = |flow: &&NormalFlow| {
            flow.state == FlowState::Open && flow.links.is_some_and(|w| w.from_flow == link)
        };
        let key = key_of(links.sink_cookie(link))
            .filter(|key| self.flow(*key).filter(is_writer).is_some());
        let (mut bytes, mut sdus, mut pieces) = (0, 0, 0);
        let written = std::iter::from_fn(|| {
            let mut packet = links.pop(link)?;
            let more = packet.more();
            // The machine gets the flag `more` separately. PDUs made of the packet are whole
            // packets.
            packet.set_more(false);
            bytes += packet.len() as u64;
            if more {
                pieces += 1
            } else {
                sdus += 1
            }
            Some((packet, more))
        });
        match key {
            Some(key) => self.machine.on_sdus(self.now, key, written),
            None => {
                let lost = written.count() as u64;
                self.row.add(Value::DropFlowEnded, lost);
            }
        }
        let moved = sdus + pieces > 0;
        if let (true, Some(key)) = (moved, key) {
            self.roomy.push(key);
            self.row.add(Value::SdusOut, sdus);
            self.row.add(Value::PiecesOut, pieces);
            self.row.add(Value::BytesOut, bytes);
        }
        if let Some(close) = links.closed(link).cloned() {
            self.writer_ended(link, key, &close, links);
        }
        moved
    }

    /// Handles a flow that its user has closed, after everything it sent was passed to the machine.
    fn writer_ended(
        &mut self,
        link: LinkId,
        key: Option<FlowKey>,
        close: &Close,
        links: &mut Links,
    ) {
        links.disconnect(link);
        // The key of a flow whose allocation is pending is not known from the cookie.
        let key = key.or_else(|| {
            let index = self.flows.iter().position(|flow| {
                flow.as_ref()
                    .is_some_and(|flow| flow.links.is_some_and(|w| w.from_flow == link))
            })?;
            Some(FlowKey(index as u32))
        });
        let Some((key, flow)) = key.and_then(|key| Some((key, self.remove_flow(key)?))) else {
            return self.lingering_ended(link, links);
        };
        if let Some(ends) = flow.links {
            let lost = links.disconnect(ends.to_flow) + flow.held.len();
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        if flow.state != FlowState::Ending {
            self.row.add(Value::FlowsClosed, 1);
            let reason = match close {
                Close::Graceful(_) => String::new(),
                other => other.reason().to_owned(),
            };
            self.machine
                .handle(self.now, Command::Deallocate { flow: key, reason });
        }
        links.wake(self.id);
    }

    /// Handles a lingering flow that its user has closed.
    fn lingering_ended(&mut self, link: LinkId, links: &mut Links) {
        let is_writer = |flow: &NormalFlow| flow.links.is_some_and(|ends| ends.from_flow == link);
        let Some(at) = self.lingering.iter().position(is_writer) else {
            return;
        };
        let flow = self.lingering.swap_remove(at);
        if let Some(ends) = flow.links {
            let lost = links.disconnect(ends.to_flow) + flow.held.len();
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        links.wake(self.id);
    }

    /// Moves SDUs from the machine to their readers. Returns whether there were any.
    pub(super) fn deliver(&mut self, links: &mut Links) -> bool {
        let (mut moved, mut bytes, mut sdus, mut pieces) = (false, 0, 0, 0);
        while let Some(delivery) = self.machine.poll_deliver() {
            moved = true;
            let (key, mut packet) = (delivery.flow, delivery.sdu);
            packet.set_more(delivery.more);
            bytes += packet.len() as u64;
            if delivery.more {
                pieces += 1
            } else {
                sdus += 1
            }
            self.deliver_one(key, packet, links);
        }
        if moved {
            self.row.add(Value::SdusIn, sdus);
            self.row.add(Value::PiecesIn, pieces);
            self.row.add(Value::BytesIn, bytes);
        }
        moved
    }

    fn deliver_one(&mut self, key: FlowKey, packet: Packet, links: &mut Links) {
        let Some(flow) = self.flows.get_mut(key.0 as usize).and_then(Option::as_mut) else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
        flow.stated = flow.stated.saturating_sub(packet.len());
        let Some(ends) = flow.links else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        let piece_max = links.piece_max(ends.to_flow);
        let packet = if flow.held.is_empty() && packet.len() <= piece_max {
            match flow.push(packet, links) {
                Ok(()) => return,
                Err(packet) => packet,
            }
        } else {
            packet
        };
        let held_max = (ends.window as usize).max(2 * OVERHANG);
        if !flow.is_lossless && flow.held_bytes + packet.len() > held_max {
            return self.row.add(Value::DropRingFull, 1);
        }
        match hold(flow, packet, piece_max) {
            Ok(()) => flush(flow, links),
            Err(NoBuffer) => {
                self.row.add(Value::DropNoBuffer, 1);
                if flow.is_lossless {
                    self.fail_flow(key, "the data plane has no buffers left", links);
                }
            }
        }
    }

    /// Fails a flow that would otherwise break its promise to lose nothing.
    fn fail_flow(&mut self, key: FlowKey, reason: &str, links: &mut Links) {
        let Some(flow) = self.remove_flow(key) else {
            return;
        };
        let reason = reason.to_owned();
        self.row.add(Value::FlowsClosed, 1);
        if let Some(ends) = flow.links {
            links.close(ends.to_flow, Close::Failed(reason.clone()));
            let lost = links.disconnect(ends.from_flow);
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        self.machine
            .handle(self.now, Command::Deallocate { flow: key, reason });
    }

    /// Processes reports of what readers have consumed.
    pub(super) fn take_returns(&mut self, links: &mut Links) {
        while let Some((link, total)) = links.next_return(self.id) {
            let Some(key) = key_of(links.source_cookie(link)) else {
                continue;
            };
            let Some(flow) = self.flow_mut(key) else {
                self.lingering_consumed(link, total, links);
                continue;
            };
            if flow.links.is_none_or(|ends| ends.to_flow != link) {
                self.lingering_consumed(link, total, links);
                continue;
            }
            flow.consumed = total.min(flow.delivered);
            flush(flow, links);
            let is_over = flow.held.is_empty() && flow.state == FlowState::Ending;
            if is_over && let Some(flow) = self.remove_flow(key) {
                self.end_flow(flow, links);
            }
            self.touched.push(key);
        }
    }

    /// Processes a report that the reader of a lingering flow has consumed something.
    fn lingering_consumed(&mut self, link: LinkId, total: u64, links: &mut Links) {
        let is_reader = |flow: &NormalFlow| flow.links.is_some_and(|ends| ends.to_flow == link);
        let Some(at) = self.lingering.iter().position(is_reader) else {
            return;
        };
        let flow = &mut self.lingering[at];
        flow.consumed = total.min(flow.delivered);
        flush(flow, links);
        if flow.held.is_empty() {
            let flow = self.lingering.swap_remove(at);
            self.end_flow(flow, links);
        }
    }

    /// Reports the room of readers to the machine where it has changed.
    pub(super) fn state_rooms(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(flow) = self.flows.get_mut(key.0 as usize).and_then(Option::as_mut) else {
                continue;
            };
            let room = flow.payload_room();
            if room != flow.stated && flow.state != FlowState::Ending {
                flow.stated = room;
                self.machine.set_delivery_room(self.now, key, room);
            }
        }
        self.touched = touched;
    }

    /// Gives writers credit for the machine's room, once their links contain no packets that the
    /// machine has not counted.
    pub(super) fn grant(&mut self, links: &mut Links) {
        while let Some(key) = self.machine.poll_room() {
            self.roomy.push(key);
        }
        let (flows, machine) = (&self.flows, &mut self.machine);
        // A key stays in the list until its link is empty.
        self.roomy.retain(|key| {
            let Some(flow) = flows.get(key.0 as usize).and_then(Option::as_ref) else {
                return false;
            };
            let Some(ends) = flow.links.filter(|_| flow.state == FlowState::Open) else {
                return false;
            };
            if links.queued(ends.from_flow) > 0 {
                return true;
            }
            let credit = match machine.room(*key) {
                0 => 0,
                // The credit always allows one whole piece, because a writer might otherwise wait
                // for more room than there can ever be.
                room => (room as u64).max(record_cost(PIECE_MAX)),
            };
            links.set_credit(ends.from_flow, credit, PIECE_MAX);
            false
        });
    }

    /// Handles a flow that the DIF has ended. The reader first gets the held SDUs.
    pub(super) fn flow_closed(&mut self, key: FlowKey, close: Close, links: &mut Links) {
        let Some(flow) = self.flow_mut(key) else {
            return;
        };
        flow.ending = Some(close);
        if flow.held.is_empty() {
            if let Some(flow) = self.remove_flow(key) {
                self.end_flow(flow, links);
            }
        } else {
            flow.state = FlowState::Ending;
        }
    }

    /// Closes the links of a flow that has ended. The reader still receives what is on its link.
    pub(super) fn end_flow(&mut self, flow: NormalFlow, links: &mut Links) {
        self.row.add(Value::FlowsClosed, 1);
        self.row.add(Value::DropFlowEnded, flow.held.len() as u64);
        let Some(ends) = flow.links else {
            return;
        };
        let over = || Close::Failed("the flow has ended".to_owned());
        links.close(ends.to_flow, flow.ending.unwrap_or_else(over));
        let lost = links.disconnect(ends.from_flow);
        self.row.add(Value::DropFlowEnded, lost as u64);
    }
}

/// The key of the flow whose links have this cookie; `None` for cookie 0.
fn key_of(cookie: u32) -> Option<FlowKey> {
    cookie.checked_sub(1).map(FlowKey)
}

struct NoBuffer;

/// Appends a packet to the held ones, split into pieces that the link accepts.
fn hold(flow: &mut NormalFlow, mut packet: Packet, piece_max: usize) -> Result<(), NoBuffer> {
    if !packet.keep() {
        return Err(NoBuffer);
    }
    flow.held_bytes += packet.len();
    if !cut(packet, piece_max, &mut flow.held) {
        return Err(NoBuffer);
    }
    Ok(())
}

/// Moves held packets to the reader while it has room.
fn flush(flow: &mut NormalFlow, links: &mut Links) {
    while let Some(packet) = flow.held.pop_front() {
        let len = packet.len();
        if let Err(packet) = flow.push(packet, links) {
            flow.held.push_front(packet);
            return;
        }
        flow.held_bytes -= len;
    }
}

/// Slightly more than the longest piece of an SDU that is delivered at once, in bytes.
const OVERHANG: usize = 66_000;

/// After this many ring bytes, the weight of earlier SDUs in the estimate of the cost of small SDUs
/// is halved.
const ROOM_SAMPLE: u64 = 1 << 20;

/// Longest piece of an SDU that a writer may send at once, in bytes.
const PIECE_MAX: usize = 65_536;
