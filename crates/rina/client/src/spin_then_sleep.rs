//! Spins before sleeping, for a time that adapts to earlier spins and sleeps.
//!
//! Two ends that answer each other can synchronize badly: each sleeps because the other is slow,
//! and is slow because it sleeps. The length of a sleep tells this case from idleness. If a sleep
//! was not much longer than falling asleep and waking up takes, spinning would have been better.
//! After such a short sleep, the next spin has the longest time, which gives the other end time to
//! catch up.

use std::time::Instant;

use carina_ring::waiting::AdaptiveSpin;

/// Spins before each sleep. Short sleeps lengthen the next spin; spins that fail shorten it.
#[derive(Clone, Debug)]
pub(crate) struct SpinThenSleep {
    spin: AdaptiveSpin,
    /// Number of SDUs received when the last wait began.
    received: u64,
}

impl SpinThenSleep {
    pub(crate) fn new() -> SpinThenSleep {
        SpinThenSleep {
            spin: AdaptiveSpin::with_max_ns(SPIN_NS_MAX),
            received: 0,
        }
    }

    /// Spins until `ready` returns `true`, or until it is time to sleep; returns `false` in the
    /// second case.
    pub(crate) fn until(&mut self, ready: impl FnMut() -> bool) -> bool {
        self.spin.until(ready)
    }

    /// Adapts how long a waiting receiver lets SDUs accumulate, from the number received since the
    /// last call. `received` is the total so far.
    pub(crate) fn gather(&mut self, received: u64) {
        self.spin.gather(received.wrapping_sub(self.received));
        self.received = received;
    }

    /// Calls `sleep` and lengthens the next spin if the sleep was short.
    pub(crate) fn sleep<T>(&mut self, sleep: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let woken = sleep();
        if start.elapsed().as_nanos() < u128::from(SHORT_SLEEP_NS) {
            self.spin.encourage();
        }
        woken
    }
}

/// Longest spin: enough for the other end to wake up on a busy machine (25 to 50 µs across idle
/// cores) and to answer. The kernel's halt polling for VMs uses the same value.
const SPIN_NS_MAX: u64 = 200_000;

/// A sleep up to this long is usually caused by two ends that wake each other.
const SHORT_SLEEP_NS: u64 = 200_000;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn short_sleep_restores_the_spin_that_failures_shortened() {
        let mut spin_then_sleep = SpinThenSleep::new();
        let full = spin_then_sleep.spin.budget_ns();
        for _ in 0..10 {
            spin_then_sleep.until(|| false);
        }
        let shortened = spin_then_sleep.spin.budget_ns();
        assert!(shortened < full || full == 0);
        spin_then_sleep.sleep(|| std::thread::sleep(Duration::from_millis(2)));
        assert_eq!(spin_then_sleep.spin.budget_ns(), shortened);
        // If the thread loses its processor during one sleep, that sleep is not short. So the test
        // tries up to 100 times.
        let mut is_restored = || {
            spin_then_sleep.sleep(|| ());
            spin_then_sleep.spin.budget_ns() == full
        };
        assert!((0..100).any(|_| is_restored()));
    }
}
