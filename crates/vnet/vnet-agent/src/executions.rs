//! Commands that run in nodes for remote callers. A command is ended when its caller no longer
//! waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// Identifies a command: the parties on whose behalf it runs, the network's name on this host, the
/// node, and the command's number.
pub(super) type Key = (Vec<String>, String, String, u64);

/// The commands that run in nodes, and the requests to end a command that came before the command
/// itself, each by its [`Key`].
#[derive(Clone, Debug, Default)]
pub(super) struct Executions(Arc<Mutex<BTreeMap<Key, State>>>);

#[derive(Debug)]
enum State {
    /// The command runs until this flag is set.
    Runs(Arc<AtomicBool>),
    /// The request to end the command arrived at this time, before the command itself.
    Ended(Instant),
}

/// A command that runs, with the number by which it can be ended. Dropping this removes the command
/// from the list.
#[derive(Debug)]
pub(super) struct Execution {
    all: Executions,
    key: Key,
    /// Set when the command must end.
    pub(super) is_ended: Arc<AtomicBool>,
}

impl Executions {
    /// Adds a command that is about to run.
    ///
    /// # Errors
    /// A request to end the command has arrived before it, or another command has its number.
    pub(super) fn begin(&self, key: Key) -> Result<Execution, Error> {
        let mut all = self.lock();
        if all.contains_key(&key) {
            if matches!(all[&key], State::Ended(_)) {
                all.remove(&key);
            }
            return Err(Error::ended("the connection that waited for the command"));
        }
        let is_ended = Arc::new(AtomicBool::new(false));
        all.insert(key.clone(), State::Runs(Arc::clone(&is_ended)));
        drop(all);
        Ok(Execution {
            all: self.clone(),
            key,
            is_ended,
        })
    }

    /// Ends a command. If the command has not arrived yet, it will be refused when it arrives.
    pub(super) fn end(&self, key: Key) {
        let mut all = self.lock();
        let is_late = |state: &State| matches!(state, State::Ended(at) if at.elapsed() > LATE);
        all.retain(|_, execution| !is_late(execution));
        let ended = all
            .values()
            .filter(|candidate| matches!(candidate, State::Ended(_)));
        let is_full = ended.count() >= ENDED_MAX;
        match all.get(&key) {
            Some(State::Runs(is_ended)) => is_ended.store(true, Ordering::Release),
            None if !is_full => drop(all.insert(key, State::Ended(Instant::now()))),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, State>> {
        // Each critical section leaves the map consistent, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Execution {
    /// Makes the command end. Does not wait for its end.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    /// Whether the command has been ordered to end.
    #[cfg(test)]
    pub(super) fn has_ended(&self) -> bool {
        self.is_ended.load(Ordering::Acquire)
    }
}

impl Drop for Execution {
    fn drop(&mut self) {
        self.all.lock().remove(&self.key);
    }
}

/// How long after the request to end it a command may still arrive.
const LATE: Duration = Duration::from_secs(60);
/// Largest number of kept requests to end commands that have not arrived.
const ENDED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        (
            vec!["operator acme".to_owned()],
            "@1".into(),
            "a".into(),
            number,
        )
    }

    #[test]
    fn command_ends_by_its_number_alone() {
        let all = Executions::default();
        let [one, two] = [1, 2].map(|number| all.begin(key(number)).unwrap());
        assert!(all.begin(key(1)).is_err());
        all.end(key(1));
        let ended = [&one, &two].map(|execution| execution.is_ended.load(Ordering::Acquire));
        assert_eq!(ended, [true, false]);
        drop((one, two));
        assert!(all.lock().is_empty());
    }

    #[test]
    fn command_that_comes_after_its_end_does_not_begin() {
        let all = Executions::default();
        all.end(key(1));
        assert!(all.begin(key(1)).is_err());
        assert!(all.lock().is_empty());
        for number in 0..2 * ENDED_MAX as u64 {
            all.end(key(number));
        }
        assert_eq!(all.lock().len(), ENDED_MAX);
    }
}
