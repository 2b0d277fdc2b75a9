//! Sending: takes SDUs from the writer of a flow to the queue of an N-1 flow.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use carina_efcp::delimiting::Refusal;
use carina_time::Instant;
use carina_wire::Payload;
use carina_wire::dif::CepId;

use super::DataPath;
use super::counters::DropReason;
use super::efcp_instance::EfcpInstance;
use super::flow_io::FlowIo;
use super::port::QueueClass;
use crate::api::FlowKey;
use crate::data_transfer::api::{Owner, TransferEvent};

/// Room in bytes below which the writer is notified when the room grows.
const ROOM_SMALL: usize = 64 << 10;
/// Number of UDFs that EFCP must accept before a waiting writer is woken.
const UDFS_FEW: usize = 16;

impl<P: Payload> DataPath<P> {
    /// Takes an SDU of a flow; with `more`, a piece that is not its last. What exceeds
    /// [`DataPath::room`] is kept and sent later; nothing is lost.
    pub fn on_sdu(&mut self, now: Instant, flow: FlowKey, sdu: P, more: bool) {
        self.on_sdus(now, flow, core::iter::once((sdu, more)));
    }

    /// Like [`DataPath::on_sdu`], for several SDUs at once; each comes with its `more`.
    #[inline]
    pub fn on_sdus(&mut self, now: Instant, flow: FlowKey, sdus: impl Iterator<Item = (P, bool)>) {
        self.rmt.now = now;
        let io = self.flow_ios.flow(flow);
        let Some(io) = io.filter(|io| !io.is_finishing && !io.is_closed) else {
            let lost = sdus.count() as u64;
            return self.rmt.counters.drop_many(DropReason::NoFlow, lost);
        };
        let mut count = 0;
        let mut sdus = sdus.inspect(|_| count += 1);
        if io.pending.is_empty() {
            self.drive(Owner::Flow(flow), &mut sdus);
        } else {
            wait(io, &mut sdus);
            self.mark_unkept(flow);
        }
        self.rmt.counters.sdus_written += count;
        self.loop_back();
    }

    /// Bytes that a flow may write now. [`DataPath::poll_room`] reports the flow when its room has
    /// grown.
    pub fn room(&mut self, flow: FlowKey) -> usize {
        let udf = self.udf_max(Owner::Flow(flow));
        let Some(io) = self.flow_ios.flow(flow) else {
            return 0;
        };
        if io.is_finishing || io.is_closed {
            return 0;
        }
        let instance = self.connections.get_mut(io.current);
        let Some(instance) =
            instance.filter(|instance| instance.is_connected && io.pending.is_empty())
        else {
            io.is_short = true;
            return 0;
        };
        let (port, queue) = instance.queue_room(&self.rmt);
        let window = instance.efcp.room().saturating_mul(udf);
        let room = queue.min(window);
        if room < ROOM_SMALL {
            io.is_short = true;
        }
        if queue < ROOM_SMALL {
            hold(&mut self.rmt, instance, io, port);
        }
        room
    }

    /// Longest SDU of a flow in bytes; [`usize::MAX`] where SDUs are fragmented. A longer SDU is
    /// dropped, and ends a reliable flow.
    #[must_use]
    pub fn sdu_max(&self, flow: FlowKey) -> usize {
        let io = self.flow_ios.peek_flow(flow);
        io.map_or(usize::MAX, |io| io.delimiter.sdu_max())
    }

    /// Moves written SDUs toward the N-1 flow as far as EFCP and the queue have room: first those
    /// that wait, then the new ones in `sdus`. The rest waits.
    #[inline]
    pub(super) fn drive(&mut self, owner: Owner, sdus: &mut impl Iterator<Item = (P, bool)>) {
        let Some(io) = self.flow_ios.get(owner) else {
            return;
        };
        let instance = self.connections.get_mut(io.current);
        let Some(instance) = instance.filter(|instance| instance.is_connected) else {
            // The other end is not known yet.
            if wait(io, sdus) {
                self.mark_owner(owner);
            }
            return;
        };
        let was_broken = io.broken.is_some();
        give_udfs(&mut self.rmt, instance, io);
        while io.broken.is_none() {
            let is_boundary = !io.is_inside;
            if io.has_udfs() || (is_boundary && io.is_switching) {
                break;
            }
            let is_new = io.pending.is_empty();
            let new = if is_new { sdus.next() } else { None };
            if is_new && new.is_none() {
                break;
            }
            let (port, room) = instance.queue_room(&self.rmt);
            if room == 0 {
                new.into_iter()
                    .for_each(|(sdu, more)| io.push_pending(sdu, more));
                hold(&mut self.rmt, instance, io, port);
                break;
            }
            let Some((sdu, more)) = new.or_else(|| io.pop_pending()) else {
                break;
            };
            io.is_inside = more;
            let len = sdu.len();
            if let Err(refusal) = io.delimiter.write(sdu, more) {
                let whole = (is_boundary && !more).then_some(len);
                let reason = refused(instance, io, refusal, whole, &mut self.events);
                self.rmt.counters.drop_one(reason);
            }
            if io.has_udfs() {
                pass_udfs(&mut self.rmt, instance, io);
            }
        }
        if io.broken.is_some() {
            self.rmt
                .counters
                .drop_many(DropReason::NoFlow, sdus.count() as u64);
        }
        let is_left = wait(io, sdus);
        let is_over = io.is_finishing && io.pending.is_empty();
        if !io.is_inside && (is_over || io.is_switching) && io.broken.is_none() {
            conclude(&mut self.rmt, instance, io);
        }
        if let Some(reason) = io.broken.as_deref().filter(|_| !was_broken) {
            self.events.push_back(failed(owner, reason));
        }
        if !instance.is_dirty {
            instance.is_dirty = true;
            self.dirty.push(instance.cep);
        }
        instance.arm(&mut self.rmt);
        if is_left {
            self.mark_owner(owner);
        }
    }

    /// Continues a flow that waited for the queue of its N-1 flow, which has got shorter.
    pub(super) fn resume_held(&mut self, key: FlowKey) {
        let Some(io) = self.flow_ios.flow(key) else {
            return;
        };
        io.is_held = false;
        if io.is_closed {
            return;
        }
        self.drive(Owner::Flow(key), &mut core::iter::empty());
        self.announce(key);
    }

    /// Tells the writer of a flow when it may write again.
    pub(super) fn announce(&mut self, key: FlowKey) {
        let Some(io) = self.flow_ios.flow(key) else {
            return;
        };
        if !io.is_short || io.is_room_listed || !io.pending.is_empty() {
            return;
        }
        let Some(instance) = self.connections.get_mut(io.current) else {
            return;
        };
        if !instance.is_connected || instance.efcp.room() < UDFS_FEW {
            return;
        }
        let (port, room) = instance.queue_room(&self.rmt);
        if room == 0 {
            // The window may have opened and its PDUs filled the queue; waiting for the queue makes
            // sure that the writer is notified later.
            return hold(&mut self.rmt, instance, io, port);
        }
        io.is_short = false;
        io.is_room_listed = true;
        self.rooms.push_back(key);
    }

    /// Completes for one connection what the burst left undone.
    pub(super) fn finish_burst(&mut self, cep: CepId) {
        let now = self.rmt.now;
        let Some(instance) = self.connections.get_mut(cep) else {
            return;
        };
        instance.is_dirty = false;
        let owner = instance.owner;
        if instance.efcp.is_deliverable() {
            self.pull(owner);
        }
        let Some(instance) = self.connections.get_mut(cep) else {
            return;
        };
        if let Some(io) = self.flow_ios.get(owner) {
            let was_broken = io.broken.is_some();
            if io.current == cep && !io.delimiter.is_empty() {
                if io.delimiter.flush().is_err() {
                    self.rmt.counters.drop_one(DropReason::NoBuffer);
                    broke(instance, io, NO_BUFFER);
                }
                give_udfs(&mut self.rmt, instance, io);
            }
            if io.room != usize::MAX && instance.has_window {
                let credit = instance.credit(io.room_left());
                instance.efcp.set_credit(now, credit);
            }
            if io.delimiter.keep().is_err() {
                self.rmt.counters.drop_one(DropReason::NoBuffer);
                if io.current == cep {
                    broke(instance, io, NO_BUFFER);
                }
            }
            if let Some(reason) = io.broken.as_deref().filter(|_| !was_broken) {
                self.events.push_back(failed(instance.owner, reason));
            }
        }
        instance.efcp.end_of_burst(now);
        instance.assembler.keep();
        instance.transmit(&mut self.rmt);
        instance.arm(&mut self.rmt);
        if self.tracer.is_on() {
            self.trace_connection(cep);
        }
        self.handle_efcp_events(cep);
    }

    pub(super) fn mark_unkept(&mut self, key: FlowKey) {
        if let Some(io) = self.flow_ios.flow(key)
            && !io.is_unkept
        {
            io.is_unkept = true;
            self.unkept.push(key);
        }
    }

    fn mark_owner(&mut self, owner: Owner) {
        // Messages of channels are in vectors of their own, not in the burst's memory.
        if let Owner::Flow(key) = owner {
            self.mark_unkept(key);
        }
    }

    /// Copies what waits in flows out of the burst's memory: in the flows that make no progress at
    /// present, or with `everything` in all.
    pub(super) fn keep_flow_ios(&mut self, everything: bool) {
        let mut index = 0;
        while let Some(key) = self.unkept.get(index).copied() {
            if let Some(io) = self.flow_ios.flow(key) {
                if !everything && io.is_listed && io.pending.is_empty() {
                    index += 1;
                    continue;
                }
                io.is_unkept = false;
                let lost = io.keep();
                if lost > 0 {
                    self.rmt.counters.drop_many(DropReason::NoBuffer, lost);
                    self.lose(key);
                }
            }
            self.unkept.swap_remove(index);
        }
    }

    /// Handles the loss of SDUs for lack of buffers. It ends a reliable flow.
    fn lose(&mut self, key: FlowKey) {
        let Some(io) = self.flow_ios.flow(key) else {
            return;
        };
        if let Some(instance) = self.connections.get_mut(io.current) {
            broke(instance, io, NO_BUFFER);
        }
        if let Some(reason) = io.broken.as_deref() {
            self.events.push_back(failed(Owner::Flow(key), reason));
        }
    }
}

const NO_BUFFER: &str = "no buffer for an SDU of a reliable flow";

/// Records that something written is lost. A reliable flow ends rather than continue without it.
#[cold]
fn broke<P: Payload>(instance: &EfcpInstance<P>, io: &mut FlowIo<P>, reason: &str) {
    if instance.is_reliable {
        io.broken.get_or_insert_with(|| reason.into());
    }
}

/// Handles an SDU that the delimiter refused: a reliable flow breaks, an unreliable one reports the
/// first refusal. The reason names the length of the `whole` SDU, if known.
#[cold]
fn refused<P: Payload>(
    instance: &EfcpInstance<P>,
    io: &mut FlowIo<P>,
    refusal: Refusal,
    whole: Option<usize>,
    events: &mut VecDeque<TransferEvent>,
) -> DropReason {
    if refusal == Refusal::NoBuffer {
        broke(instance, io, NO_BUFFER);
        return DropReason::NoBuffer;
    }
    let text = too_long(io, whole);
    broke(instance, io, &text);
    if !instance.is_reliable && !io.is_refusal_reported {
        io.is_refusal_reported = true;
        events.push_back(TransferEvent::Notice { text });
    }
    DropReason::SduTooLong
}

fn too_long<P: Payload>(io: &FlowIo<P>, whole: Option<usize>) -> String {
    let sdu_max = io.delimiter.sdu_max();
    match (io.owner, whole) {
        (Owner::Flow(FlowKey(key)), Some(len)) => {
            format!(
                "flow {key}: an SDU of {len} bytes was refused: the flow carries at most \
                {sdu_max}"
            )
        }
        (Owner::Flow(FlowKey(key)), None) => {
            format!("flow {key}: an SDU of more than {sdu_max} bytes was refused")
        }
        (Owner::Channel(_), _) => format!("a message of more than {sdu_max} bytes was refused"),
    }
}

fn failed(owner: Owner, reason: &str) -> TransferEvent {
    TransferEvent::Failed {
        owner,
        reason: reason.into(),
    }
}

/// Queues new SDUs as pending. True when any SDU is pending now.
fn wait<P: Payload>(io: &mut FlowIo<P>, sdus: &mut impl Iterator<Item = (P, bool)>) -> bool {
    sdus.for_each(|(sdu, more)| io.push_pending(sdu, more));
    !io.pending.is_empty()
}

/// Sends what EFCP has ready, then passes UDFs to EFCP as far as it accepts them, and sends those.
pub(super) fn give_udfs<P: Payload>(
    rmt: &mut super::Rmt<P>,
    instance: &mut EfcpInstance<P>,
    io: &mut FlowIo<P>,
) {
    instance.transmit(rmt);
    if io.has_udfs() {
        pass_udfs(rmt, instance, io);
    }
}

/// Passes UDFs to EFCP as far as it accepts them. UDFs that can be sent at once bypass EFCP's
/// queue.
#[inline]
fn pass_udfs<P: Payload>(
    rmt: &mut super::Rmt<P>,
    instance: &mut EfcpInstance<P>,
    io: &mut FlowIo<P>,
) {
    loop {
        let (mut is_full, mut is_queued) = (false, false);
        while io.has_udfs() && io.broken.is_none() {
            if instance.efcp.room() == 0 {
                is_full = true;
                break;
            }
            let Some(udf) = io.delimiter.poll() else {
                break;
            };
            match instance.pass(udf, rmt) {
                Some(is_sent) => is_queued |= !is_sent,
                None => {
                    rmt.counters.drop_one(DropReason::NoBuffer);
                    broke(instance, io, NO_BUFFER);
                }
            }
        }
        if is_full || is_queued {
            instance.transmit(rmt);
        }
        if !is_full || instance.efcp.room() == 0 {
            return;
        }
    }
}

/// Makes the flow wait for the queue of its N-1 flow to get shorter.
fn hold<P: Payload>(
    rmt: &mut super::Rmt<P>,
    instance: &EfcpInstance<P>,
    io: &mut FlowIo<P>,
    port: Option<u32>,
) {
    if io.is_held {
        return;
    }
    if let (Some(port), QueueClass::Cube(class), Owner::Flow(key)) =
        (port, instance.queue_class, io.owner)
        && let Some(port) = rmt.port_mut(port)
    {
        port.hold(class, key);
        io.is_held = true;
    }
}

/// Ends writing to the current connection, since nothing more will be written to it.
fn conclude<P: Payload>(
    rmt: &mut super::Rmt<P>,
    instance: &mut EfcpInstance<P>,
    io: &mut FlowIo<P>,
) {
    if io.delimiter.flush().is_err() {
        rmt.counters.drop_one(DropReason::NoBuffer);
        broke(instance, io, NO_BUFFER);
    }
    give_udfs(rmt, instance, io);
    if io.broken.is_none() && io.delimiter.is_empty() {
        instance.efcp.finish(rmt.now);
        instance.transmit(rmt);
    }
}
