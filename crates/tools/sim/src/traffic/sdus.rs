//! How applications write into their flows, and how they read.

use carina_ipcp::FlowKey;
use carina_wire::{Bytes, Payload};

use crate::model::{Scheduled, SlotId};
use crate::session::State;
use crate::world::World;

impl World {
    /// Lets an application write as much as its flow accepts.
    pub(crate) fn write(&mut self, number: usize, side: usize) {
        let now = self.now();
        let Some((slot, key)) = self.open_end(number, side) else {
            return;
        };
        let session = &mut self.sessions[number];
        let pause = session.request.pause_ns;
        if let Some(end) = &mut session.ends[side] {
            if end.writes_at.is_some_and(|at| at > now) {
                return;
            }
            end.writes_at = None;
        }
        for _ in 0..BURST {
            let Some(instance) = self.slots[slot.0].instance.as_mut() else {
                return;
            };
            let room = instance.member.room(key);
            let session = &mut self.sessions[number];
            let [begun, ..] = session.streams[side].progress();
            let Some((piece, more)) = session.streams[side].write(room) else {
                break;
            };
            if session.written_at[side].len() as u64 == begun {
                session.written_at[side].push(now);
            }
            session.moved_at = now;
            instance.member.on_sdu(now, key, piece, more);
            self.touch(slot);
            if pause > 0 && !more {
                break;
            }
        }
        let stream = &self.sessions[number].streams[side];
        if stream.is_written() {
            self.maybe_close(number);
        } else if self
            .instance(slot)
            .is_some_and(|instance| instance.member.room(key) > 0)
        {
            self.write_later(number, side, pause.max(1_000));
        }
    }

    pub(super) fn write_later(&mut self, number: usize, side: usize, pause: u64) {
        let at = self.now() + self.random.below(pause + 1);
        if let Some(end) = &mut self.sessions[number].ends[side] {
            end.writes_at = Some(at);
        }
        self.queue.put(at, Scheduled::Write(number, side));
    }

    /// Lets an application read a piece.
    pub(crate) fn read(&mut self, number: usize, side: usize, sdu: &Bytes, more: bool) {
        let now = self.now();
        let session = &mut self.sessions[number];
        session.moved_at = now;
        let reader = session.request.readers[side];
        let Some(end) = &mut session.ends[side] else {
            return;
        };
        let (slot, key, state) = (end.slot, end.key, end.state.clone());
        let words = format_args!(
            "session {number} side {side}, {} bytes, more {more}",
            sdu.len()
        );
        self.trace
            .note(now, slot.0 as u64, "read", sdu.as_slice(), words);
        self.tallies.sdus += u64::from(!more);
        self.tallies.sdu_bytes += sdu.len() as u64;
        if state != State::Open {
            return self.fail(format!(
                "session {number} side {side} reads in state {state:?}"
            ));
        }
        end.held += sdu.len();
        if end.held > reader.capacity {
            let (held, capacity) = (end.held, reader.capacity);
            return self.fail(format!(
                "session {number} side {side} has room for {capacity} bytes and is given {held}"
            ));
        }
        if let Err(wrong) = session.streams[1 - side].read(sdu, more) {
            let promise = session.promise;
            return self.fail(format!(
                "session {number} side {side}: {wrong} ({promise:?})"
            ));
        }
        if reader.stops_every > 0 && !end.is_stopped {
            end.until_stop = end.until_stop.saturating_sub(sdu.len() as u64);
            if end.until_stop == 0 {
                end.is_stopped = true;
                end.until_stop = reader.stops_every;
                let at = now + reader.stops_ns;
                self.queue.put(at, Scheduled::Resume(number, side));
            }
        }
        if !end.is_stopped {
            end.held = 0;
        }
        let free = reader.capacity - end.held;
        if let Some(instance) = self.instance(slot) {
            instance.member.set_delivery_room(now, key, free);
            self.touch(slot);
        }
        self.maybe_close(number);
    }

    /// Lets a stopped reader continue.
    pub(crate) fn resume(&mut self, number: usize, side: usize) {
        if self.open_end(number, side).is_some() {
            if let Some(end) = &mut self.sessions[number].ends[side] {
                end.is_stopped = false;
                end.held = 0;
            }
            self.offer_room(number, side);
        }
    }

    pub(super) fn offer_room(&mut self, number: usize, side: usize) {
        let now = self.now();
        let session = &self.sessions[number];
        let capacity = session.request.readers[side].capacity;
        let Some(end) = &session.ends[side] else {
            return;
        };
        let (slot, key, free) = (end.slot, end.key, capacity - end.held);
        if let Some(instance) = self.instance(slot) {
            instance.member.set_delivery_room(now, key, free);
            self.touch(slot);
        }
    }

    pub(super) fn open_end(&self, number: usize, side: usize) -> Option<(SlotId, FlowKey)> {
        let end = self.sessions[number].ends[side].as_ref()?;
        let slot = &self.slots[end.slot.0];
        let is_same = slot.instance.is_some() && slot.incarnation == end.incarnation;
        (end.state == State::Open && is_same).then_some((end.slot, end.key))
    }
}

/// Number of pieces that a writer without pauses writes at once.
const BURST: usize = 32;
