//! The fault layer: impairs what is sent by loss, delay, jitter, reordering, duplication and a
//! limited rate.
//!
//! A kernel may lack `netem`, and data that crosses shared memory never passes it; this layer works
//! for any kind of item. It is deterministic: the same seed, items and times give the same result.
//!
//! ```text
//!   offer --> lost? --> queue full? --> wait for the rate --> delay +- jitter --> take_due
//!                  \--> twice? ----^                     \--> reordered: no delay --^
//! ```

use carina_random::SplitMix;

use crate::error::FaultPlanError;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The impairments that a fault layer applies to items, such as SDUs or frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultPlan {
    /// Share of items that the fault layer drops, 0 to 1.
    pub loss: f64,
    /// Share of items that the fault layer sends twice, 0 to 1.
    pub duplicate: f64,
    /// Share of items that are not delayed and so overtake earlier items, 0 to 1. It has an effect
    /// only with a delay.
    pub reorder: f64,
    /// Time for which every item is held back, in ns.
    pub delay_ns: u64,
    /// The delay of each item varies by up to this much in both directions, in ns. Items stay in
    /// order only if the jitter is smaller than the time between them.
    pub jitter_ns: u64,
    /// Limit of the sending rate in bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Bytes that may wait for the rate or the delay; items beyond that are dropped. One item may
    /// always wait, however long it is.
    pub queue_bytes: usize,
    /// Seed of all random decisions; the same seed gives the same decisions.
    pub seed: u64,
}

impl Default for FaultPlan {
    /// A plan that changes nothing.
    fn default() -> FaultPlan {
        FaultPlan {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            delay_ns: 0,
            jitter_ns: 0,
            rate_bps: 0,
            queue_bytes: 16 << 20,
            seed: 1,
        }
    }
}

impl FaultPlan {
    /// Checks that all values are in range.
    ///
    /// # Errors
    /// The first value that is out of range.
    pub fn check(&self) -> Result<(), FaultPlanError> {
        for (name, share) in [
            ("loss", self.loss),
            ("duplicate", self.duplicate),
            ("reorder", self.reorder),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(FaultPlanError::Share { name, share });
            }
        }
        if self.reorder > 0.0 && self.delay_ns == 0 {
            return Err(FaultPlanError::ReorderWithoutDelay);
        }
        if self.jitter_ns > self.delay_ns {
            return Err(FaultPlanError::JitterAboveDelay {
                jitter_ns: self.jitter_ns,
                delay_ns: self.delay_ns,
            });
        }
        Ok(())
    }

    /// Whether the plan impairs nothing: no loss, delay, duplication or rate limit.
    #[must_use]
    pub fn is_harmless(&self) -> bool {
        let shares = self.loss + self.duplicate + self.reorder;
        shares == 0.0 && self.delay_ns == 0 && self.rate_bps == 0
    }
}

/// Counters of a fault layer: what happened to the items that were offered to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Number of items that were passed to [`Fault::offer`].
    pub offered: u64,
    /// Number of items that [`Fault::take_due`] returned.
    pub passed: u64,
    /// Number of items that were dropped by the plan's `loss`.
    pub lost: u64,
    /// Number of items that were dropped because the queue was full.
    pub overflowed: u64,
    /// Number of copies that duplication added.
    pub duplicated: u64,
    /// Number of items that were not delayed and so could overtake others.
    pub reordered: u64,
}

/// A fault layer: a queue of items in transit from sender to medium, impaired by a [`FaultPlan`].
#[derive(Debug)]
pub struct Fault<T> {
    plan: FaultPlan,
    random: SplitMix,
    queue: BinaryHeap<Reverse<Waiting<T>>>,
    queued_bytes: usize,
    /// Time in ns at which everything offered so far has been sent at the plan's rate.
    busy_until: u64,
    order: u64,
    counts: FaultCounts,
}

impl<T: Clone> Fault<T> {
    /// Passes an item of `bytes` bytes to the fault layer at the time `now` (ns on the caller's
    /// clock). Returns false if the item was dropped.
    pub fn offer(&mut self, now: u64, item: T, bytes: usize) -> bool {
        self.offer_with(now, item, bytes, |item| Some(item.clone()))
    }
}

impl<T> Fault<T> {
    /// Creates a fault layer without items in transit.
    #[must_use]
    pub fn new(plan: FaultPlan) -> Fault<T> {
        Fault {
            plan,
            random: SplitMix::new(plan.seed),
            queue: BinaryHeap::new(),
            queued_bytes: 0,
            busy_until: 0,
            order: 0,
            counts: FaultCounts::default(),
        }
    }

    /// Replaces the plan, for items that are offered from now on.
    pub fn change(&mut self, plan: FaultPlan) {
        self.plan = plan;
    }

    /// Like [`Fault::offer`], for items that the function `copy` duplicates. `copy` returns `None`
    /// if it cannot make a copy now; the item is then sent once.
    pub fn offer_with(
        &mut self,
        now: u64,
        item: T,
        bytes: usize,
        copy: impl FnOnce(&T) -> Option<T>,
    ) -> bool {
        self.counts.offered += 1;
        // All three values are drawn for every item, so that a change of one share does not change
        // the other decisions.
        let (lost, twice, first) = (self.random.unit(), self.random.unit(), self.random.unit());
        if lost < self.plan.loss {
            self.counts.lost += 1;
            return false;
        }
        let overtakes = first < self.plan.reorder;
        let is_twice = twice < self.plan.duplicate;
        let copy = if is_twice { copy(&item) } else { None };
        let is_queued = self.enqueue(now, item, bytes, overtakes);
        if let Some(copy) = copy
            && self.enqueue(now, copy, bytes, overtakes)
        {
            self.counts.duplicated += 1;
        }
        is_queued
    }

    fn enqueue(&mut self, now: u64, item: T, bytes: usize, overtakes: bool) -> bool {
        // An empty queue takes an item of any length; otherwise an item longer than the queue would
        // never pass.
        let is_empty = self.queue.is_empty();
        if !is_empty && self.queued_bytes.saturating_add(bytes) > self.plan.queue_bytes {
            self.counts.overflowed += 1;
            return false;
        }
        let mut due = now;
        if self.plan.rate_bps > 0 {
            let start = self.busy_until.max(now);
            let takes = bytes as u128 * 8 * 1_000_000_000 / u128::from(self.plan.rate_bps);
            self.busy_until = start.saturating_add(u64::try_from(takes).unwrap_or(u64::MAX));
            due = self.busy_until;
        }
        if overtakes {
            self.counts.reordered += 1;
        } else {
            due = due.saturating_add(self.delay());
        }
        self.order += 1;
        self.queued_bytes += bytes;
        self.queue.push(Reverse(Waiting {
            due,
            order: self.order,
            bytes,
            item,
        }));
        true
    }

    fn delay(&mut self) -> u64 {
        let (delay, jitter) = (self.plan.delay_ns, self.plan.jitter_ns);
        if jitter == 0 {
            return delay;
        }
        delay - jitter + self.random.next_u64() % (2 * jitter + 1)
    }

    /// Takes the next item whose delay has ended at `now` (ns), to be sent; `None` if there is
    /// none.
    pub fn take_due(&mut self, now: u64) -> Option<T> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse(waiting) = self.queue.pop()?;
        self.queued_bytes -= waiting.bytes;
        self.counts.passed += 1;
        Some(waiting.item)
    }

    /// Returns the time in ns at which the delay of the next item ends; `None` if no item is in
    /// transit.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.queue.peek().map(|Reverse(waiting)| waiting.due)
    }

    /// Returns the number of items in transit.
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether no item is in transit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the counters since the fault layer was created.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }
}

#[derive(Debug)]
struct Waiting<T> {
    due: u64,
    order: u64,
    bytes: usize,
    item: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        (self.due, self.order) == (other.due, other.order)
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(plan: FaultPlan, count: u32, every_ns: u64) -> (Vec<(u64, u32)>, FaultCounts) {
        let mut fault = Fault::new(plan);
        let mut arrived = Vec::new();
        for n in 0..count {
            let now = u64::from(n) * every_ns;
            while let Some(due) = fault.next_due().filter(|due| *due <= now) {
                arrived.extend(fault.take_due(due).map(|item| (due, item)));
            }
            fault.offer(now, n, 1000);
        }
        while let Some(due) = fault.next_due() {
            arrived.extend(fault.take_due(due).map(|item| (due, item)));
        }
        assert!(fault.is_empty());
        (arrived, fault.counts())
    }

    #[test]
    fn the_same_seed_gives_the_same_and_another_seed_does_not() {
        let plan = FaultPlan {
            loss: 0.1,
            duplicate: 0.1,
            reorder: 0.1,
            delay_ns: 5000,
            jitter_ns: 2000,
            ..FaultPlan::default()
        };
        assert_eq!(run(plan, 1000, 1000), run(plan, 1000, 1000));
        assert_ne!(
            run(plan, 1000, 1000),
            run(FaultPlan { seed: 2, ..plan }, 1000, 1000)
        );
    }

    #[test]
    fn shares_come_out_as_asked_and_everything_is_accounted_for() {
        let plan = FaultPlan {
            loss: 0.05,
            duplicate: 0.02,
            reorder: 0.1,
            delay_ns: 3500,
            ..FaultPlan::default()
        };
        let (arrived, counts) = run(plan, 100_000, 1000);
        assert!((4500..5500).contains(&counts.lost), "{counts:?}");
        assert!((1700..2200).contains(&counts.duplicated), "{counts:?}");
        assert!((9000..11_000).contains(&counts.reordered), "{counts:?}");
        assert_eq!(counts.offered, 100_000);
        assert_eq!(
            counts.passed,
            counts.offered - counts.lost + counts.duplicated
        );
        assert_eq!(counts.passed, arrived.len() as u64);
        let backwards = arrived.windows(2).filter(|two| two[1].1 < two[0].1).count();
        assert!(backwards > 5000, "{backwards} steps back");
    }

    #[test]
    fn delay_alone_keeps_order_and_times() {
        let plan = FaultPlan {
            delay_ns: 10_000_000,
            ..FaultPlan::default()
        };
        let (arrived, _) = run(plan, 100, 1000);
        let expected: Vec<_> = (0..100)
            .map(|n| (10_000_000 + n * 1000, n as u32))
            .collect();
        assert_eq!(arrived, expected);
    }

    #[test]
    fn a_rate_spaces_items_and_a_full_queue_loses_them() {
        let plan = FaultPlan {
            rate_bps: 8_000_000,
            queue_bytes: 10_000,
            ..FaultPlan::default()
        };
        // 1000 bytes take 1 ms, and a new one comes every 0.5 ms.
        let (arrived, counts) = run(plan, 1000, 500_000);
        assert!(
            arrived
                .windows(2)
                .all(|two| two[1].0 - two[0].0 >= 1_000_000)
        );
        assert!(counts.overflowed > 400, "{counts:?}");
    }

    #[test]
    fn queue_shorter_than_an_item_passes_one_at_a_time() {
        let plan = FaultPlan {
            rate_bps: 8_000_000,
            queue_bytes: 100,
            ..FaultPlan::default()
        };
        // 1000 bytes take 1 ms, and one comes every 0.5 ms: the layer takes every second one.
        let (arrived, counts) = run(plan, 1000, 500_000);
        assert!(arrived.len() >= 300, "{counts:?}");
        assert!(counts.overflowed >= 300, "{counts:?}");
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let plan = FaultPlan {
            delay_ns: 1000,
            jitter_ns: 1000,
            ..FaultPlan::default()
        };
        let (arrived, _) = run(plan, 1000, 10_000);
        let late: Vec<u64> = arrived
            .iter()
            .map(|(at, n)| at - u64::from(*n) * 10_000)
            .collect();
        assert!(late.iter().all(|late| *late <= 2000));
        assert!(late.iter().any(|late| *late < 500) && late.iter().any(|late| *late > 1500));
    }

    #[test]
    fn plans_that_make_no_sense_are_refused_with_the_range() {
        let plan = FaultPlan::default();
        assert!(plan.check().is_ok() && plan.is_harmless());
        let refused = |plan: FaultPlan| plan.check().unwrap_err().to_string();
        assert!(refused(FaultPlan { loss: 1.5, ..plan }).contains("loss is 1.5"));
        assert!(
            refused(FaultPlan {
                loss: f64::NAN,
                ..plan
            })
            .contains("from 0 to 1")
        );
        assert!(
            refused(FaultPlan {
                reorder: 0.1,
                ..plan
            })
            .contains("needs a delay")
        );
        assert!(
            refused(FaultPlan {
                jitter_ns: 2,
                delay_ns: 1,
                ..plan
            })
            .contains("at most")
        );
    }
}
