//! How long to look for work before sleeping.
//!
//! Sleeping and being woken costs some microseconds on both sides; looking for work costs the CPU.
//! An app's budget grows while doorbells wake it soon after something moved through it and shrinks
//! while they come late, so that an echo at full speed never sleeps and a message per second costs
//! next to nothing.

use carina_ring::waiting::CROWDED_NS;
use carina_sys::monotonic_ns;

/// How long one app stays awake without work; each app learns its own.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveSpin {
    ns: u64,
}

impl AdaptiveSpin {
    /// A doorbell has woken the app `ns` after something last moved through it.
    pub fn rang_after(&mut self, ns: u64) {
        self.ns = if ns <= BUDGET_NS_MAX {
            (self.ns * 2).min(BUDGET_NS_MAX)
        } else {
            // Gently: one late doorbell among quick ones must not put the app to sleep before each
            // of those that follow.
            (self.ns - self.ns / 8).max(BUDGET_NS_MIN)
        };
    }
}

impl Default for AdaptiveSpin {
    fn default() -> AdaptiveSpin {
        AdaptiveSpin { ns: BUDGET_NS_MIN }
    }
}

/// How an engine waits while some of its apps are awake and have nothing to do.
#[derive(Debug)]
pub struct IdlePolicy {
    is_single: bool,
    /// Idle turns between two yields.
    yield_turns: u32,
    /// The shortest yield so far, in ns.
    yield_ns_min: u64,
    /// Until then no app is kept awake, in ns.
    crowded_until: u64,
    /// Breaths in a row that held their doorbells.
    held: u32,
    /// An app that sleeps has been given packets.
    may_ring: bool,
    /// Until then breaths are those of a stream, in ns.
    stream_until: u64,
    /// The system has not refused that the thread waits for its turn.
    may_wait_for_turns: bool,
    /// The thread waits for its turn when it is woken.
    waits_for_turns: bool,
}

impl IdlePolicy {
    /// For a system with `cpus` processors.
    #[must_use]
    pub fn new(cpus: usize) -> IdlePolicy {
        IdlePolicy {
            is_single: cpus <= 1,
            yield_turns: YIELD_TURNS_MAX,
            yield_ns_min: u64::MAX,
            crowded_until: 0,
            held: 0,
            may_ring: false,
            stream_until: 0,
            may_wait_for_turns: true,
            waits_for_turns: false,
        }
    }

    /// Whether the thread is to wait for its turn from now on when it is woken; `None` for no
    /// change, and the answer is [`IdlePolicy::set_waits_for_turns`]. `is_full` when the breath at
    /// `now` moved at least a burst.
    ///
    /// On one processor an application that sends as fast as it can wakes this thread by the first
    /// SDU after each sleep. If it ran then it would find that one; in its turn, when the
    /// application waits for room or has had its share of the processor, it finds many.
    pub fn turns_change(&mut self, is_full: bool, now: u64) -> Option<bool> {
        if is_full && self.is_single && self.may_wait_for_turns {
            self.stream_until = now + STREAM_NS;
        }
        let is_stream = now < self.stream_until;
        (is_stream != self.waits_for_turns).then_some(is_stream)
    }

    /// The thread now waits for its turn when it is woken, or does not; or the system has refused
    /// that, and is not asked again.
    pub fn set_waits_for_turns(&mut self, wanted: bool, is_done: bool) {
        self.waits_for_turns = wanted && is_done;
        if !is_done {
            self.may_wait_for_turns = false;
            self.stream_until = 0;
        }
    }

    /// Whether apps are to leave the one processor to other threads as soon as they have nothing to
    /// do, those included that have to look again by themselves.
    #[must_use]
    pub fn leaves_processor(&self, now: u64) -> bool {
        self.is_single && now < self.crowded_until
    }

    /// Whether a breath should defer its doorbells; `is_full` when it moved at least a burst. On
    /// one processor a woken reader runs at once and takes what one breath brought, which costs two
    /// context switches each time: while breaths are full, several share one doorbell.
    pub fn defers_doorbells(&mut self, is_full: bool) -> bool {
        let hold = self.is_single && is_full && self.held < HELD_MAX;
        self.held = if hold { self.held + 1 } else { 0 };
        hold
    }

    /// How long an app with this budget may be idle at `now`. Beside a thread that never stops on
    /// the same processor, sleeping is better: the scheduler runs a woken thread sooner than one
    /// that yielded.
    #[must_use]
    pub fn spin_ns(&self, budget: AdaptiveSpin, now: u64) -> u64 {
        if now < self.crowded_until {
            0
        } else {
            budget.ns
        }
    }

    /// Apps that sleep have been given packets in this breath. On one processor a reader woken by
    /// it runs before the next idle turn, and may have answered and rung a doorbell.
    pub fn woke_sleepers(&mut self) {
        self.may_ring = self.is_single;
    }

    /// One turn that found no work; `turn` counts them from 1. True when it is time to look at the
    /// doorbells of sleeping apps: on one processor after another thread ran, which may have rung.
    ///
    /// The duration of a yield shows what else wants this processor:
    ///
    /// - no other thread: yields become rare;
    /// - a thread that soon gave it back, such as a peer that waits for this one's work: every turn
    ///   yields, so that the peer need not wait for turns that find nothing;
    /// - a thread that kept it: see [`IdlePolicy::spin_ns`].
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

    /// Learns from a yield; true when another thread ran.
    fn yielded(&mut self, before: u64, after: u64) -> bool {
        let ns = after.saturating_sub(before);
        // On one processor a peer's turn takes as long as the work that it was given. Beside a
        // thread that wakes this one by each of its SDUs, only waiting for turns makes a sleep
        // better than looking for work.
        if ns > CROWDED_NS && (!self.is_single || self.waits_for_turns) {
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
/// Full breaths in a row that may hold their doorbells: what they brought waits no longer than they
/// take.
const HELD_MAX: u32 = 16;
/// After such a yield no app is kept awake for so long.
const CROWDED_REST_NS: u64 = 20_000_000;
/// A stream ends when no breath was full for so long: some turns of an application that fills its
/// ring.
const STREAM_NS: u64 = 20_000_000;
/// Turns without a system call are short.
const LOOK_TURNS: u32 = 32;
/// A device may ring as well, and a slow processor's turns are longer.
const LOOK_TURNS_SINGLE: u32 = 8;
/// Even with several processors an application may wait for this one.
const YIELD_TURNS_MAX: u32 = 16;
/// A yield takes less when no other thread wants the processor, in ns.
const YIELD_NS_ALONE: u64 = 1_500;
/// On one processor, which may be emulated and slow at system calls, a yield takes less than six
/// times the shortest one when no other thread wants it; more than this is never the shortest.
const YIELD_NS_ALONE_MAX: u64 = 3_500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soon_answers_lengthen_the_budget_and_late_ones_shorten_it() {
        let mut budget = AdaptiveSpin::default();
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
    fn long_yield_lets_all_apps_sleep_for_a_while() {
        let mut policy = IdlePolicy::new(2);
        let budget = AdaptiveSpin::default();
        policy.yielded(1_000, 1_000 + CROWDED_NS);
        assert_eq!(policy.spin_ns(budget, 2_000), BUDGET_NS_MIN);
        policy.yielded(1_000, 1_001 + CROWDED_NS);
        assert_eq!(policy.spin_ns(budget, 400_000), 0);
        let later = 1_001 + CROWDED_NS + CROWDED_REST_NS;
        assert_eq!(policy.spin_ns(budget, later), BUDGET_NS_MIN);
    }

    #[test]
    fn beside_a_waiting_thread_every_turn_yields() {
        let mut policy = IdlePolicy::new(2);
        assert_eq!(policy.yield_turns, YIELD_TURNS_MAX);
        policy.yielded(0, YIELD_NS_ALONE);
        assert_eq!(policy.yield_turns, 1);
        for _ in 0..10 {
            policy.yielded(0, YIELD_NS_ALONE - 1);
        }
        assert_eq!(policy.yield_turns, YIELD_TURNS_MAX);
    }

    #[test]
    fn slow_yields_of_a_slow_processor_are_not_taken_for_company() {
        let mut policy = IdlePolicy::new(1);
        assert!(policy.yielded(0, 2_400));
        assert!(!policy.yielded(0, 7_000));
        assert!(policy.yielded(0, 2_400 * 6));
        // However long the shortest so far was, a switch to another thread and back takes longer.
        let mut policy = IdlePolicy::new(1);
        assert!(policy.yielded(0, 30_000) && policy.yielded(0, 29_000));
    }

    #[test]
    fn single_processor_checks_doorbells_after_readers_ran() {
        let mut policy = IdlePolicy::new(1);
        assert!(!policy.pause(1));
        policy.woke_sleepers();
        assert!(policy.pause(1));
        assert!(!policy.pause(2));
        assert!(policy.pause(LOOK_TURNS_SINGLE));
        let mut policy = IdlePolicy::new(2);
        policy.woke_sleepers();
        assert!(!policy.pause(1));
    }

    #[test]
    fn in_a_stream_on_one_processor_the_thread_waits_for_turns() {
        let mut policy = IdlePolicy::new(1);
        assert_eq!(policy.turns_change(false, 5), None);
        assert_eq!(policy.turns_change(true, 10), Some(true));
        policy.set_waits_for_turns(true, true);
        assert_eq!(policy.turns_change(false, 9 + STREAM_NS), None);
        assert_eq!(policy.turns_change(false, 10 + STREAM_NS), Some(false));
        policy.set_waits_for_turns(false, true);
        assert_eq!(policy.turns_change(false, 11 + STREAM_NS), None);
        assert_eq!(policy.turns_change(true, 2 * STREAM_NS), Some(true));
        // Refused once, never asked for again.
        policy.set_waits_for_turns(true, false);
        assert_eq!(policy.turns_change(true, 2 * STREAM_NS), None);
        assert_eq!(IdlePolicy::new(2).turns_change(true, 10), None);
    }

    #[test]
    fn a_thread_that_waits_for_turns_leaves_the_processor() {
        let mut policy = IdlePolicy::new(1);
        policy.yielded(0, CROWDED_NS + 1);
        assert!(!policy.leaves_processor(CROWDED_NS + 1));
        policy.set_waits_for_turns(true, true);
        policy.yielded(0, CROWDED_NS);
        assert!(!policy.leaves_processor(CROWDED_NS));
        policy.yielded(0, CROWDED_NS + 1);
        assert!(policy.leaves_processor(CROWDED_NS + 1));
        assert_eq!(policy.spin_ns(AdaptiveSpin::default(), CROWDED_NS + 1), 0);
        assert!(!policy.leaves_processor(CROWDED_NS + 1 + CROWDED_REST_NS));
    }

    #[test]
    fn full_breaths_defer_doorbells_on_one_processor_only() {
        let mut policy = IdlePolicy::new(1);
        assert!(!policy.defers_doorbells(false));
        for _ in 0..2 {
            assert!((0..HELD_MAX).all(|_| policy.defers_doorbells(true)));
            assert!(!policy.defers_doorbells(true));
        }
        assert!(!IdlePolicy::new(2).defers_doorbells(true));
    }
}
