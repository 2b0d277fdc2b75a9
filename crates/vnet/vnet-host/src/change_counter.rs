//! Wakes threads that wait for a change.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts changes, so that threads can wait for the next one.
#[derive(Debug, Default)]
pub(crate) struct ChangeCounter {
    count: Mutex<u64>,
    rung: Condvar,
}

impl ChangeCounter {
    /// Counts a change and wakes the waiting threads.
    pub(crate) fn add(&self) {
        // The number is consistent even after a panic.
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.rung.notify_all();
    }

    /// Waits until the count differs from `seen`, at most for `wait`. Returns the count.
    pub(crate) fn wait(&self, seen: u64, wait: Duration) -> u64 {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .rung
            .wait_timeout_while(count, wait, |count| *count == seen);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_next_change() {
        let changes = ChangeCounter::default();
        assert_eq!(changes.wait(0, Duration::ZERO), 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| changes.wait(0, Duration::from_secs(60)));
            changes.add();
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert_eq!(changes.wait(0, Duration::from_secs(60)), 1);
    }
}
