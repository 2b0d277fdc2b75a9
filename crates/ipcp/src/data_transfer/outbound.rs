//! From a writer to the queue of an N-1 flow.

use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;

use carina_efcp::delimiting::Refusal;
use carina_wire::Payload;
use carina_wire::dif::CepId;

use super::Transfer;
use super::counters::DropReason;
use super::end::End;
use super::port::Lane;
use super::stream::Stream;
use crate::api::FlowKey;
use crate::data_transfer::api::{Owner, TransferEvent};

/// A room below this is worth announcing when it grows, in bytes.
const ROOM_SMALL: usize = 64 << 10;
/// UDFs that EFCP must take before a writer that waited is woken.
const UDFS_FEW: usize = 16;

impl<P: Payload> Transfer<P> {
    /// An SDU of a flow, or with `more` a piece that is not its last. What does not fit into
    /// [`Transfer::room`] waits; nothing is lost.
    pub fn on_sdu(&mut self, now: u64, flow: FlowKey, sdu: P, more: bool) {
        self.on_sdus(now, flow, core::iter::once((sdu, more)));
    }

    /// As [`Transfer::on_sdu`], for all that a writer gives at a time.
    #[inline]
    pub fn on_sdus(&mut self, now: u64, flow: FlowKey, sdus: impl Iterator<Item = (P, bool)>) {
        self.rmt.now = now;
        let stream = self.streams.flow(flow);
        let Some(stream) = stream.filter(|stream| !stream.is_finishing && !stream.is_closed) else {
            let lost = sdus.count() as u64;
            return self.rmt.counters.drop_many(DropReason::NoFlow, lost);
        };
        let mut count = 0;
        let mut sdus = sdus.inspect(|_| count += 1);
        if stream.pending.is_empty() {
            self.drive(Owner::Flow(flow), &mut sdus);
        } else {
            wait(stream, &mut sdus);
            self.mark_unkept(flow);
        }
        self.rmt.counters.sdus_written += count;
        self.loop_back();
    }

    /// Bytes that a flow's writer may write at present. When it grows again,
    /// [`Transfer::poll_room`] says so.
    pub fn room(&mut self, flow: FlowKey) -> usize {
        let udf = self.udf_max(Owner::Flow(flow));
        let Some(stream) = self.streams.flow(flow) else {
            return 0;
        };
        if stream.is_finishing || stream.is_closed {
            return 0;
        }
        let end = self.ends.get_mut(stream.current);
        let Some(end) = end.filter(|end| end.is_connected && stream.pending.is_empty()) else {
            stream.is_short = true;
            return 0;
        };
        let (port, queue) = end.queue_room(&self.rmt);
        let window = end.efcp.room().saturating_mul(udf);
        let room = queue.min(window);
        if room < ROOM_SMALL {
            stream.is_short = true;
        }
        if queue < ROOM_SMALL {
            hold(&mut self.rmt, end, stream, port);
        }
        room
    }

    /// Longest SDU of a flow in bytes: a longer one is refused, and ends the flow when it is a
    /// reliable one. [`usize::MAX`] where SDUs are cut to fit into PDUs.
    #[must_use]
    pub fn sdu_max(&self, flow: FlowKey) -> usize {
        let stream = self.streams.peek_flow(flow);
        stream.map_or(usize::MAX, |stream| stream.delimiter.sdu_max())
    }

    /// Moves what was written on towards the N-1 flow, as far as EFCP and the queue have room:
    /// what waits first, then what is new. What is left of that waits.
    #[inline]
    pub(super) fn drive(&mut self, owner: Owner, sdus: &mut impl Iterator<Item = (P, bool)>) {
        let Some(stream) = self.streams.get(owner) else {
            return;
        };
        let end = self.ends.get_mut(stream.current);
        let Some(end) = end.filter(|end| end.is_connected) else {
            // The other end is not known yet.
            if wait(stream, sdus) {
                self.mark_owner(owner);
            }
            return;
        };
        let was_broken = stream.broken.is_some();
        give_udfs(&mut self.rmt, end, stream);
        while stream.broken.is_none() {
            let is_boundary = !stream.is_inside;
            if stream.has_udfs() || (is_boundary && stream.is_switching) {
                break;
            }
            let is_new = stream.pending.is_empty();
            let new = if is_new { sdus.next() } else { None };
            if is_new && new.is_none() {
                break;
            }
            let (port, room) = end.queue_room(&self.rmt);
            if room == 0 {
                new.into_iter()
                    .for_each(|(sdu, more)| stream.push_pending(sdu, more));
                hold(&mut self.rmt, end, stream, port);
                break;
            }
            let Some((sdu, more)) = new.or_else(|| stream.pop_pending()) else {
                break;
            };
            stream.is_inside = more;
            let len = sdu.len();
            if let Err(refusal) = stream.delimiter.write(sdu, more) {
                let whole = (is_boundary && !more).then_some(len);
                let reason = refused(end, stream, refusal, whole, &mut self.events);
                self.rmt.counters.drop_one(reason);
            }
            if stream.has_udfs() {
                pass_udfs(&mut self.rmt, end, stream);
            }
        }
        if stream.broken.is_some() {
            self.rmt
                .counters
                .drop_many(DropReason::NoFlow, sdus.count() as u64);
        }
        let is_left = wait(stream, sdus);
        let is_over = stream.is_finishing && stream.pending.is_empty();
        if !stream.is_inside && (is_over || stream.is_switching) && stream.broken.is_none() {
            conclude(&mut self.rmt, end, stream);
        }
        if let Some(reason) = stream.broken.as_deref().filter(|_| !was_broken) {
            self.events.push_back(failed(owner, reason));
        }
        if !end.is_dirty {
            end.is_dirty = true;
            self.dirty.push(end.cep);
        }
        end.arm(&mut self.rmt);
        if is_left {
            self.mark_owner(owner);
        }
    }

    /// The queue of the N-1 flow has got shorter: the flow goes on.
    pub(super) fn release(&mut self, key: FlowKey) {
        let Some(stream) = self.streams.flow(key) else {
            return;
        };
        stream.is_held = false;
        if stream.is_closed {
            return;
        }
        self.drive(Owner::Flow(key), &mut core::iter::empty());
        self.announce(key);
    }

    /// Tells the writer of a flow when it may write again.
    pub(super) fn announce(&mut self, key: FlowKey) {
        let Some(stream) = self.streams.flow(key) else {
            return;
        };
        if !stream.is_short || stream.is_room_listed || !stream.pending.is_empty() {
            return;
        }
        let Some(end) = self.ends.get_mut(stream.current) else {
            return;
        };
        if !end.is_connected || end.efcp.room() < UDFS_FEW {
            return;
        }
        let (port, room) = end.queue_room(&self.rmt);
        if room == 0 {
            // A window that has opened may have filled the queue, and no other may open soon.
            return hold(&mut self.rmt, end, stream, port);
        }
        stream.is_short = false;
        stream.is_room_listed = true;
        self.rooms.push_back(key);
    }

    /// What a burst left undone for one connection.
    pub(super) fn finish_burst(&mut self, cep: CepId) {
        let now = self.rmt.now;
        let Some(end) = self.ends.get_mut(cep) else {
            return;
        };
        end.is_dirty = false;
        let owner = end.owner;
        if end.efcp.is_deliverable() {
            self.pull(owner);
        }
        let Some(end) = self.ends.get_mut(cep) else {
            return;
        };
        if let Some(stream) = self.streams.get(owner) {
            let was_broken = stream.broken.is_some();
            if stream.current == cep && !stream.delimiter.is_empty() {
                if stream.delimiter.flush().is_err() {
                    self.rmt.counters.drop_one(DropReason::NoBuffer);
                    broke(end, stream, NO_BUFFER);
                }
                give_udfs(&mut self.rmt, end, stream);
            }
            if stream.room != usize::MAX && end.has_window {
                let credit = end.credit(stream.room_left());
                end.efcp.set_credit(now, credit);
            }
            if stream.delimiter.keep().is_err() {
                self.rmt.counters.drop_one(DropReason::NoBuffer);
                if stream.current == cep {
                    broke(end, stream, NO_BUFFER);
                }
            }
            if let Some(reason) = stream.broken.as_deref().filter(|_| !was_broken) {
                self.events.push_back(failed(end.owner, reason));
            }
        }
        end.efcp.end_of_burst(now);
        end.assembler.keep();
        end.transmit(&mut self.rmt);
        end.arm(&mut self.rmt);
        self.hear(cep);
    }

    pub(super) fn mark_unkept(&mut self, key: FlowKey) {
        if let Some(stream) = self.streams.flow(key)
            && !stream.is_unkept
        {
            stream.is_unkept = true;
            self.unkept.push(key);
        }
    }

    fn mark_owner(&mut self, owner: Owner) {
        // What is written to channels is in vectors of its own.
        if let Owner::Flow(key) = owner {
            self.mark_unkept(key);
        }
    }

    /// Makes what waits in flows last beyond the burst: where nothing moves at present, or
    /// everywhere.
    pub(super) fn keep_streams(&mut self, everything: bool) {
        let mut index = 0;
        while let Some(key) = self.unkept.get(index).copied() {
            if let Some(stream) = self.streams.flow(key) {
                if !everything && stream.is_listed && stream.pending.is_empty() {
                    index += 1;
                    continue;
                }
                stream.is_unkept = false;
                let lost = stream.keep();
                if lost > 0 {
                    self.rmt.counters.drop_many(DropReason::NoBuffer, lost);
                    self.lose(key);
                }
            }
            self.unkept.swap_remove(index);
        }
    }

    /// SDUs of a flow were lost for lack of buffers. A reliable flow is over then.
    fn lose(&mut self, key: FlowKey) {
        let Some(stream) = self.streams.flow(key) else {
            return;
        };
        if let Some(end) = self.ends.get_mut(stream.current) {
            broke(end, stream, NO_BUFFER);
        }
        if let Some(reason) = stream.broken.as_deref() {
            self.events.push_back(failed(Owner::Flow(key), reason));
        }
    }
}

const NO_BUFFER: &str = "no buffer for an SDU of a reliable flow";

/// Something that was written is lost. A reliable flow rather ends than goes on without it.
#[cold]
fn broke<P: Payload>(end: &End<P>, stream: &mut Stream<P>, reason: &str) {
    if end.is_reliable {
        stream.broken.get_or_insert_with(|| reason.into());
    }
}

/// What becomes of a flow one of whose SDUs was refused. Of a whole one the length is told.
#[cold]
fn refused<P: Payload>(
    end: &End<P>,
    stream: &mut Stream<P>,
    refusal: Refusal,
    whole: Option<usize>,
    events: &mut VecDeque<TransferEvent>,
) -> DropReason {
    if refusal == Refusal::NoBuffer {
        broke(end, stream, NO_BUFFER);
        return DropReason::NoBuffer;
    }
    let text = too_long(stream, whole);
    broke(end, stream, &text);
    if !end.is_reliable && !stream.is_refusal_told {
        stream.is_refusal_told = true;
        events.push_back(TransferEvent::Notice { text });
    }
    DropReason::SduTooLong
}

fn too_long<P: Payload>(stream: &Stream<P>, whole: Option<usize>) -> String {
    let most = stream.delimiter.sdu_max();
    match (stream.owner, whole) {
        (Owner::Flow(FlowKey(key)), Some(len)) => {
            format!("flow {key}: an SDU of {len} bytes was refused: it carries {most} at most")
        }
        (Owner::Flow(FlowKey(key)), None) => {
            format!("flow {key}: an SDU of more than {most} bytes was refused")
        }
        (Owner::Channel(_), _) => format!("a message of more than {most} bytes was refused"),
    }
}

fn failed(owner: Owner, reason: &str) -> TransferEvent {
    TransferEvent::Failed {
        owner,
        reason: reason.into(),
    }
}

/// What is new waits. True when something does.
fn wait<P: Payload>(stream: &mut Stream<P>, sdus: &mut impl Iterator<Item = (P, bool)>) -> bool {
    sdus.for_each(|(sdu, more)| stream.push_pending(sdu, more));
    !stream.pending.is_empty()
}

/// Sends what EFCP has to send, then hands UDFs to it as far as it takes them, and sends those.
pub(super) fn give_udfs<P: Payload>(
    rmt: &mut super::Rmt<P>,
    end: &mut End<P>,
    stream: &mut Stream<P>,
) {
    end.transmit(rmt);
    if stream.has_udfs() {
        pass_udfs(rmt, end, stream);
    }
}

/// Hands UDFs to EFCP as far as it takes them, and sends. Those that nothing holds back do not
/// wait in its queue.
#[inline]
fn pass_udfs<P: Payload>(rmt: &mut super::Rmt<P>, end: &mut End<P>, stream: &mut Stream<P>) {
    loop {
        let (mut is_full, mut is_queued) = (false, false);
        while stream.has_udfs() && stream.broken.is_none() {
            if end.efcp.room() == 0 {
                is_full = true;
                break;
            }
            let Some(udf) = stream.delimiter.poll() else {
                break;
            };
            match end.pass(udf, rmt) {
                Some(is_sent) => is_queued |= !is_sent,
                None => {
                    rmt.counters.drop_one(DropReason::NoBuffer);
                    broke(end, stream, NO_BUFFER);
                }
            }
        }
        if is_full || is_queued {
            end.transmit(rmt);
        }
        if !is_full || end.efcp.room() == 0 {
            return;
        }
    }
}

/// The flow waits for the queue of its N-1 flow to get shorter.
fn hold<P: Payload>(
    rmt: &mut super::Rmt<P>,
    end: &End<P>,
    stream: &mut Stream<P>,
    port: Option<u32>,
) {
    if stream.is_held {
        return;
    }
    if let (Some(port), Lane::Class(class), Owner::Flow(key)) = (port, end.lane, stream.owner)
        && let Some(port) = rmt.port_mut(port)
    {
        port.hold(class, key);
        stream.is_held = true;
    }
}

/// Nothing more will be written to the present connection.
fn conclude<P: Payload>(rmt: &mut super::Rmt<P>, end: &mut End<P>, stream: &mut Stream<P>) {
    if stream.delimiter.flush().is_err() {
        rmt.counters.drop_one(DropReason::NoBuffer);
        broke(end, stream, NO_BUFFER);
    }
    give_udfs(rmt, end, stream);
    if stream.broken.is_none() && stream.delimiter.is_empty() {
        end.efcp.finish(rmt.now);
        end.transmit(rmt);
    }
}
