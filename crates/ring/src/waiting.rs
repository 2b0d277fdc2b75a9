//! Waiting for a peer: spin while that pays, yield, and only then sleep.

use carina_sys::{cpus_allowed, cpus_online, monotonic_ns, yield_now};

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
        let alone = cpus_online() == 1 || cpus_allowed() == 1;
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
