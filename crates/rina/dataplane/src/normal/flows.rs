//! The flows that a normal IPCP provides: their SDUs, the room of their readers, their end.

use std::collections::VecDeque;

use carina_api::{FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet, record_cost};
use carina_ipcp::{Command, FlowKey};
use carina_time::Instant;
use carina_wire::Payload;

use super::Normal;
use crate::flow::cut;
use crate::ipcp_app::FlowLinks;

/// A flow.
pub(super) struct NormalFlow {
    pub port: PortId,
    pub state: FlowState,
    pub links: Option<FlowLinks>,
    /// Every SDU must arrive.
    is_lossless: bool,
    /// Ring bytes put on the link toward the reader, and those that the reader has consumed.
    delivered: u64,
    consumed: u64,
    /// SDUs for which the reader has no room.
    held: VecDeque<Packet>,
    held_bytes: usize,
    /// Delivered since the reader's room was stated last: payload and ring bytes.
    recent: (u64, u64),
    /// The room that the machine assumes: as stated last, less what was delivered since.
    stated: usize,
    /// How the flow ends once `held` is delivered.
    ending: Option<Close>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FlowState {
    /// Requested of the DIF, not answered.
    Requested,
    /// Requested through the DIF, not answered here.
    Offered,
    Open,
    /// Ended, with SDUs that the reader has not taken.
    Ending,
}

impl NormalFlow {
    pub fn new(
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

    /// Ring bytes that the reader can take.
    fn room(&self) -> u64 {
        let window = self.links.map_or(0, |ends| ends.window);
        window.saturating_sub(self.delivered - self.consumed)
    }

    /// Bytes of SDUs that the reader can take, as stated to the machine. The reader's ring also
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
            // A piece longer than the whole ring is held here and goes bit by bit.
            (true, _) if is_empty => room.max(OVERHANG),
            (false, true) if room > 0 => room.max(OVERHANG),
            _ => room,
        }
    }

    /// Puts a packet on the link when the reader has room for it; gives it back otherwise.
    fn push(&mut self, packet: Packet, links: &mut Links) -> Result<(), Packet> {
        let Some(ends) = self.links else {
            return Err(packet);
        };
        let cost = record_cost(packet.len());
        if cost > self.room() {
            return Err(packet);
        }
        self.delivered += cost;
        // An SDU without a byte has one in a PDU as well: its header.
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

    /// Sets the cookies of a flow's links, and has the room of its reader stated.
    pub(super) fn set_cookies(&mut self, key: FlowKey, ends: FlowLinks, links: &mut Links) {
        links.set_source_cookie(ends.to_flow, key.0 + 1);
        links.set_sink_cookie(ends.from_flow, key.0 + 1);
        self.touched.push(key);
    }

    /// Takes everything that a flow's writer has sent. True when there was any.
    pub(super) fn drain_flow(&mut self, link: LinkId, links: &mut Links) -> bool {
        let is_its = |flow: &&NormalFlow| {
            flow.state == FlowState::Open && flow.links.is_some_and(|w| w.from_flow == link)
        };
        let key =
            key_of(links.sink_cookie(link)).filter(|key| self.flow(*key).filter(is_its).is_some());
        let (mut bytes, mut sdus, mut pieces) = (0, 0, 0);
        let written = std::iter::from_fn(|| {
            let mut packet = links.pop(link)?;
            let more = packet.more();
            // The PDUs that are made of it are whole, each.
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
            Some(key) => self
                .machine
                .on_sdus(Instant::from_nanos(self.now), key, written),
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

    /// The user has closed the flow, and the machine has everything that it sent.
    fn writer_ended(
        &mut self,
        link: LinkId,
        key: Option<FlowKey>,
        close: &Close,
        links: &mut Links,
    ) {
        links.disconnect(link);
        // A flow whose allocation is pending is cancelled by its key too.
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
            self.machine.handle(
                Instant::from_nanos(self.now),
                Command::Deallocate { flow: key, reason },
            );
        }
        links.wake(self.id);
    }

    /// The user of a lingering flow has closed it.
    fn lingering_ended(&mut self, link: LinkId, links: &mut Links) {
        let is_its = |flow: &NormalFlow| flow.links.is_some_and(|ends| ends.from_flow == link);
        let Some(at) = self.lingering.iter().position(is_its) else {
            return;
        };
        let flow = self.lingering.swap_remove(at);
        if let Some(ends) = flow.links {
            let lost = links.disconnect(ends.to_flow) + flow.held.len();
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        links.wake(self.id);
    }

    /// Moves SDUs to their readers. True when there were some.
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

    /// Ends a flow that cannot keep its promise.
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
        self.machine.handle(
            Instant::from_nanos(self.now),
            Command::Deallocate { flow: key, reason },
        );
    }

    /// Takes note of what readers have consumed.
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

    /// The reader of a lingering flow has consumed something.
    fn lingering_consumed(&mut self, link: LinkId, total: u64, links: &mut Links) {
        let is_its = |flow: &NormalFlow| flow.links.is_some_and(|ends| ends.to_flow == link);
        let Some(at) = self.lingering.iter().position(is_its) else {
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

    /// States the room of readers to the machine where it has changed.
    pub(super) fn state_rooms(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let Some(flow) = self.flows.get_mut(key.0 as usize).and_then(Option::as_mut) else {
                continue;
            };
            let room = flow.payload_room();
            if room != flow.stated && flow.state != FlowState::Ending {
                flow.stated = room;
                self.machine
                    .set_delivery_room(Instant::from_nanos(self.now), key, room);
            }
        }
        self.touched = touched;
    }

    /// Grants writers the room that the machine has for them, once their links hold nothing that
    /// the machine has not counted.
    pub(super) fn grant(&mut self, links: &mut Links) {
        while let Some(key) = self.machine.poll_room() {
            self.roomy.push(key);
        }
        let (flows, machine) = (&self.flows, &mut self.machine);
        // A key stays until its link is empty.
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
                // One whole piece always fits, so that no writer waits for more room than there can
                // be.
                room => (room as u64).max(record_cost(PIECE_MAX)),
            };
            links.set_credit(ends.from_flow, credit, PIECE_MAX);
            false
        });
    }

    /// The DIF has ended a flow. Its reader gets the held SDUs first.
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

    /// Closes the links of a flow that has ended; the reader still takes what is on its link.
    pub(super) fn end_flow(&mut self, flow: NormalFlow, links: &mut Links) {
        self.row.add(Value::FlowsClosed, 1);
        self.row.add(Value::DropFlowEnded, flow.held.len() as u64);
        let Some(ends) = flow.links else {
            return;
        };
        let over = || Close::Failed("the flow is over".to_owned());
        links.close(ends.to_flow, flow.ending.unwrap_or_else(over));
        let lost = links.disconnect(ends.from_flow);
        self.row.add(Value::DropFlowEnded, lost as u64);
    }
}

/// The flow that a cookie of its links stands for.
fn key_of(cookie: u32) -> Option<FlowKey> {
    cookie.checked_sub(1).map(FlowKey)
}

struct NoBuffer;

/// Appends a packet to the held ones, in pieces that the link takes.
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

/// Moves held packets to the reader as far as it has room.
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

/// Somewhat more than the longest piece of an SDU that is delivered at once, in bytes.
const OVERHANG: usize = 66_000;

/// Ring bytes after which older SDUs weigh half in the estimate of the cost of small SDUs.
const ROOM_SAMPLE: u64 = 1 << 20;

/// Longest piece of an SDU that a writer hands over at a time, in bytes.
const PIECE_MAX: usize = 65_536;
