//! The side of a normal IPCP toward its flows.

use std::collections::VecDeque;

use carina_api::{FlowSpec, PortId};
use carina_engine::counters::Value;
use carina_engine::{Close, LinkId, Links, Packet, record_cost};
use carina_ipcp::{Command, FlowKey};
use carina_wire::Payload;

use super::Normal;
use crate::hub::Wires;

/// A flow.
pub(super) struct Line {
    pub port: PortId,
    pub state: LineState,
    pub wires: Option<Wires>,
    /// Every SDU must arrive.
    is_lossless: bool,
    /// Ring bytes put on the link toward the reader, and those that it has consumed.
    delivered: u64,
    consumed: u64,
    /// What the reader has no room for.
    held: VecDeque<Packet>,
    held_bytes: usize,
    /// What was delivered since the reader's room was stated last: payload and ring bytes.
    recent: (u64, u64),
    /// Room that was stated last, less what was delivered since: what the machine goes by.
    stated: usize,
    /// How the flow ends once `held` is delivered.
    ending: Option<Close>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LineState {
    /// Asked of the DIF, not answered.
    Asked,
    /// Asked by the DIF, not answered.
    Offered,
    Open,
    /// Over, but for what the reader has not taken.
    Ending,
}

impl Line {
    pub fn new(port: PortId, state: LineState, wires: Option<Wires>, spec: &FlowSpec) -> Line {
        Line {
            port,
            state,
            wires,
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
        let window = self.wires.map_or(0, |wires| wires.window);
        window.saturating_sub(self.delivered - self.consumed)
    }

    /// What the machine is told that the reader can take, in bytes of SDUs: its ring also needs
    /// room for their records, which is most of it when SDUs are small.
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

    /// Puts a packet that the reader has room for on the link; true when it has.
    fn push(&mut self, packet: Packet, links: &mut Links) -> Result<(), Packet> {
        let Some(wires) = self.wires else {
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
        links.push(wires.to_flow, packet)
    }
}

impl Normal {
    pub(super) fn line(&self, flow: FlowKey) -> Option<&Line> {
        self.lines.get(flow.0 as usize)?.as_ref()
    }

    pub(super) fn line_mut(&mut self, flow: FlowKey) -> Option<&mut Line> {
        self.lines.get_mut(flow.0 as usize)?.as_mut()
    }

    pub(super) fn put_line(&mut self, flow: FlowKey, line: Line, links: &mut Links) {
        let index = flow.0 as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        if let Some(wires) = line.wires {
            self.tag(flow, wires, links);
        }
        // A key is free for the machine when a flow is over; its reader may still be at it.
        let old = self.take_line(flow);
        self.keys.insert(line.port, flow);
        self.lines[index] = Some(line);
        match old {
            Some(old) if old.state == LineState::Ending && !old.held.is_empty() => {
                self.outlived.push(old);
            }
            Some(old) => self.end_line(old, links),
            None => {}
        }
    }

    pub(super) fn take_line(&mut self, flow: FlowKey) -> Option<Line> {
        let line = self.lines.get_mut(flow.0 as usize)?.take()?;
        if self.keys.get(&line.port) == Some(&flow) {
            self.keys.remove(&line.port);
        }
        Some(line)
    }

    /// Marks the links of a flow, and states the room of its reader.
    pub(super) fn tag(&mut self, flow: FlowKey, wires: Wires, links: &mut Links) {
        links.set_tag(wires.to_flow, flow.0 + 1);
        links.set_tag(wires.from_flow, flow.0 + 1);
        self.touched.push(flow);
    }

    fn flow_of(&self, link: LinkId, links: &Links) -> Option<FlowKey> {
        links.tag(link).checked_sub(1).map(FlowKey)
    }

    /// Takes everything that a flow's writer has sent. True when there was something.
    pub(super) fn drain_flow(&mut self, link: LinkId, links: &mut Links) -> bool {
        let is_its = |line: &&Line| {
            line.state == LineState::Open && line.wires.is_some_and(|w| w.from_flow == link)
        };
        let flow = self
            .flow_of(link, links)
            .filter(|flow| self.line(*flow).filter(is_its).is_some());
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
        match flow {
            Some(flow) => self.member.on_sdus(self.now, flow, written),
            None => {
                let lost = written.count() as u64;
                self.row.add(Value::DropFlowEnded, lost);
            }
        }
        let moved = sdus + pieces > 0;
        if let (true, Some(flow)) = (moved, flow) {
            self.roomy.push(flow);
            self.row.add(Value::SdusOut, sdus);
            self.row.add(Value::PiecesOut, pieces);
            self.row.add(Value::BytesOut, bytes);
        }
        if let Some(close) = links.closed(link).cloned() {
            self.writer_ended(link, flow, &close, links);
        }
        moved
    }

    /// The flow has ended from this side and everything it sent is with the machine.
    fn writer_ended(
        &mut self,
        link: LinkId,
        flow: Option<FlowKey>,
        close: &Close,
        links: &mut Links,
    ) {
        links.disconnect(link);
        // A flow that is still asked for is given up by its key too.
        let flow = flow.or_else(|| {
            let tag = self.lines.iter().position(|line| {
                line.as_ref()
                    .is_some_and(|line| line.wires.is_some_and(|w| w.from_flow == link))
            })?;
            Some(FlowKey(tag as u32))
        });
        let Some((flow, line)) = flow.and_then(|flow| Some((flow, self.take_line(flow)?))) else {
            return self.outlived_ended(link, links);
        };
        if let Some(wires) = line.wires {
            let lost = links.disconnect(wires.to_flow) + line.held.len();
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        if line.state != LineState::Ending {
            self.row.add(Value::FlowsClosed, 1);
            let reason = match close {
                Close::Graceful(_) => String::new(),
                other => other.reason().to_owned(),
            };
            self.member
                .handle(self.now, Command::Deallocate { flow, reason });
        }
        links.wake(self.id);
    }

    /// The application of a flow whose key another flow has by now wants no more of it.
    fn outlived_ended(&mut self, link: LinkId, links: &mut Links) {
        let is_its = |line: &Line| line.wires.is_some_and(|wires| wires.from_flow == link);
        let Some(at) = self.outlived.iter().position(is_its) else {
            return;
        };
        let line = self.outlived.swap_remove(at);
        if let Some(wires) = line.wires {
            let lost = links.disconnect(wires.to_flow) + line.held.len();
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        links.wake(self.id);
    }

    /// Moves SDUs to their readers. True when there were some.
    pub(super) fn deliver(&mut self, links: &mut Links) -> bool {
        let (mut moved, mut bytes, mut sdus, mut pieces) = (false, 0, 0, 0);
        while let Some(delivery) = self.member.poll_deliver() {
            moved = true;
            let (flow, mut packet) = (delivery.flow, delivery.sdu);
            packet.set_more(delivery.more);
            bytes += packet.len() as u64;
            if delivery.more {
                pieces += 1
            } else {
                sdus += 1
            }
            self.deliver_one(flow, packet, links);
        }
        if moved {
            self.row.add(Value::SdusIn, sdus);
            self.row.add(Value::PiecesIn, pieces);
            self.row.add(Value::BytesIn, bytes);
        }
        moved
    }

    fn deliver_one(&mut self, flow: FlowKey, packet: Packet, links: &mut Links) {
        let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_mut) else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        if self.touched.last() != Some(&flow) {
            self.touched.push(flow);
        }
        line.stated = line.stated.saturating_sub(packet.len());
        let Some(wires) = line.wires else {
            return self.row.add(Value::DropFlowEnded, 1);
        };
        let piece_max = links.piece_max(wires.to_flow);
        let packet = match line.held.is_empty() && packet.len() <= piece_max {
            true => match line.push(packet, links) {
                Ok(()) => return,
                Err(packet) => packet,
            },
            false => packet,
        };
        let held_max = (wires.window as usize).max(2 * OVERHANG);
        if !line.is_lossless && line.held_bytes + packet.len() > held_max {
            return self.row.add(Value::DropRingFull, 1);
        }
        match hold(line, packet, piece_max) {
            Ok(()) => flush(line, links),
            Err(NoBuffer) => {
                self.row.add(Value::DropNoBuffer, 1);
                if line.is_lossless {
                    self.fail_line(flow, "the data plane has no buffers left", links);
                }
            }
        }
    }

    /// Ends a flow that cannot keep its promise.
    fn fail_line(&mut self, flow: FlowKey, reason: &str, links: &mut Links) {
        let Some(line) = self.take_line(flow) else {
            return;
        };
        let reason = reason.to_owned();
        self.row.add(Value::FlowsClosed, 1);
        if let Some(wires) = line.wires {
            links.close(wires.to_flow, Close::Failed(reason.clone()));
            let lost = links.disconnect(wires.from_flow);
            self.row.add(Value::DropFlowEnded, lost as u64);
        }
        self.member
            .handle(self.now, Command::Deallocate { flow, reason });
    }

    /// Hears what readers have consumed.
    pub(super) fn take_returns(&mut self, links: &mut Links) {
        while let Some((link, total)) = links.next_return(self.id) {
            let Some(flow) = self.flow_of(link, links) else {
                continue;
            };
            let Some(line) = self.line_mut(flow) else {
                self.outlived_reads(link, total, links);
                continue;
            };
            if line.wires.is_none_or(|wires| wires.to_flow != link) {
                self.outlived_reads(link, total, links);
                continue;
            }
            line.consumed = total.min(line.delivered);
            flush(line, links);
            let is_over = line.held.is_empty() && line.state == LineState::Ending;
            if is_over && let Some(line) = self.take_line(flow) {
                self.end_line(line, links);
            }
            self.touched.push(flow);
        }
    }

    /// The reader of a flow whose key another flow has by now has consumed something.
    fn outlived_reads(&mut self, link: LinkId, total: u64, links: &mut Links) {
        let is_its = |line: &Line| line.wires.is_some_and(|wires| wires.to_flow == link);
        let Some(at) = self.outlived.iter().position(is_its) else {
            return;
        };
        let line = &mut self.outlived[at];
        line.consumed = total.min(line.delivered);
        flush(line, links);
        if line.held.is_empty() {
            let line = self.outlived.swap_remove(at);
            self.end_line(line, links);
        }
    }

    /// Tells the machine what readers can take, for those of which it has changed.
    pub(super) fn state_rooms(&mut self) {
        let mut touched = std::mem::take(&mut self.touched);
        for flow in touched.drain(..) {
            let Some(line) = self.lines.get_mut(flow.0 as usize).and_then(Option::as_mut) else {
                continue;
            };
            let room = line.payload_room();
            if room != line.stated && line.state != LineState::Ending {
                line.stated = room;
                self.member.set_delivery_room(self.now, flow, room);
            }
        }
        self.touched = touched;
    }

    /// Gives writers the room that the machine has for them. Only when nothing is on their links
    /// that the machine has not counted.
    pub(super) fn grant(&mut self, links: &mut Links) {
        while let Some(flow) = self.member.poll_room() {
            self.roomy.push(flow);
        }
        let (lines, member) = (&self.lines, &mut self.member);
        // What stays waits for its link to be empty.
        self.roomy.retain(|flow| {
            let Some(line) = lines.get(flow.0 as usize).and_then(Option::as_ref) else {
                return false;
            };
            let Some(wires) = line.wires.filter(|_| line.state == LineState::Open) else {
                return false;
            };
            if links.queued(wires.from_flow) > 0 {
                return true;
            }
            let credit = match member.room(*flow) {
                0 => 0,
                // One whole piece fits whatever the room, so that none ever waits for more than
                // there can be.
                room => (room as u64).max(record_cost(PIECE_MAX)),
            };
            links.set_credit(wires.from_flow, credit, PIECE_MAX);
            false
        });
    }

    /// The DIF has ended a flow: its reader gets what is held first.
    pub(super) fn flow_closed(&mut self, flow: FlowKey, close: Close, links: &mut Links) {
        let Some(line) = self.line_mut(flow) else {
            return;
        };
        line.ending = Some(close);
        if line.held.is_empty() {
            if let Some(line) = self.take_line(flow) {
                self.end_line(line, links);
            }
        } else {
            line.state = LineState::Ending;
        }
    }

    /// Tells a flow's end that it is over, after everything that it can still take.
    pub(super) fn end_line(&mut self, line: Line, links: &mut Links) {
        self.row.add(Value::FlowsClosed, 1);
        self.row.add(Value::DropFlowEnded, line.held.len() as u64);
        let Some(wires) = line.wires else {
            return;
        };
        let over = || Close::Failed("the flow is over".to_owned());
        links.close(wires.to_flow, line.ending.unwrap_or_else(over));
        let lost = links.disconnect(wires.from_flow);
        self.row.add(Value::DropFlowEnded, lost as u64);
    }
}

struct NoBuffer;

/// Puts a packet behind those that the reader has no room for, in pieces that it can take.
fn hold(line: &mut Line, mut packet: Packet, piece_max: usize) -> Result<(), NoBuffer> {
    if !packet.keep() {
        return Err(NoBuffer);
    }
    line.held_bytes += packet.len();
    while packet.len() > piece_max && piece_max > 0 {
        let mut piece = packet.share().ok_or(NoBuffer)?;
        Payload::truncate(&mut piece, piece_max);
        piece.set_more(true);
        packet.advance(piece_max);
        line.held.push_back(piece);
    }
    line.held.push_back(packet);
    Ok(())
}

/// Moves held packets to the reader as far as it has room.
fn flush(line: &mut Line, links: &mut Links) {
    while let Some(packet) = line.held.pop_front() {
        let len = packet.len();
        if let Err(packet) = line.push(packet, links) {
            line.held.push_front(packet);
            return;
        }
        line.held_bytes -= len;
    }
}

/// The longest piece of an SDU that comes at once, and a little, in bytes.
const OVERHANG: usize = 66_000;

/// Ring bytes after which older SDUs count half in what small ones cost.
const ROOM_SAMPLE: u64 = 1 << 20;

/// Longest piece of an SDU that a writer hands over at a time, in bytes.
const PIECE_MAX: usize = 65_536;
