//! Waiting for a peer: spin while that pays, yield, and only then sleep.

use carina_sys::{cpus_online, monotonic_ns, yield_now};

/// Decides how long to spin before sleeping, from how often spinning paid lately.
///
/// On a system with one CPU the peer cannot run while this thread spins, so it yields at once.
#[derive(Clone, Debug)]
pub struct Spin {
    budget_ns: u64,
    budget_ns_max: u64,
    alone: bool,
}

impl Spin {
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
        if self.budget_ns() > 0 {
            let start = monotonic_ns();
            loop {
                for _ in 0..CHECKS_PER_CLOCK {
                    core::hint::spin_loop();
                    if ready() {
                        self.budget_ns = (self.budget_ns * 2).min(self.budget_ns_max);
                        return true;
                    }
                }
                if monotonic_ns() - start >= self.budget_ns {
                    break;
                }
                // More threads than processors may want to run, and one of them is the peer.
                yield_now();
                if ready() {
                    self.budget_ns = (self.budget_ns * 2).min(self.budget_ns_max);
                    return true;
                }
            }
            // Never to zero: a few hundred nanoseconds find out when the peer is quick again.
            self.budget_ns = (self.budget_ns / 2)
                .max(SPIN_NS_MIN)
                .min(self.budget_ns_max);
        }
        for _ in 0..YIELDS {
            yield_now();
            if ready() {
                return true;
            }
        }
        false
    }
}

impl Default for Spin {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A wait that never succeeds; returns how often it looked.
    fn fail(spin: &mut Spin) -> u32 {
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
        assert!(Spin::new().until(|| {
            looks += 1;
            true
        }));
        assert_eq!(looks, 1);
    }

    #[test]
    fn budget_shrinks_while_spinning_fails_and_grows_when_it_pays() {
        let mut spin = Spin {
            budget_ns: 8_000,
            budget_ns_max: 8_000,
            alone: false,
        };
        for expected in [4_000, 2_000, 1_000, 500, 500] {
            fail(&mut spin);
            assert_eq!(spin.budget_ns(), expected);
        }
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
        let mut spin = Spin {
            budget_ns: 0,
            budget_ns_max: 0,
            alone: false,
        };
        assert_eq!(fail(&mut spin), 1 + YIELDS);
    }

    #[test]
    fn thread_pinned_to_one_cpu_of_several_may_spin() {
        std::thread::spawn(|| {
            // CPU 0 may be forbidden here; then another one is allowed.
            let pinned = (0..1024).any(|cpu| carina_sys::pin_to_cpu(cpu).is_ok());
            assert!(pinned);
            assert_eq!(Spin::new().budget_ns() > 0, cpus_online() > 1);
        })
        .join()
        .unwrap();
    }
}
