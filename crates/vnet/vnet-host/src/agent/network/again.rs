//! Schedules retries with growing waiting times.

use std::time::{Duration, Instant};

/// Schedules retries of a failed operation, with growing waiting times.
#[derive(Debug)]
pub(crate) struct Again {
    /// Time from the last failure to the next retry; it grows with each failure.
    pub(super) wait: Duration,
    failed_at: Instant,
}

impl Default for Again {
    fn default() -> Again {
        Again {
            wait: Duration::ZERO,
            failed_at: Instant::now(),
        }
    }
}

impl Again {
    pub(crate) fn later(&mut self) {
        self.wait = (self.wait * 2).clamp(AGAIN_MIN, AGAIN_MAX);
        self.failed_at = Instant::now();
    }

    pub(crate) fn is_due(&self) -> bool {
        self.failed_at.elapsed() >= self.wait
    }
}

const AGAIN_MIN: Duration = Duration::from_secs(4);
const AGAIN_MAX: Duration = Duration::from_secs(60);
