//! How long to spin before sleeping, learned from spins and from sleeps.
//!
//! Two ends that answer each other can fall into step badly: each sleeps because the other is slow,
//! and is slow because it sleeps. How long a sleep took tells that apart from idleness: a sleep not
//! much longer than falling asleep and waking up would have been better spun through. After such a
//! sleep the next spin is as long as spins get, which the other end needs to catch up.

use std::time::Instant;

use carina_ring::waiting::AdaptiveSpin;

/// An adaptive spin that long sleeps shorten and short sleeps lengthen.
#[derive(Clone, Debug)]
pub(crate) struct SpinThenSleep {
    spin: AdaptiveSpin,
    /// What had been received when the last wait began.
    received: u64,
}

impl SpinThenSleep {
    pub(crate) fn new() -> SpinThenSleep {
        SpinThenSleep {
            spin: AdaptiveSpin::with_max_ns(SPIN_NS_MAX),
            received: 0,
        }
    }

    /// Spins until `ready`: `true`, or until it is time to sleep: `false`.
    pub(crate) fn until(&mut self, ready: impl FnMut() -> bool) -> bool {
        self.spin.until(ready)
    }

    /// Lets more of a stream come together, by how much was received since the last call;
    /// `received` counts all SDUs so far.
    pub(crate) fn gather(&mut self, received: u64) {
        self.spin.gather(received.wrapping_sub(self.received));
        self.received = received;
    }

    /// Sleeps by calling `sleep` and learns from how long it took.
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

/// A sleep up to this long is mostly two ends waking each other.
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
        // One that loses its processor in it was no short sleep.
        let mut is_restored = || {
            spin_then_sleep.sleep(|| ());
            spin_then_sleep.spin.budget_ns() == full
        };
        assert!((0..100).any(|_| is_restored()));
    }
}
