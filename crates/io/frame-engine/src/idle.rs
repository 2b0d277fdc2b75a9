//! How long an idle app stays awake, and how the engine waits meanwhile.
//!
//! Sleeping and being woken costs some microseconds on both sides; looking for work costs CPU time.
//! An app's budget grows when a doorbell rings soon after the app last moved something, and shrinks
//! when doorbells ring late. An echo at full speed therefore never sleeps, and one message per
//! second costs next to nothing.

use carina_ring::waiting::CROWDED_NS;
use carina_sys::monotonic_ns;

/// How long an engine keeps one app awake while the app has no work. Each app learns its own value.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveSpin {
    ns: u64,
}

impl AdaptiveSpin {
    /// Tells the app's budget that a doorbell has rung `ns` nanoseconds after the app last moved
    /// something. A short time raises the budget, a long one lowers it.
    pub fn rang_after(&mut self, ns: u64) {
        self.ns = if ns <= BUDGET_NS_MAX {
            (self.ns * 2).min(BUDGET_NS_MAX)
        } else {
            // In small steps: after one late doorbell among quick ones, the app must not sleep
            // before each of the following ones.
            (self.ns - self.ns / 8).max(BUDGET_NS_MIN)
        };
    }
}

impl Default for AdaptiveSpin {
    fn default() -> AdaptiveSpin {
        AdaptiveSpin { ns: BUDGET_NS_MIN }
    }
}

/// How an engine waits while some of its apps are awake and have no work.
#[derive(Debug)]
pub struct IdlePolicy {
    is_single: bool,
    /// Number of idle turns between two yields.
    yield_turns: u32,
    /// The shortest duration of a yield so far, in ns.
    yield_ns_min: u64,
    /// Time until which no app is kept awake, in ns.
    crowded_until: u64,
    /// Number of consecutive breaths that deferred their doorbells.
    held: u32,
    /// Whether sleeping apps have been given packets.
    may_ring: bool,
    /// Time until which breaths count as part of a stream, in ns.
    stream_until: u64,
    /// Whether the system supports waiting for turns; false after it has refused once.
    may_wait_for_turns: bool,
    /// Whether the thread waits for its turn when it is woken.
    waits_for_turns: bool,
    /// Whether the system lets the thread keep its processor; false after it has refused once.
    may_keep_processor: bool,
}

impl IdlePolicy {
    /// Makes the policy for a system with `cpus` processors.
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
            may_keep_processor: true,
        }
    }

    /// Whether the thread should, from now on, wait for its turn when it is woken; `None` for no
    /// change. The caller then reports the outcome by [`IdlePolicy::set_waits_for_turns`].
    /// `is_full` says whether the breath at `now` moved at least a burst.
    ///
    /// On one processor, an application that sends as fast as it can wakes this thread by the first
    /// SDU after each sleep. If the thread ran at once, it would find only that SDU. If it waits
    /// for its turn, until the application waits for room or has used its share of the processor,
    /// it finds many.
    pub fn turns_change(&mut self, is_full: bool, now: u64) -> Option<bool> {
        if is_full && self.is_single && self.may_wait_for_turns {
            self.stream_until = now + STREAM_NS;
        }
        let is_stream = now < self.stream_until;
        (is_stream != self.waits_for_turns).then_some(is_stream)
    }

    /// Reports whether the thread now waits for its turn as `wanted`. If `is_done` is false, the
    /// system has refused, and is not asked again.
    pub fn set_waits_for_turns(&mut self, wanted: bool, is_done: bool) {
        self.waits_for_turns = wanted && is_done;
        if !is_done {
            self.may_wait_for_turns = false;
            self.stream_until = 0;
        }
    }

    /// Whether apps should leave the only processor to other threads as soon as they have no work.
    /// This includes apps that poll.
    #[must_use]
    pub fn leaves_processor(&self, now: u64) -> bool {
        self.is_single && now < self.crowded_until
    }

    /// Whether a breath should defer its doorbells. `is_full` says whether it moved at least a
    /// burst. On one processor a woken reader runs at once and takes only what one breath moved,
    /// which costs two context switches each time. While breaths are full, several of them share
    /// one doorbell.
    pub fn defers_doorbells(&mut self, is_full: bool) -> bool {
        let hold = self.is_single && is_full && self.held < HELD_MAX;
        self.held = if hold { self.held + 1 } else { 0 };
        hold
    }

    /// Whether the thread should keep the only processor until the next breath. A program that
    /// waits for a socket is woken by the first bytes that arrive in it, and would interrupt a
    /// breath that has more for it. While a stream passes, the program runs after as many breaths
    /// as share a doorbell: call this after [`IdlePolicy::defers_doorbells`].
    #[must_use]
    pub fn keeps_processor(&self) -> bool {
        self.may_keep_processor && self.waits_for_turns && self.held > 0
    }

    /// Reports that the system does not let the thread keep its processor. It is not asked again.
    pub fn cannot_keep_processor(&mut self) {
        self.may_keep_processor = false;
    }

    /// Returns for how long an app with this budget may be idle at the time `now` before it sleeps,
    /// in ns. If another thread on the same processor never stops, sleeping is better than
    /// yielding, because the scheduler runs a woken thread sooner than one that yielded.
    #[must_use]
    pub fn spin_ns(&self, budget: AdaptiveSpin, now: u64) -> u64 {
        if now < self.crowded_until {
            0
        } else {
            budget.ns
        }
    }

    /// Reports that sleeping apps have been given packets in this breath. On one processor a reader
    /// that this wakes runs before the next idle turn, and may have answered and rung a doorbell by
    /// then.
    pub fn woke_sleepers(&mut self) {
        self.may_ring = self.is_single;
    }

    /// Runs one turn without work. `turn` counts these turns from 1. Returns true if the doorbells
    /// of sleeping apps should be checked. On one processor that is so after another thread ran,
    /// which may have rung.
    ///
    /// The duration of a yield shows which other threads want this processor:
    ///
    /// - No other thread: yields become rare.
    /// - A thread that soon returned it, such as a peer that waits for this thread's work: every
    ///   turn yields, so that the peer need not wait for turns that find no work.
    /// - A thread that kept it: see [`IdlePolicy::spin_ns`].
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

    /// Learns from a yield. Returns true if another thread ran.
    fn yielded(&mut self, before: u64, after: u64) -> bool {
        let ns = after.saturating_sub(before);
        // On one processor a peer's turn takes as long as its work, so a long yield proves nothing.
        // Only if this thread waits for its turns, because a peer wakes it by each SDU, is sleeping
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

/// Shortest budget: about the cost of a wake-up through an eventfd.
const BUDGET_NS_MIN: u64 = 4_000;
/// Longest budget: beyond this, a sleep is cheaper than the wait.
const BUDGET_NS_MAX: u64 = 200_000;
/// Largest number of consecutive full breaths that defer their doorbells. What they moved waits no
/// longer than these breaths take.
const HELD_MAX: u32 = 16;
/// How long no app is kept awake after a long yield.
const CROWDED_REST_NS: u64 = 20_000_000;
/// A stream ends when no breath was full for this long: some turns of an application that fills its
/// ring.
const STREAM_NS: u64 = 20_000_000;
/// Number of idle turns between two checks of doorbells. Turns without a system call are short.
const LOOK_TURNS: u32 = 32;
/// Number of idle turns between two checks of doorbells on a system with one processor. A device
/// may ring too, and the turns of a slow processor are longer.
const LOOK_TURNS_SINGLE: u32 = 8;
/// Largest number of idle turns between two yields. Even with several processors, an application
/// may wait for this one.
const YIELD_TURNS_MAX: u32 = 16;
/// A yield that is shorter than this, in ns, means that no other thread wants the processor.
const YIELD_NS_ALONE: u64 = 1_500;
/// Largest value that counts as the shortest yield, in ns. On one processor, which may be emulated
/// and slow at system calls, a yield shorter than six times the shortest one means that no other
/// thread wants the processor.
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
        // However long the shortest yield so far was, a switch to another thread and back takes
        // longer.
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
        // After one refusal, the system is never asked again.
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
    fn full_breaths_of_a_stream_keep_the_processor() {
        let mut policy = IdlePolicy::new(1);
        assert!(policy.defers_doorbells(true));
        assert!(!policy.keeps_processor(), "no stream yet");
        policy.set_waits_for_turns(true, true);
        assert!(policy.keeps_processor());
        assert!(!policy.defers_doorbells(false));
        assert!(!policy.keeps_processor());
        assert!((0..HELD_MAX).all(|_| policy.defers_doorbells(true) && policy.keeps_processor()));
        assert!(!policy.defers_doorbells(true));
        assert!(!policy.keeps_processor(), "other threads have their turn");
        assert!(policy.defers_doorbells(true));
        policy.cannot_keep_processor();
        assert!(!policy.keeps_processor());
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
