//! What reordering and needless repairs teach.
//!
//! How much longer than usual a PDU may take that others overtake is measured, since to wait for
//! just that is neither too impatient nor too slow. Usual is the smoothed round-trip time, or what
//! the one took that came before it although it was sent later: whichever is longer, since that one
//! may have gone a shorter way.
//!
//! Which copy of a PDU that was sent again has arrived, an acknowledgement does not tell. That the
//! repair was needless shows when the answer comes sooner than any could (Eifel, RFC 3522), or when
//! both copies have arrived and the other side says so (RFC 2883, RFC 3708).

use alloc::collections::VecDeque;
use core::ops::Range;

use carina_time::{Duration, Instant};
use carina_wire::Payload;

use super::{News, Sender, Sent};
use crate::counters::Counters;
use crate::seq;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reordering {
    /// The latest in ns, during these repairs and during those before; none while all came in
    /// order.
    present: Option<Duration>,
    past: Option<Duration>,
    /// Repairs of the present.
    repairs: u32,
    /// What was sent again, oldest first: the copies of the last repairs.
    again: VecDeque<Again>,
}

/// A PDU that was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) number: u64,
    /// When it was sent for the first time, in ns.
    pub(super) first_at: Instant,
    /// The repair that it is part of; none for a probe, which declares nothing lost.
    pub(super) repair: Option<u64>,
    /// By how much it was late in ns if what came was the first copy; none before it came.
    pub(super) late: Option<Duration>,
}

impl Reordering {
    /// A PDU was late by so much, or was out of order at least.
    pub(super) fn note(&mut self, late: Duration) {
        self.present = self.present.max(Some(late));
    }

    /// How long to wait for a PDU beyond what has come already takes; none while all come in
    /// order.
    pub(super) fn window(&self, rtt: Duration) -> Option<Duration> {
        let most = self.present.max(self.past)?;
        let with_margin = most + most / 4;
        // Not of the smallest round-trip time, as in RFC 8985: that is of those that overtake.
        Some(with_margin.clamp(rtt / 4, rtt.max(Duration::from_nanos(1))))
    }

    /// A repair is over. What is long past counts no more.
    pub(super) fn on_repaired(&mut self) {
        self.repairs += 1;
        if self.repairs >= REPAIRS {
            (self.past, self.repairs) = (self.present.take(), 0);
        }
    }

    /// A PDU is sent again. One that was sent three times yields no sample.
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

    /// One of the copies of a PDU that was sent again has arrived: the first, when it came sooner
    /// than the other could.
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

    /// The numbers in `range` came twice, so the first copies had come and nothing was to repair.
    /// How many there were, and of them those of the last repair.
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

    /// A repair begins. What was sent again for one before the last is forgotten.
    pub(super) fn on_repair(&mut self, repair: u64) {
        let is_old = |again: &Again| again.repair.is_none_or(|of| of + 1 < repair);
        while self.again.front().is_some_and(is_old) {
            self.again.pop_front();
        }
    }

    /// A new run begins: numbers mean others.
    pub(super) fn restart(&mut self) {
        self.again.clear();
    }
}

impl<P: Payload> Sender<P> {
    /// A PDU was acknowledged that had been sent again or given up, or that others have overtaken.
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
        // PDUs that one acknowledgement reports may have arrived in order.
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
            // What was given up and not yet sent again has arrived after all.
            news.wrong += u64::from(sent.is_lost);
            // Without ranges, an acknowledgement does not report at once what arrives behind a gap.
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

    /// What the other side says has come twice: a first range that is acknowledged by the rest
    /// (RFC 2883).
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

    /// The numbers in `range` came twice. How many of them the last repair was wrong about.
    pub(super) fn on_twice(&mut self, range: Range<u64>, counters: &mut Counters) -> u64 {
        let last = self.loss.repairs;
        let (count, of_last) = self.loss.reordering.on_twice(range, last);
        counters.spurious += count;
        of_last
    }

    /// Learns from what was declared lost and had arrived, and ends a repair.
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

/// After so many repairs, to twice that, lateness counts no more.
const REPAIRS: u32 = 16;

/// Most PDUs that are remembered as sent again.
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
        // Those that have arrived may have arrived twice.
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
