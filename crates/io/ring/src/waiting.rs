//! Waiting for a peer: a thread spins while spinning succeeds, then yields, and only then sleeps.

use carina_sys::{cpus_online, monotonic_ns, yield_now};

/// How long a thread spins before it sleeps; it learns this from how often spinning succeeded
/// recently.
///
/// On a system with one CPU the peer cannot run while this thread spins, so the thread yields at
/// once.
#[derive(Clone, Debug)]
pub struct AdaptiveSpin {
    budget_ns: u64,
    budget_ns_max: u64,
    alone: bool,
    /// Number of consecutive waits in which yielding found nothing.
    fruitless: u32,
    /// Number of waits that are still to sleep at once, because a yield took long.
    crowded: u32,
    /// Number of pauses before the next look, while a stream of messages arrives.
    pauses: u32,
}

impl AdaptiveSpin {
    /// Makes a value that spins for at most [`SPIN_NS_MAX`] nanoseconds.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_ns(SPIN_NS_MAX)
    }

    /// Makes a value that spins for at most `budget_ns_max` nanoseconds; 0 never spins.
    #[must_use]
    pub fn with_max_ns(budget_ns_max: u64) -> Self {
        // A thread pinned to one of several CPUs may still spin: its peer may be pinned to another
        // CPU. If both share one, spinning fails, the budget shrinks, and the yields let the peer
        // run.
        let alone = cpus_online() == 1;
        Self {
            budget_ns: budget_ns_max,
            budget_ns_max,
            alone,
            fruitless: 0,
            crowded: 0,
            pauses: 0,
        }
    }

    /// Returns how long the next wait would spin, in nanoseconds.
    #[must_use]
    pub fn budget_ns(&self) -> u64 {
        if self.alone { 0 } else { self.budget_ns }
    }

    /// Spins and yields until `ready` returns true, but not longer than the budget. Returns `true`
    /// when `ready` returned true, `false` when it is time to sleep.
    pub fn until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.crowded > 0 {
            self.crowded -= 1;
            return false;
        }
        (self.budget_ns() > 0 && self.spin_until(&mut ready)) || self.yield_until(ready)
    }

    /// Pauses, so that more messages of a stream gather before the next [`AdaptiveSpin::until`].
    /// `taken` is the number of messages that this end has found since the last call. A reader that
    /// keeps pace with the writer makes a cache line move between their processors for every
    /// message. A consumer that finds one message at a time, as in request and response, does not
    /// pause; nor does one that sleeps.
    pub fn gather(&mut self, taken: u64) {
        self.pauses = match taken {
            0 | 1 => self.pauses / 2,
            _ => (self.pauses * 2 + 1).min(PAUSES_MAX),
        };
        if self.budget_ns() >= self.budget_ns_max.div_ceil(2) && self.crowded == 0 {
            for _ in 0..self.pauses {
                core::hint::spin_loop();
            }
        }
    }

    /// Resets the budget to its maximum, so that earlier failures do not count.
    pub fn encourage(&mut self) {
        self.budget_ns = self.budget_ns_max;
    }

    fn spin_until(&mut self, ready: &mut impl FnMut() -> bool) -> bool {
        let start = monotonic_ns();
        let found = loop {
            let found = (0..CHECKS_PER_CLOCK).any(|_| {
                core::hint::spin_loop();
                ready()
            });
            let now = monotonic_ns();
            if found || now - start >= self.budget_ns {
                break found;
            }
            // There may be more runnable threads than processors, and the peer may be one of them.
            // If the yield runs a thread that never stops, sleeping is better: the scheduler runs a
            // woken thread sooner than one that yielded.
            yield_now();
            if monotonic_ns() - now > CROWDED_NS {
                self.crowded = CROWDED_WAITS;
                break false;
            }
            if ready() {
                break true;
            }
        };
        // The budget never becomes zero: spinning for a few hundred nanoseconds detects a peer that
        // is quick again.
        self.budget_ns = if found {
            self.budget_ns * 2
        } else {
            (self.budget_ns / 2).max(SPIN_NS_MIN)
        }
        .min(self.budget_ns_max);
        found || ready()
    }

    /// Yields as the last attempt before sleeping. If the scheduler owes this thread time, it
    /// returns the processor at once, for many waits in a row. Yields that find nothing therefore
    /// become rare.
    fn yield_until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        // The longer yields have found nothing, the more rarely they are tried.
        let retry = (self.fruitless / 4)
            .next_power_of_two()
            .min(FRUITLESS_RETRY_MAX);
        if self.fruitless < FRUITLESS_MAX || self.fruitless.is_multiple_of(retry) {
            for _ in 0..YIELDS {
                yield_now();
                if ready() {
                    self.fruitless = 0;
                    return true;
                }
            }
        }
        self.fruitless = self.fruitless.wrapping_add(1);
        false
    }
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self::new()
    }
}

/// Longest spin in nanoseconds: a few times the cost of a sleep and a wake-up through an eventfd.
pub const SPIN_NS_MAX: u64 = 50_000;
const SPIN_NS_MIN: u64 = 500;
const CHECKS_PER_CLOCK: u32 = 32;
/// Number of yields per attempt. The first lets the peer run; the second finds its answer if the
/// peer needed a little longer.
const YIELDS: u32 = 2;
/// Number of consecutive fruitless waits after which most waits no longer yield.
const FRUITLESS_MAX: u32 = 4;
/// Of so many waits after `FRUITLESS_MAX` fruitless ones, at least one yields.
const FRUITLESS_RETRY_MAX: u32 = 1024;
/// A yield that takes longer than this, in nanoseconds, has run a thread that has much work of its
/// own.
pub const CROWDED_NS: u64 = 300_000;
/// Number of waits that sleep at once after a yield of more than [`CROWDED_NS`].
const CROWDED_WAITS: u32 = 64;
/// Largest number of pauses: a few microseconds, as a pause takes 20 to 60 ns depending on the
/// processor.
const PAUSES_MAX: u32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits without success. Returns how often the wait looked.
    fn fail(spin: &mut AdaptiveSpin) -> u32 {
        let mut looks = 0;
        let found = spin.until(|| {
            looks += 1;
            false
        });
        assert!(!found);
        looks
    }

    #[test]
    fn what_is_ready_costs_one_look() {
        let mut looks = 0;
        assert!(AdaptiveSpin::new().until(|| {
            looks += 1;
            true
        }));
        assert_eq!(looks, 1);
    }

    #[test]
    fn budget_shrinks_while_spinning_fails_and_grows_when_it_pays() {
        let mut spin = AdaptiveSpin {
            budget_ns: 8_000,
            budget_ns_max: 8_000,
            alone: false,
            fruitless: 0,
            crowded: 0,
            pauses: 0,
        };
        for expected in [4_000, 2_000, 1_000, 500, 500] {
            // On a busy machine a yield may take long.
            spin.crowded = 0;
            fail(&mut spin);
            assert_eq!(spin.budget_ns(), expected);
        }
        spin.crowded = 0;
        for expected in [1_000, 2_000, 4_000, 8_000, 8_000] {
            let mut looks = 0;
            assert!(spin.until(|| {
                looks += 1;
                looks == 5
            }));
            assert_eq!(spin.budget_ns(), expected);
        }
    }

    #[test]
    fn zero_budget_never_spins() {
        let mut spin = AdaptiveSpin {
            budget_ns: 0,
            budget_ns_max: 0,
            alone: false,
            fruitless: 0,
            crowded: 0,
            pauses: 0,
        };
        for _ in 0..FRUITLESS_MAX {
            assert_eq!(fail(&mut spin), 1 + YIELDS);
        }
    }

    #[test]
    fn fruitless_yields_become_rare_until_one_succeeds() {
        let mut spin = AdaptiveSpin {
            budget_ns: 0,
            budget_ns_max: 0,
            alone: true,
            fruitless: FRUITLESS_MAX,
            crowded: 0,
            pauses: 0,
        };
        let mut extra = |waits: u32| (0..waits).map(|_| fail(&mut spin)).sum::<u32>() - waits;
        assert!((YIELDS..=64).contains(&extra(1000)));
        assert!((YIELDS..=64).contains(&extra(10_000)));
        spin.fruitless = 64;
        let mut looks = 0;
        assert!(spin.until(|| {
            looks += 1;
            looks == 2
        }));
        assert_eq!(fail(&mut spin), 1 + YIELDS);
    }

    #[test]
    fn pauses_grow_with_streams_and_end_with_echoes() {
        let mut spin = AdaptiveSpin::new();
        (0..10).for_each(|_| spin.gather(30));
        assert_eq!(spin.pauses, PAUSES_MAX);
        (0..7).for_each(|_| spin.gather(1));
        assert_eq!(spin.pauses, 0);
    }

    #[test]
    fn thread_pinned_to_one_cpu_of_several_may_spin() {
        std::thread::spawn(|| {
            // This process may not be allowed to use CPU 0; then it takes another one.
            let pinned = (0..1024).any(|cpu| carina_sys::pin_to_cpu(cpu).is_ok());
            assert!(pinned);
            assert_eq!(AdaptiveSpin::new().budget_ns() > 0, cpus_online() > 1);
        })
        .join()
        .unwrap();
    }
}
