//! Learns from reordering and from unnecessary retransmissions how long to wait for a late PDU.
//!
//! The sender measures how late a PDU is that others overtake. Waiting for exactly that time is
//! neither too impatient nor too slow. The lateness is the PDU's round-trip time minus the usual
//! one. The usual one is the smoothed round-trip time, or the round-trip time of the PDU that
//! overtook it, whichever is longer, since the overtaking PDU may have taken a shorter path.
//!
//! An acknowledgement does not tell which copy of a retransmitted PDU has arrived. A retransmission
//! was unnecessary if the acknowledgement comes sooner than the second copy could have caused it
//! (Eifel, RFC 3522), or if both copies have arrived and the peer reports it (RFC 2883, RFC 3708).

use alloc::collections::VecDeque;
use core::ops::Range;

use carina_time::{Duration, Instant};
use carina_wire::Payload;

use super::{News, Sender, Sent};
use crate::counters::Counters;
use crate::seq;

/// Observed lateness of PDUs, and a record of recent retransmissions.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    /// Greatest lateness observed during the current group of repairs, and during the group before.
    /// `None` if all PDUs arrived in order.
    present: Option<Duration>,
    past: Option<Duration>,
    /// Number of repairs in the current group.
    repairs: u32,
    /// Retransmitted PDUs of the last two repairs, oldest first.
    again: VecDeque<Again>,
}

/// A retransmitted PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) number: u64,
    /// Time at which the PDU was sent for the first time.
    pub(super) first_at: Instant,
    /// The repair to which the retransmission belongs; `None` for a probe, which is no evidence of
    /// a loss.
    pub(super) repair: Option<u64>,
    /// How late the first copy was, if it is the copy that arrived. `None` until a copy has
    /// arrived.
    pub(super) late: Option<Duration>,
}

impl Reordering {
    /// Notes that a PDU arrived out of order, late by `late`.
    pub(super) fn note(&mut self, late: Duration) {
        self.present = self.present.max(Some(late));
    }

    /// How long to wait for a PDU in addition to the usual round-trip time. `None` while all PDUs
    /// arrive in order.
    pub(super) fn window(&self, rtt: Duration) -> Option<Duration> {
        let reordering_max = self.present.max(self.past)?;
        let with_margin = reordering_max + reordering_max / 4;
        // RFC 8985 uses the smallest round-trip time here, but that is the time of the PDUs that
        // overtake.
        Some(with_margin.clamp(rtt / 4, rtt.max(Duration::from_nanos(1))))
    }

    /// Ends a repair. Lateness observed long ago is forgotten.
    pub(super) fn on_repaired(&mut self) {
        self.repairs += 1;
        if self.repairs >= REPAIRS {
            (self.past, self.repairs) = (self.present.take(), 0);
        }
    }

    /// Notes that a PDU is retransmitted. A PDU that is sent a third time yields no sample.
    pub(super) fn on_again(&mut self, again: Again, is_third: bool) {
        if is_third {
            self.again.retain(|other| other.number != again.number);
            return;
        }
        if self.again.len() >= AGAIN_MAX {
            self.again.pop_front();
        }
        self.again.push_back(again);
    }

    /// Notes that a copy of a retransmitted PDU has arrived. `is_first` means that it was the first
    /// copy, because it arrived sooner than the second could.
    pub(super) fn on_resent_arrived(
        &mut self,
        now: Instant,
        number: u64,
        is_first: bool,
        usual: Duration,
    ) {
        let Some(index) = self.again.iter().position(|again| again.number == number) else {
            return;
        };
        let again = &mut self.again[index];
        let late = now.since(again.first_at) - usual;
        again.late = Some(late);
        if is_first {
            self.again.remove(index);
            self.note(late);
        }
    }

    /// Notes that the numbers in `range` arrived twice: the first copies had arrived, so the
    /// retransmissions were unnecessary. Returns how many there were, and how many of those belong
    /// to repair `last`.
    pub(super) fn on_twice(&mut self, range: Range<u64>, last: u64) -> (u64, u64) {
        let (mut count, mut of_last, mut latest) = (0, 0, Duration::ZERO);
        self.again.retain(|again| {
            let Some(late) = again.late.filter(|_| range.contains(&again.number)) else {
                return true;
            };
            count += 1;
            of_last += u64::from(again.repair == Some(last));
            latest = latest.max(late);
            false
        });
        if count > 0 {
            self.note(latest);
        }
        (count, of_last)
    }

    /// Starts a repair. Retransmissions of repairs before the previous one are forgotten.
    pub(super) fn on_repair(&mut self, repair: u64) {
        let is_old = |again: &Again| again.repair.is_none_or(|of| of + 1 < repair);
        while self.again.front().is_some_and(is_old) {
            self.again.pop_front();
        }
    }

    /// Starts a new run, in which numbers identify other PDUs.
    pub(super) fn restart(&mut self) {
        self.again.clear();
    }
}

impl<P: Payload> Sender<P> {
    /// Processes the first acknowledgement of a PDU that was retransmitted or considered lost, or
    /// that others have overtaken.
    #[cold]
    pub(super) fn arrived_oddly(
        &mut self,
        now: Instant,
        number: u64,
        sent: &Sent<P>,
        is_newer: bool,
        news: &mut News,
        counters: &mut Counters,
    ) {
        let loss = &mut self.loss;
        let rtt = now.since(sent.sent_at);
        // PDUs that one acknowledgement reports may have arrived in order, so compare with the
        // state before it.
        let newest = news.newest.unwrap_or_default();
        let usual = newest.2.max(self.rtt.estimate());
        let mut is_too_soon = false;
        if sent.is_resent {
            is_too_soon = rtt < self.rtt.min_rtt() / 2;
            news.wrong += u64::from(is_too_soon);
            counters.spurious += u64::from(is_too_soon);
            loss.reordering
                .on_resent_arrived(now, number, is_too_soon, usual);
        } else {
            // The PDU was considered lost and not retransmitted yet, but it has arrived.
            news.wrong += u64::from(sent.is_lost);
            // Without ranges, an acknowledgement does not report at once a PDU that arrives beyond
            // a gap.
            if (sent.sent_at, number) < (newest.0, newest.1) && !loss.is_blind {
                loss.reordering.note(rtt - usual);
            }
        }
        if !sent.is_lost {
            loss.in_flight -= 1;
        }
        if is_newer && !is_too_soon {
            loss.newest = Some((sent.sent_at, number, rtt));
        }
    }

    /// The range that the peer reports as received twice: a first range that the rest of the
    /// acknowledgement covers (RFC 2883). `None` without such a range.
    pub(super) fn twice(&self, next: u64, ranges: &[(u64, u64)]) -> Option<Range<u64>> {
        let extend = |wire| seq::extend(wire, self.left, self.bits);
        let &(start, end) = ranges.first()?;
        let (start, end) = (extend(start)?, extend(end)?);
        if start < self.start || start >= end {
            return None;
        }
        if end <= next {
            return Some(start..end);
        }
        let &(second_start, second_end) = ranges.get(1)?;
        let (second_start, second_end) = (extend(second_start)?, extend(second_end)?);
        (second_start <= start && end <= second_end).then_some(start..end)
    }

    /// Processes a report that the numbers in `range` arrived twice. Returns how many of them the
    /// last repair had wrongly considered lost.
    pub(super) fn on_twice(&mut self, range: Range<u64>, counters: &mut Counters) -> u64 {
        let last = self.loss.repairs;
        let (count, of_last) = self.loss.reordering.on_twice(range, last);
        counters.spurious += count;
        of_last
    }

    /// Ends a repair when the left edge has passed it. If all its losses turn out to be wrong,
    /// tells congestion control to undo its reduction.
    pub(super) fn learn(&mut self, wrong: u64) {
        let loss = &mut self.loss;
        loss.wrong += wrong;
        if let Some(until) = loss.repair_until {
            if self.left < until {
                return;
            }
            loss.repair_until = None;
            loss.reordering.on_repaired();
        }
        if loss.declared > 0 && loss.wrong >= loss.declared {
            loss.declared = 0;
            self.congestion.on_spurious();
        }
    }
}

/// Number of repairs in a group. An observed lateness is forgotten after one to two groups.
const REPAIRS: u32 = 16;

/// Largest number of retransmitted PDUs that are remembered.
const AGAIN_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    #[test]
    fn the_latest_of_some_repairs_counts() {
        let mut reordering = Reordering::default();
        assert_eq!(reordering.window(ns(1000)), None);
        reordering.note(ns(0));
        assert_eq!(reordering.window(ns(1000)), Some(ns(250)));
        reordering.note(ns(400));
        assert_eq!(reordering.window(ns(1000)), Some(ns(500)));
        assert_eq!(
            reordering.window(ns(300)),
            Some(ns(300)),
            "a round trip at most"
        );
        for _ in 0..REPAIRS {
            reordering.on_repaired();
        }
        reordering.note(ns(240));
        assert_eq!(reordering.window(ns(1000)), Some(ns(500)));
        for _ in 0..REPAIRS {
            reordering.on_repaired();
        }
        assert_eq!(reordering.window(ns(1000)), Some(ns(300)));
        for _ in 0..REPAIRS {
            reordering.on_repaired();
        }
        assert_eq!(reordering.window(ns(1000)), None, "all in order again");
    }

    #[test]
    fn only_the_last_that_were_sent_again_are_remembered() {
        let mut reordering = Reordering::default();
        let again = |number| Again {
            number,
            first_at: Instant::ZERO,
            repair: Some(1),
            late: None,
        };
        for number in 0..600 {
            reordering.on_again(again(number), false);
        }
        // PDUs of which a copy has arrived may have arrived twice.
        for number in [87, 88, 89, 150, 151, 152] {
            reordering.on_resent_arrived(Instant::from_nanos(500), number, number == 89, ns(300));
        }
        assert_eq!(
            reordering.window(ns(1000)),
            Some(ns(250)),
            "89 was late by 200"
        );
        assert_eq!(reordering.on_twice(85..92, 1), (1, 1), "only 88 may have");
        assert_eq!(reordering.on_twice(85..92, 1), (0, 0), "and that is known");
        reordering.on_again(again(150), true);
        assert_eq!(reordering.on_twice(150..151, 1), (0, 0), "sent three times");
        reordering.on_repair(2);
        assert_eq!(
            reordering.on_twice(151..152, 2),
            (1, 0),
            "of the one before"
        );
        reordering.on_repair(3);
        assert_eq!(reordering.on_twice(152..153, 3), (0, 0), "forgotten");
    }
}
