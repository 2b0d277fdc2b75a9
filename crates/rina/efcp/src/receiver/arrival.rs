//! How the receiver processes an arriving data PDU.

use carina_time::Instant;
use carina_wire::Payload;

use super::{Delivered, EARLY_MAX, JUMP, LOOK_BACK, Previous, Receiver, Slot};
use crate::counters::{Counters, Discard};
use crate::event::FailReason;
use crate::profile::FirstNumber;
use crate::seq;

impl<P: Payload> Receiver<P> {
    /// Processes a data PDU whose sequence number on the wire is `wire`.
    pub(crate) fn on_data(
        &mut self,
        now: Instant,
        wire: u64,
        drf: bool,
        ecn: bool,
        udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        self.forget_when_silent(now);
        if !self.is_running {
            return self.on_first(now, wire, drf, ecn, udf, counters);
        }
        let number = seq::extend(wire, self.left, self.bits);
        if drf && number != Some(self.left) && self.is_new_run(now, number, counters)? {
            self.begin(now, wire, true);
            return self.on_first(now, wire, drf, ecn, udf, counters);
        }
        let Some(number) = number else {
            return self.on_far_number(now, self.run_start(wire), ecn, udf, counters);
        };
        if self.is_previous(now, number) {
            return Err(Discard::StaleRun);
        }
        if number < self.left {
            return self.on_old(now, number, ecn, udf, counters);
        }
        if self.is_reliable && number == self.left && self.last_of_run() == Some(number) {
            // A sender that starts a new run in time never uses this number.
            self.broken = Some(FailReason::PeerExhausted);
            return Err(Discard::BeyondWindow);
        }
        let end = match self.window {
            Some(_) => self.right,
            None => self.highest.saturating_add(JUMP),
        };
        if number >= end {
            if !self.is_reliable && number - end >= JUMP {
                return self.on_far_number(now, number, ecn, udf, counters);
            }
            return Err(Discard::BeyondWindow);
        }
        self.take(now, number, udf, counters)?;
        self.note_accepted(now, number, ecn, counters);
        Ok(())
    }

    pub(super) fn forget_when_silent(&mut self, now: Instant) {
        if self.is_running && now >= self.heard_at + self.delta_t * 2 {
            self.forget();
        }
    }

    /// Stores or delivers a UDF inside the window.
    fn take(
        &mut self,
        now: Instant,
        number: u64,
        udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        if self.window.is_none() && self.ready.len() as u64 >= self.reorder_max {
            return Err(Discard::NoRoom);
        }
        if number == self.left && self.ring.is_empty() {
            self.left += 1;
            self.highest = self.highest.max(self.left);
            let gap_before = core::mem::take(&mut self.is_gap);
            self.ready.push_back(Delivered {
                udf,
                seq: number,
                gap_before,
            });
            return Ok(());
        }
        self.store(now, number, udf, counters)
    }

    fn store(
        &mut self,
        now: Instant,
        number: u64,
        mut udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        if self.window.is_none() && number - self.left >= self.reorder_max {
            self.slide(now, number + 1 - self.reorder_max, counters);
        }
        let index = usize::try_from(number - self.left).map_err(|_| Discard::BeyondWindow)?;
        if self.ring.get(index).and_then(Slot::received_at).is_some() {
            if self.is_reliable {
                self.note_twice(number);
            }
            return Err(Discard::Duplicate);
        }
        // The UDF waits for an earlier PDU, which may take a round trip. So it must outlive the
        // burst.
        if self.is_in_order && !udf.keep() {
            return Err(Discard::NoBuffer);
        }
        let is_first = self.ring.is_empty();
        while self.ring.len() <= index {
            self.ring.push_back(Slot::Missing);
        }
        self.ring[index] = if self.is_in_order {
            Slot::Held(now, udf)
        } else {
            self.ready.push_back(Delivered {
                udf,
                seq: number,
                gap_before: false,
            });
            Slot::Done(now)
        };
        self.highest = self.highest.max(number + 1);
        if is_first || number < self.gap_end {
            self.gap_end = number;
        }
        if self.is_reliable {
            // A new gap, or one that is filled: the sender should know at once.
            let is_news = self.ranges.add(number) || index == 0;
            self.is_ack_due |= is_news || !self.profile.selective;
        }
        if index == 0 || is_first || number == self.gap_end {
            self.advance(now, counters);
        }
        Ok(())
    }

    /// Without a window: moves the left edge to `to`, and delivers the held UDFs below it.
    fn slide(&mut self, now: Instant, to: u64, counters: &mut Counters) {
        while self.left < to && !self.ring.is_empty() {
            let next = self.gap_end.clamp(self.left, to);
            if next > self.left {
                self.give_up(next, counters);
            }
            if self.left < to {
                self.gap_end = self.left;
                self.advance(now, counters);
            }
        }
        if self.left < to {
            self.give_up(to, counters);
        }
        // The ring must start with a missing PDU.
        self.advance(now, counters);
    }

    /// Updates the state that every accepted PDU changes.
    fn note_accepted(&mut self, now: Instant, number: u64, ecn: bool, counters: &mut Counters) {
        self.heard_at = now;
        self.candidate = None;
        if ecn {
            self.marks = self.marks.wrapping_add(1);
            counters.marks_received += 1;
        }
        self.is_ack_due |= self.answers_every;
        if self.is_reliable {
            self.cause = number;
            self.cause_at = now;
            self.unacked += 1;
            if self.unacked >= self.ack_policy.every.max(1) {
                self.is_ack_due = true;
            }
            if self.ack_at == Instant::MAX {
                self.ack_at = now + self.a;
            }
        }
    }

    /// Processes a PDU whose number is below the left edge.
    fn on_old(
        &mut self,
        now: Instant,
        number: u64,
        ecn: bool,
        udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        if !self.is_reliable && self.left - number > JUMP.max(self.reorder_max) {
            return self.on_far_number(now, number, ecn, udf, counters);
        }
        if self.answers_old && number >= self.start {
            // The acknowledgement was lost, or the sender retransmitted too early: acknowledge
            // again.
            self.heard_at = now;
            self.cause = number;
            self.cause_at = now;
            self.note_twice(number);
        }
        Err(Discard::Duplicate)
    }

    /// Notes that a PDU arrived twice. The sender should learn at once that its retransmission was
    /// unnecessary.
    fn note_twice(&mut self, number: u64) {
        self.is_ack_due = true;
        self.twice = match self.twice {
            Some((start, end)) if (start..=end).contains(&number) => {
                Some((start, end.max(number + 1)))
            }
            _ => Some((number, number + 1)),
        };
    }

    /// Whether a PDU with the DRF that is not the next expected one starts a new run.
    fn is_new_run(
        &mut self,
        now: Instant,
        number: Option<u64>,
        _counters: &mut Counters,
    ) -> Result<bool, Discard> {
        let Some(number) = number else {
            return Ok(true);
        };
        if self.is_previous(now, number) {
            return Err(Discard::StaleRun);
        }
        if self.profile.drf_on_every {
            return Ok(self.is_far(number));
        }
        if self.profile.first == FirstNumber::Zero && self.is_begun_again(now, number) {
            return Ok(true);
        }
        if !self.is_start_known && number < self.gap_end.max(self.left + 1) {
            if number < self.left && self.left - number > JUMP {
                return Ok(true);
            }
            self.is_start_known = true;
            self.is_start_guessed = false;
            if number < self.left {
                self.start = number;
                return Err(Discard::Duplicate);
            }
            // The start is known now, and no PDU below it exists.
            let below = usize::try_from(number - self.left).unwrap_or(usize::MAX);
            let below = below.min(self.ring.len());
            self.ring.drain(..below);
            (self.start, self.left) = (number, number);
            self.is_gap = false;
            return Ok(false);
        }
        // The receiver gave up the gap below the first PDU it received, and now the first PDU of
        // the run arrives late.
        if self.is_start_guessed && number < self.left && self.left - number <= JUMP {
            self.is_start_guessed = false;
            self.start = number;
            return Err(Discard::Duplicate);
        }
        let end = match self.window {
            Some(_) => self.right,
            None => self.highest.saturating_add(JUMP),
        };
        // A DRF inside the current run does not start a new one: some senders set it on every PDU.
        Ok(!(self.start..end).contains(&number))
    }

    /// If every PDU has the data run flag: whether this number is too far away to belong to the
    /// current run.
    fn is_far(&self, number: u64) -> bool {
        let reach = JUMP.min(seq::space(self.bits) / 8);
        let end = self.right.max(self.highest);
        number.saturating_add(reach) < self.left || number >= end.saturating_add(reach)
    }

    /// If every run starts with 0: whether this PDU starts a new run. After a silence of Δt it
    /// cannot be a late copy of the current run's first PDU.
    fn is_begun_again(&self, now: Instant, number: u64) -> bool {
        let is_first = seq::truncate(number, self.bits) == 0;
        is_first && number < self.left && now >= self.heard_at + self.delta_t
    }

    /// The internal number with which a run starts whose first number on the wire is `wire`.
    fn run_start(&self, wire: u64) -> u64 {
        self.base.saturating_add(seq::truncate(wire, self.bits))
    }

    fn is_previous(&mut self, now: Instant, number: u64) -> bool {
        let Some(previous) = self.previous else {
            return false;
        };
        if now >= previous.until {
            self.previous = None;
            return false;
        }
        (previous.start..previous.end).contains(&number)
    }

    /// Leaves the current run. Its numbers are remembered, to recognize late PDUs.
    fn begin(&mut self, now: Instant, wire: u64, is_start_known: bool) {
        let start = self.run_start(wire);
        let previous = Previous {
            start: self.start,
            end: self.highest.max(self.right),
            until: now + self.delta_t,
        };
        self.forget();
        let reach = start.saturating_add(JUMP);
        let overlaps = start < previous.end && previous.start < reach;
        self.previous = (!overlaps).then_some(previous);
        self.is_start_known = is_start_known;
    }

    /// Processes a PDU whose number is far from the run. Possible reasons: the peer lost its state
    /// and its PDU with the DRF was lost; many PDUs in a row were lost; or the PDU is late. Only a
    /// second PDU slightly above the first starts a new run.
    fn on_far_number(
        &mut self,
        now: Instant,
        number: u64,
        ecn: bool,
        udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        if self.is_reliable {
            return Err(Discard::StaleRun);
        }
        let is_confirmed = self
            .candidate
            .is_some_and(|candidate| number > candidate && number - candidate < JUMP);
        if !is_confirmed {
            self.candidate = Some(number);
            return Err(Discard::StaleRun);
        }
        self.begin(now, number, false);
        self.on_first(now, number, false, ecn, udf, counters)
    }

    /// Processes a PDU while no run is open.
    fn on_first(
        &mut self,
        now: Instant,
        wire: u64,
        drf: bool,
        ecn: bool,
        mut udf: P,
        counters: &mut Counters,
    ) -> Result<(), Discard> {
        let number = self.run_start(wire);
        if self.is_previous(now, number) {
            return Err(Discard::StaleRun);
        }
        if !drf && self.is_reliable && !self.is_first_enough(wire) {
            if self.early.len() >= EARLY_MAX {
                return Err(Discard::TooEarly);
            }
            if self.early.iter().any(|(early, _)| *early == number) {
                return Err(Discard::Duplicate);
            }
            if !udf.keep() {
                return Err(Discard::NoBuffer);
            }
            self.heard_at = now;
            self.early.push((number, udf));
            return Ok(());
        }
        let is_start = drf || self.is_reliable;
        let look_back = if is_start {
            0
        } else {
            let credit_max = self
                .window
                .map_or(u64::MAX, |w| u64::from(w.initial_credit));
            let lowest = seq::truncate(wire, self.bits);
            LOOK_BACK
                .min(credit_max)
                .min(self.reorder_max / 2)
                .min(lowest)
        };
        self.enter(number - look_back, is_start);
        self.is_new_run = drf;
        let is_middle = !drf || self.profile.drf_on_every;
        if is_middle && let Some(window) = self.window {
            // Before this end lost its state, it may have granted the sender a window up to this
            // edge.
            let credit_max = window.credit_max.max(window.initial_credit);
            self.right = number.saturating_add(u64::from(credit_max));
        }
        self.is_gap = !is_start && look_back == 0 && self.is_in_order;
        self.marks = 0;
        self.take(now, number, udf, counters)?;
        self.note_accepted(now, number, ecn, counters);
        // Answer the first PDU of a run at once, because the sender needs a round-trip time and its
        // window.
        self.is_ack_due |= self.window.is_some();
        for (wire, udf) in core::mem::take(&mut self.early) {
            let early = seq::extend(wire, self.left, self.bits);
            let is_ours = early.is_some_and(|early| early > number && early < self.right);
            let taken = match early {
                Some(early) if is_ours => self.take(now, early, udf, counters),
                _ => Err(Discard::StaleRun),
            };
            if let Err(reason) = taken {
                counters.discard(reason);
            }
        }
        Ok(())
    }

    /// Whether a PDU without the data run flag is accepted as the first of a run. If runs start
    /// with 0 and this is the first run, it must be number 0, or a number that the sender could not
    /// have sent in the first window.
    fn is_first_enough(&self, wire: u64) -> bool {
        let number = seq::truncate(wire, self.bits);
        let window = self.window.map_or(0, |window| window.initial_credit);
        match self.profile.first {
            _ if !self.profile.takes_any_first => false,
            FirstNumber::Zero if !self.has_run => number == 0 || number >= u64::from(window),
            _ => true,
        }
    }

    fn enter(&mut self, left: u64, is_start_known: bool) {
        self.is_running = true;
        self.has_run = true;
        self.is_start_known = is_start_known;
        self.is_start_guessed = !is_start_known;
        (self.start, self.left, self.highest) = (left, left, left);
        self.gap_end = left;
        let initial = self.window.map_or(0, |window| window.initial_credit);
        self.right = left.saturating_add(u64::from(initial));
    }

    /// Processes a rendezvous PDU: the sender has sent everything below `wire` and its window is
    /// closed.
    pub(crate) fn on_rendezvous(
        &mut self,
        now: Instant,
        wire: Option<u64>,
        counters: &mut Counters,
    ) {
        self.forget_when_silent(now);
        let Some(wire) = wire else {
            self.is_ack_due = self.is_running;
            return;
        };
        if !self.is_running {
            if !self.is_reliable && self.window.is_some() {
                // All PDUs of the run so far were lost. The run continues from here.
                self.enter(self.run_start(wire), false);
                self.heard_at = now;
                self.is_gap = self.is_in_order;
                self.is_ack_due = true;
            }
            return;
        }
        let number = seq::extend(wire, self.left, self.bits);
        let Some(number) = number.filter(|number| *number <= self.right) else {
            self.rendezvous_elsewhere(now, wire, number);
            return;
        };
        if self.is_previous(now, number) {
            counters.discard(Discard::StaleRun);
            return;
        }
        self.heard_at = now;
        self.is_ack_due = true;
        if !self.is_reliable && number > self.left {
            let at = self.announced.map_or(now, |(_, at)| at);
            self.announced = Some((number, at));
            self.advance(now, counters);
        }
    }

    /// Processes a rendezvous PDU with a position outside the window. The second one with the same
    /// position starts a new run, whose beginning was lost.
    fn rendezvous_elsewhere(&mut self, now: Instant, wire: u64, number: Option<u64>) {
        let number = number.unwrap_or(wire);
        if self.is_reliable || self.is_previous(now, number) {
            return;
        }
        if self.candidate != Some(number) {
            self.candidate = Some(number);
            return;
        }
        self.begin(now, wire, false);
        self.enter(self.run_start(wire), false);
        self.heard_at = now;
        self.is_gap = self.is_in_order;
        self.is_ack_due = true;
    }
}
