//! Delivery: from EFCP to the readers of flows and channels.

use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::CepId;

use super::counters::DropReason;
use super::efcp_instance::EfcpInstance;
use super::flow_io::FlowIo;
use super::{Counters, DataPath};
use crate::api::{Delivery, FlowKey};
use crate::data_transfer::api::{Owner, TransferEvent};

/// Limit on the bytes that wait for the reader of a flow without flow control, unless the reader
/// sets a smaller one.
const READY_BYTES_MAX: usize = 16 << 20;
/// Longest message on a management channel, in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

impl<P: Payload> DataPath<P> {
    /// Sets how many bytes the reader of a flow can take beyond what was polled so far. EFCP
    /// adjusts the window that it grants to the other end.
    pub fn set_delivery_room(&mut self, now: Instant, flow: FlowKey, bytes: usize) {
        self.rmt.now = now;
        let Some(io) = self.flow_ios.flow(flow) else {
            return;
        };
        io.room = bytes;
        self.pull(Owner::Flow(flow));
        let Some(io) = self.flow_ios.flow(flow) else {
            return;
        };
        if !io.ready.is_empty() && !io.is_listed {
            io.is_listed = true;
            self.deliverable.push_back(flow);
        }
        let room = io.room_left();
        for cep in io.connections() {
            if let Some(instance) = self.connections.get_mut(cep)
                && instance.has_window
            {
                let credit = instance.credit(room);
                instance.efcp.set_credit(now, credit);
                instance.transmit(&mut self.rmt);
                instance.arm(&mut self.rmt);
            }
        }
        self.loop_back();
    }

    /// Whether the reader of the flow has got all SDUs that have arrived.
    #[must_use]
    pub fn is_delivered(&self, flow: FlowKey) -> bool {
        self.flow_ios
            .peek_flow(flow)
            .is_none_or(|io| io.ready.is_empty())
    }

    /// The next SDU of a flow; `None` when no SDU is ready or its reader has no room.
    pub(super) fn next_delivery(&mut self, flow: FlowKey) -> Option<Delivery<P>> {
        let io = self.flow_ios.flow(flow)?;
        let Some((sdu, more)) = io.pop_ready() else {
            io.is_listed = false;
            if io.is_closed && io.ready.is_empty() {
                self.flow_ios.remove(Owner::Flow(flow));
            }
            return None;
        };
        self.rmt.counters.sdus_delivered += 1;
        if io.ready.is_empty() && io.room != usize::MAX && !io.is_closed {
            // EFCP may hold more UDFs, for which there was no room.
            self.pull(Owner::Flow(flow));
        }
        Some(Delivery { flow, sdu, more })
    }

    /// Takes from EFCP the UDFs for which the reader has room.
    pub(super) fn pull(&mut self, owner: Owner) {
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        // After a rollover, what the old connection still holds comes first.
        for cep in io.connections() {
            if let Some(instance) = self.connections.get_mut(cep) {
                take_udfs(&mut self.rmt.counters, instance, io, false);
            }
        }
        self.pulled(owner);
    }

    /// Takes from EFCP all UDFs that have arrived, even without room for them.
    pub(super) fn pull_all(&mut self, owner: Owner, cep: CepId) {
        if let (Some(io), Some(instance)) =
            (self.flow_ios.get(owner), self.connections.get_mut(cep))
        {
            take_udfs(&mut self.rmt.counters, instance, io, true);
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
        let Some(io) = self.flow_ios.flow(key) else {
            return;
        };
        if io.ready.is_empty() {
            return;
        }
        if !io.is_listed {
            io.is_listed = true;
            self.deliverable.push_back(key);
        }
        if !io.is_unkept {
            io.is_unkept = true;
            self.unkept.push(key);
        }
    }

    /// Turns the complete messages of a channel into events.
    fn messages(&mut self, channel: u32) {
        let Some(io) = self.flow_ios.get(Owner::Channel(channel)) else {
            return;
        };
        let mut is_flooded = false;
        while let Some((piece, more)) = io.pop_ready() {
            if io.message.len() + piece.len() > MESSAGE_BYTES_MAX {
                is_flooded = true;
                break;
            }
            piece.append_to(&mut io.message);
            if !more {
                let message = core::mem::take(&mut io.message);
                self.events
                    .push_back(TransferEvent::Channel { channel, message });
            }
        }
        if is_flooded {
            self.events.push_back(TransferEvent::Failed {
                owner: Owner::Channel(channel),
                reason: "a management message is longer than 1 MiB".into(),
            });
            self.close_connections(Owner::Channel(channel));
        }
    }
}

fn take_udfs<P: Payload>(
    counters: &mut Counters,
    instance: &mut EfcpInstance<P>,
    io: &mut FlowIo<P>,
    everything: bool,
) {
    let before = lost(instance);
    // Without a window nothing limits the sender: an SDU without room is dropped.
    while everything || !instance.has_window || io.room_left() > 0 {
        let Some(udf) = instance.efcp.poll_deliver() else {
            break;
        };
        instance.assembler.on_udf(udf);
        while let Some(piece) = instance.assembler.poll() {
            if !instance.has_window && is_dropped(io, &piece.sdu, piece.more) {
                counters.drop_one(DropReason::NoRoom);
                continue;
            }
            io.push_ready(piece.sdu, piece.more);
        }
    }
    counters.drop_many(DropReason::Delimiting, lost(instance) - before);
}

/// Number of SDUs that the assembler has discarded so far.
fn lost<P: Payload>(instance: &EfcpInstance<P>) -> u64 {
    let counters = instance.assembler.counters();
    counters.incomplete + counters.too_long + counters.malformed + counters.no_buffer
}

/// Decides, on a flow without flow control, whether an SDU is dropped because the reader has no
/// room. All pieces of one SDU are treated alike.
fn is_dropped<P: Payload>(io: &mut FlowIo<P>, sdu: &P, more: bool) -> bool {
    let is_first = !io.ready.back().is_some_and(|(_, more)| *more);
    let room = io.room.min(READY_BYTES_MAX);
    let has_room = io.ready_bytes + sdu.len() <= room;
    let is_dropped = io.is_skipping || (is_first && !has_room);
    io.is_skipping = is_dropped && more;
    is_dropped
}
