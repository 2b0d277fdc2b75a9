//! Waiting for a peer: spin while that pays, yield, and only then sleep.

use carina_sys::{cpus_online, monotonic_ns, yield_now};

/// Decides how long to spin before sleeping, from how often spinning paid lately.
///
/// On a system with one CPU the peer cannot run while this thread spins, so it yields at once.
#[derive(Clone, Debug)]
pub struct AdaptiveSpin {
    budget_ns: u64,
    budget_ns_max: u64,
    alone: bool,
    /// Waits in a row whose yields found nothing.
    fruitless: u32,
    /// Waits that are to sleep at once, because a yield took long.
    crowded: u32,
    /// Pauses before the next look, while a stream comes in.
    pauses: u32,
}

impl AdaptiveSpin {
    /// Spins up to [`SPIN_NS_MAX`] when it pays.
    #[must_use]
    pub fn new() -> Self {
        Self::with_max_ns(SPIN_NS_MAX)
    }

    /// Spins up to `budget_ns_max` nanoseconds when it pays; 0 never spins.
    #[must_use]
    pub fn with_max_ns(budget_ns_max: u64) -> Self {
        // A thread pinned to one CPU of several is not alone: its peer may be pinned to another.
        // Should both share one, spins fail, the budget shrinks, and the yields let the peer run.
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

    /// Nanoseconds the next wait would spin.
    #[must_use]
    pub fn budget_ns(&self) -> u64 {
        if self.alone { 0 } else { self.budget_ns }
    }

    /// Waits actively until `ready` says yes (`true`) or it is time to sleep (`false`).
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

    /// Lets more of a stream come together before the next [`AdaptiveSpin::until`], when this end
    /// has found `taken` messages since the last call. A reader in step with the writer costs both
    /// of them a cache line's way from processor to processor for every message. A consumer that
    /// finds one at a time, as in an exchange of questions and answers, does not pause; nor does
    /// one that sleeps.
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

    /// Forgets that spinning failed.
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
            // More threads than processors may want to run, and one of them is the peer. Should it
            // be one that never stops, sleeping is better: the scheduler runs a woken thread sooner
            // than one that yielded.
            yield_now();
            if monotonic_ns() - now > CROWDED_NS {
                self.crowded = CROWDED_WAITS;
                break false;
            }
            if ready() {
                break true;
            }
        };
        // Never to zero: a few hundred nanoseconds find out when the peer is quick again.
        self.budget_ns = if found {
            self.budget_ns * 2
        } else {
            (self.budget_ns / 2).max(SPIN_NS_MIN)
        }
        .min(self.budget_ns_max);
        found || ready()
    }

    /// The last try before sleeping. A scheduler that owes this thread time gives the processor
    /// straight back, for many waits on end, so yields that find nothing become rare.
    fn yield_until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        // The longer they have found nothing, the rarer they are tried again.
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

/// Longest spin: a few times what a sleep and a wake through an eventfd cost.
pub const SPIN_NS_MAX: u64 = 50_000;
const SPIN_NS_MIN: u64 = 500;
const CHECKS_PER_CLOCK: u32 = 32;
/// One lets the peer run; the second finds its answer when it needed a little more.
const YIELDS: u32 = 2;
/// After so many waits whose yields found nothing, most waits do without.
const FRUITLESS_MAX: u32 = 4;
/// At least every so many of those try again.
const FRUITLESS_RETRY_MAX: u32 = 1024;
/// A yield that took longer, in ns, has let a thread run that has work of its own.
pub const CROWDED_NS: u64 = 300_000;
/// After such a yield so many waits sleep at once.
const CROWDED_WAITS: u32 = 64;
/// A few microseconds, depending on the processor: 20 to 60 ns each.
const PAUSES_MAX: u32 = 127;

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that never succeeds; returns how often it looked.
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
            // On a crowded machine a yield may take long.
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
            // CPU 0 may be forbidden here; then another one is allowed.
            let pinned = (0..1024).any(|cpu| carina_sys::pin_to_cpu(cpu).is_ok());
            assert!(pinned);
            assert_eq!(AdaptiveSpin::new().budget_ns() > 0, cpus_online() > 1);
        })
        .join()
        .unwrap();
    }
}
