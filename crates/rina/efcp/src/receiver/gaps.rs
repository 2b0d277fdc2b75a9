//! Gaps: how long the receiver waits for missing PDUs, and how its left edge moves over them.

use carina_time::Instant;
use carina_wire::Payload;

use super::{Delivered, Receiver, Slot};
use crate::counters::Counters;

impl<P: Payload> Receiver<P> {
    /// Moves the left edge over received PDUs, and over gaps for which the receiver does not wait
    /// any longer.
    pub(super) fn advance(&mut self, now: Instant, counters: &mut Counters) {
        loop {
            while let Some(slot) = self.ring.front() {
                if matches!(slot, Slot::Missing) {
                    break;
                }
                if let Some(Slot::Held(_, udf)) = self.ring.pop_front() {
                    let gap_before = core::mem::take(&mut self.is_gap);
                    let seq = self.left;
                    self.ready.push_back(Delivered {
                        udf,
                        seq,
                        gap_before,
                    });
                }
                self.left += 1;
            }
            self.ranges.pass(self.left);
            self.gap_at = Instant::MAX;
            if self.ring.is_empty() {
                break;
            }
            if self.gap_end < self.left {
                let present = |slot: &Slot<P>| slot.received_at().is_some();
                let at = self.ring.iter().position(present).unwrap_or(0);
                self.gap_end = self.left + at as u64;
            }
            let at = self.gap_deadline();
            if at > now {
                self.gap_at = at;
                return;
            }
            self.give_up(self.gap_end, counters);
        }
        self.reach_announced(now, counters);
    }

    /// When the receiver gives up the gap at the left edge.
    fn gap_deadline(&self) -> Instant {
        let missing = self.gap_end - self.left;
        let index = usize::try_from(missing).unwrap_or(usize::MAX);
        let seen_at = self.ring.get(index).and_then(Slot::received_at);
        let at = seen_at.unwrap_or_default() + self.a;
        let gap_max = self.gap_max;
        match (self.is_reliable, gap_max) {
            (true, Some(missing_max)) if missing <= missing_max && missing_max > 0 => at,
            (true, _) => Instant::MAX,
            (false, Some(missing_max)) if self.is_start_known && missing > missing_max => {
                Instant::ZERO
            }
            (false, _) => at,
        }
    }

    /// Moves the left edge to `to` and gives up the missing UDFs below it.
    pub(super) fn give_up(&mut self, to: u64, counters: &mut Counters) {
        let count = to.saturating_sub(self.left);
        if self.is_start_known {
            counters.given_up += count;
        }
        let dropped = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .min(self.ring.len());
        self.ring.drain(..dropped);
        self.left = self.left.max(to);
        self.highest = self.highest.max(self.left);
        self.is_start_known = true;
        self.is_gap = self.is_in_order;
    }

    /// Gives up missing UDFs below the number that the sender has announced as sent, once A has
    /// passed since.
    fn reach_announced(&mut self, now: Instant, counters: &mut Counters) {
        let Some((seq, at)) = self.announced else {
            return;
        };
        if seq <= self.left {
            self.announced = None;
        } else if now >= at + self.a && self.ring.is_empty() {
            self.announced = None;
            self.give_up(seq, counters);
            self.is_ack_due = true;
        }
    }
}
