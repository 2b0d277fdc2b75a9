//! How long to look for work before sleeping.
//!
//! Sleeping and being woken costs some microseconds on both sides; looking for work costs the CPU.
//! An app's budget grows while bells wake it soon after something moved through it and shrinks
//! while they come late, so that an echo at full speed never sleeps and a message per second costs
//! next to nothing.

use carina_ring::waiting::CROWDED_NS;
use carina_sys::monotonic_ns;

/// How long one app is kept awake without anything to do; each app learns its own.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    ns: u64,
}

impl Budget {
    /// A bell has woken the app `ns` after something last moved through it.
    pub fn rang_after(&mut self, ns: u64) {
        self.ns = if ns <= BUDGET_NS_MAX {
            (self.ns * 2).min(BUDGET_NS_MAX)
        } else {
            // Gently: one late bell among quick ones must not put the app to sleep before each of
            // those that follow.
            (self.ns - self.ns / 8).max(BUDGET_NS_MIN)
        };
    }
}

impl Default for Budget {
    fn default() -> Budget {
        Budget { ns: BUDGET_NS_MIN }
    }
}

/// How an engine waits while some of its apps are awake and have nothing to do.
#[derive(Debug)]
pub struct Linger {
    is_single: bool,
    /// Idle turns between two yields.
    yield_turns: u32,
    /// The shortest yield so far, in ns.
    yield_ns_min: u64,
    /// Until then nobody is kept awake, in ns.
    crowded_until: u64,
    /// Breaths in a row that held their bells.
    held: u32,
    /// Somebody whose bell nobody looks at has been given something.
    may_ring: bool,
}

impl Linger {
    /// For a system with `cpus` processors.
    #[must_use]
    pub fn new(cpus: usize) -> Linger {
        Linger {
            is_single: cpus <= 1,
            yield_turns: YIELD_TURNS_MAX,
            yield_ns_min: u64::MAX,
            crowded_until: 0,
            held: 0,
            may_ring: false,
        }
    }

    /// Whether a breath should hold its bells; `is_full` when it moved a burst at least. On one
    /// processor a reader that is woken runs at once and takes what one breath brought, and each
    /// such turn costs two switches: while breaths are full, several share one bell.
    pub fn holds_bells(&mut self, is_full: bool) -> bool {
        let hold = self.is_single && is_full && self.held < HELD_MAX;
        self.held = if hold { self.held + 1 } else { 0 };
        hold
    }

    /// How long an app with this budget may be idle at `now`. Where a thread that never stops
    /// wants the same processor, sleeping is better: who is woken gets the processor soon, who
    /// yields it waits for his turn.
    #[must_use]
    pub fn patience_ns(&self, budget: Budget, now: u64) -> u64 {
        if now < self.crowded_until {
            0
        } else {
            budget.ns
        }
    }

    /// Apps that sleep have been given something in this breath. On one processor whoever was woken
    /// by it has run before the next idle turn, and may have answered and rung.
    pub fn gave_to_sleepers(&mut self) {
        self.may_ring = self.is_single;
    }

    /// One turn of looking for work without finding any; `turn` counts them from 1. True when it is
    /// time to look at the bells of those that sleep: on one processor that is when somebody ran,
    /// who may have rung.
    ///
    /// How long a yield took tells who else wants this processor. Nobody: yields become rare.
    /// Somebody who soon gave it back, as those do who wait for this one's work or bring it: every
    /// turn yields, so that he need not wait for turns that find nothing. Somebody who kept it:
    /// see [`Linger::patience_ns`].
    pub fn pause(&mut self, turn: u32) -> bool {
        let look_turns = if self.is_single {
            LOOK_TURNS_SINGLE
        } else {
            LOOK_TURNS
        };
        let mut looks = std::mem::take(&mut self.may_ring) || turn.is_multiple_of(look_turns);
        if turn.is_multiple_of(self.yield_turns) {
            let before = monotonic_ns();
            carina_sys::yield_now();
            looks |= self.yielded(before, monotonic_ns()) && self.is_single;
        } else if !self.is_single {
            std::hint::spin_loop();
        }
        looks
    }

    /// Learns from a yield; true when somebody else ran.
    fn yielded(&mut self, before: u64, after: u64) -> bool {
        let ns = after.saturating_sub(before);
        // On one processor a peer's turn takes as long as the work that it was given.
        if ns > CROWDED_NS && !self.is_single {
            self.crowded_until = after + CROWDED_REST_NS;
        }
        let alone = match self.yield_ns_min {
            _ if !self.is_single => YIELD_NS_ALONE,
            u64::MAX => YIELD_NS_ALONE,
            min => (6 * min.min(YIELD_NS_ALONE_MAX)).max(YIELD_NS_ALONE),
        };
        self.yield_ns_min = self.yield_ns_min.min(ns);
        self.yield_turns = if (alone..=CROWDED_NS).contains(&ns) {
            1
        } else {
            (self.yield_turns * 2).min(YIELD_TURNS_MAX)
        };
        ns >= alone
    }
}

/// A wake-up through an eventfd costs about this much.
const BUDGET_NS_MIN: u64 = 4_000;
/// Beyond this a sleep is cheaper than the wait.
const BUDGET_NS_MAX: u64 = 200_000;
/// Full breaths in a row that may hold their bells: what they brought waits no longer than they
/// take.
const HELD_MAX: u32 = 8;
/// After such a yield nobody is kept awake for so long.
const CROWDED_REST_NS: u64 = 20_000_000;
/// Turns without a system call are short.
const LOOK_TURNS: u32 = 32;
/// A device may ring as well, and a slow processor's turns are longer.
const LOOK_TURNS_SINGLE: u32 = 8;
/// Even with several processors an application may wait for this one.
const YIELD_TURNS_MAX: u32 = 16;
/// A yield takes less when nobody else wants the processor, in ns.
const YIELD_NS_ALONE: u64 = 1_500;
/// On one processor, which may be emulated and slow at system calls, a yield takes less than six
/// times the shortest one when nobody else wants it; more than this is never the shortest.
const YIELD_NS_ALONE_MAX: u64 = 3_500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soon_answers_lengthen_the_budget_and_late_ones_shorten_it() {
        let mut budget = Budget::default();
        for _ in 0..10 {
            budget.rang_after(20_000);
        }
        assert_eq!(budget.ns, BUDGET_NS_MAX);
        for _ in 0..40 {
            budget.rang_after(1_000_000_000);
        }
        assert_eq!(budget.ns, BUDGET_NS_MIN);
    }

    #[test]
    fn long_yield_takes_everybodys_patience_for_a_while() {
        let mut linger = Linger::new(2);
        let budget = Budget::default();
        linger.yielded(1_000, 1_000 + CROWDED_NS);
        assert_eq!(linger.patience_ns(budget, 2_000), BUDGET_NS_MIN);
        linger.yielded(1_000, 1_001 + CROWDED_NS);
        assert_eq!(linger.patience_ns(budget, 400_000), 0);
        let later = 1_001 + CROWDED_NS + CROWDED_REST_NS;
        assert_eq!(linger.patience_ns(budget, later), BUDGET_NS_MIN);
    }

    #[test]
    fn who_shares_the_processor_with_somebody_who_waits_yields_every_turn() {
        let mut linger = Linger::new(2);
        assert_eq!(linger.yield_turns, YIELD_TURNS_MAX);
        linger.yielded(0, YIELD_NS_ALONE);
        assert_eq!(linger.yield_turns, 1);
        for _ in 0..10 {
            linger.yielded(0, YIELD_NS_ALONE - 1);
        }
        assert_eq!(linger.yield_turns, YIELD_TURNS_MAX);
    }

    #[test]
    fn slow_yields_of_a_slow_processor_are_not_taken_for_company() {
        let mut linger = Linger::new(1);
        assert!(linger.yielded(0, 2_400));
        assert!(!linger.yielded(0, 7_000));
        assert!(linger.yielded(0, 2_400 * 6));
        // However long the shortest so far was, a switch to somebody and back takes longer.
        let mut linger = Linger::new(1);
        assert!(linger.yielded(0, 30_000) && linger.yielded(0, 29_000));
    }

    #[test]
    fn on_one_processor_bells_are_looked_at_after_those_who_may_ring_have_run() {
        let mut linger = Linger::new(1);
        assert!(!linger.pause(1));
        linger.gave_to_sleepers();
        assert!(linger.pause(1));
        assert!(!linger.pause(2));
        assert!(linger.pause(LOOK_TURNS_SINGLE));
        let mut linger = Linger::new(2);
        linger.gave_to_sleepers();
        assert!(!linger.pause(1));
    }

    #[test]
    fn full_breaths_hold_their_bells_for_a_while_and_only_on_one_processor() {
        let mut linger = Linger::new(1);
        assert!(!linger.holds_bells(false));
        for _ in 0..2 {
            assert!((0..HELD_MAX).all(|_| linger.holds_bells(true)));
            assert!(!linger.holds_bells(true));
        }
        assert!(!Linger::new(2).holds_bells(true));
    }
}
