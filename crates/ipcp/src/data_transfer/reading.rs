//! From EFCP to the readers of flows and channels.

use carina_wire::Payload;
use carina_wire::dif::CepId;

use super::counters::DropReason;
use super::end::End;
use super::stream::Stream;
use super::{Counters, Transfer};
use crate::api::{Delivery, FlowKey};
use crate::data_transfer::api::{Owner, TransferEvent};

/// Most bytes that wait for the reader of a flow without flow control who sets no limit.
const READY_BYTES_MAX: usize = 16 << 20;
/// Longest message on a management channel.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

impl<P: Payload> Transfer<P> {
    /// What the reader of a flow can take, in bytes: the window that the other end gets follows.
    /// Counts from what has been polled so far.
    pub fn set_delivery_room(&mut self, now: u64, flow: FlowKey, bytes: usize) {
        self.rmt.now = now;
        let Some(stream) = self.streams.flow(flow) else {
            return;
        };
        stream.room = bytes;
        self.pull(Owner::Flow(flow));
        let Some(stream) = self.streams.flow(flow) else {
            return;
        };
        if !stream.ready.is_empty() && !stream.is_listed {
            stream.is_listed = true;
            self.deliverable.push_back(flow);
        }
        let room = stream.room_left();
        for cep in stream.ends() {
            if let Some(end) = self.ends.get_mut(cep)
                && end.has_window
            {
                let credit = end.credit(room);
                end.efcp.set_credit(now, credit);
                end.transmit(&mut self.rmt);
                end.arm(&mut self.rmt);
            }
        }
        self.loop_back();
    }

    /// True when nothing waits for the reader of a flow.
    #[must_use]
    pub fn is_delivered(&self, flow: FlowKey) -> bool {
        self.streams
            .peek_flow(flow)
            .is_none_or(|stream| stream.ready.is_empty())
    }

    /// The next SDU of a flow, when its reader has room.
    pub(super) fn next_delivery(&mut self, flow: FlowKey) -> Option<Delivery<P>> {
        let stream = self.streams.flow(flow)?;
        let Some((sdu, more)) = stream.pop_ready() else {
            stream.is_listed = false;
            if stream.is_closed && stream.ready.is_empty() {
                self.streams.remove(Owner::Flow(flow));
            }
            return None;
        };
        self.rmt.counters.sdus_delivered += 1;
        if stream.ready.is_empty() && stream.room != usize::MAX && !stream.is_closed {
            // EFCP may hold more, which there was no room for.
            self.pull(Owner::Flow(flow));
        }
        Some(Delivery { flow, sdu, more })
    }

    /// Takes from EFCP what the reader has room for.
    pub(super) fn pull(&mut self, owner: Owner) {
        let Some(stream) = self.streams.get(owner) else {
            return;
        };
        // After a rollover the rest of the old connection comes first.
        for cep in stream.ends() {
            if let Some(end) = self.ends.get_mut(cep) {
                take_udfs(&mut self.rmt.counters, end, stream, false);
            }
        }
        self.pulled(owner);
    }

    /// Takes from EFCP everything that has come, whether there is room or not.
    pub(super) fn pull_all(&mut self, owner: Owner, cep: CepId) {
        if let (Some(stream), Some(end)) = (self.streams.get(owner), self.ends.get_mut(cep)) {
            take_udfs(&mut self.rmt.counters, end, stream, true);
        }
        self.pulled(owner);
    }

    fn pulled(&mut self, owner: Owner) {
        match owner {
            Owner::Flow(key) => self.list(key),
            Owner::Channel(channel) => self.messages(channel),
        }
    }

    fn list(&mut self, key: FlowKey) {
        let Some(stream) = self.streams.flow(key) else {
            return;
        };
        if stream.ready.is_empty() {
            return;
        }
        if !stream.is_listed {
            stream.is_listed = true;
            self.deliverable.push_back(key);
        }
        if !stream.is_unkept {
            stream.is_unkept = true;
            self.unkept.push(key);
        }
    }

    /// Whole messages of a channel become events.
    fn messages(&mut self, channel: u32) {
        let Some(stream) = self.streams.get(Owner::Channel(channel)) else {
            return;
        };
        let mut is_flooded = false;
        while let Some((piece, more)) = stream.pop_ready() {
            if stream.message.len() + piece.len() > MESSAGE_BYTES_MAX {
                is_flooded = true;
                break;
            }
            piece.append_to(&mut stream.message);
            if !more {
                let message = core::mem::take(&mut stream.message);
                self.events
                    .push_back(TransferEvent::Channel { channel, message });
            }
        }
        if is_flooded {
            self.events.push_back(TransferEvent::Failed {
                owner: Owner::Channel(channel),
                reason: "a management message is longer than 1 MiB".into(),
            });
            self.end_of(Owner::Channel(channel));
        }
    }
}

fn take_udfs<P: Payload>(
    counters: &mut Counters,
    end: &mut End<P>,
    stream: &mut Stream<P>,
    everything: bool,
) {
    let before = lost(end);
    // Without a window nobody would hold the sender back: what there is no room for is dropped.
    while everything || !end.has_window || stream.room_left() > 0 {
        let Some(udf) = end.efcp.poll_deliver() else {
            break;
        };
        end.assembler.on_udf(udf);
        while let Some(piece) = end.assembler.poll() {
            if !end.has_window && is_dropped(stream, &piece.sdu, piece.more) {
                counters.drop_one(DropReason::NoRoom);
                continue;
            }
            stream.push_ready(piece.sdu, piece.more);
        }
    }
    counters.drop_many(DropReason::Delimiting, lost(end) - before);
}

/// What the assembler has discarded so far.
fn lost<P: Payload>(end: &End<P>) -> u64 {
    let counters = end.assembler.counters();
    counters.incomplete + counters.too_long + counters.malformed + counters.no_buffer
}

/// Of a flow without flow control, an SDU for which the reader has no room is dropped, all of it.
fn is_dropped<P: Payload>(stream: &mut Stream<P>, sdu: &P, more: bool) -> bool {
    let is_first = !stream.ready.back().is_some_and(|(_, more)| *more);
    let room = stream.room.min(READY_BYTES_MAX);
    let has_room = stream.ready_bytes + sdu.len() <= room;
    let is_dropped = stream.is_skipping || (is_first && !has_room);
    stream.is_skipping = is_dropped && more;
    is_dropped
}
