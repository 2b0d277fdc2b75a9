//! What tells others that something has changed.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Counts changes, for those that wait for one.
#[derive(Debug, Default)]
pub struct Bell {
    count: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// Counts a change, and wakes those that wait.
    pub fn ring(&self) {
        // A number is whole whatever has panicked.
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.rung.notify_all();
    }

    /// The count of changes as soon as it differs from `seen`, at the latest after `wait`.
    pub fn wait(&self, seen: u64, wait: Duration) -> u64 {
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
        let bell = Bell::default();
        assert_eq!(bell.wait(0, Duration::ZERO), 0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| bell.wait(0, Duration::from_secs(60)));
            bell.ring();
            assert_eq!(waits.join().unwrap(), 1);
        });
        assert_eq!(bell.wait(0, Duration::from_secs(60)), 1);
    }
}
