//! Commands that run in nodes for others, which end when no one waits for them any more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Error;

/// On whose behalf, the network's name here, the node, and a number that was drawn for the command.
pub(super) type Key = (Vec<String>, String, String, u64);

/// All commands with a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Executions(Arc<Mutex<BTreeMap<Key, State>>>);

#[derive(Debug)]
enum State {
    /// It runs until this is set.
    Runs(Arc<AtomicBool>),
    /// Its end has overtaken it, at this time.
    Ended(Instant),
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Execution {
    all: Executions,
    key: Key,
    /// Set when it is to end.
    pub(super) is_ended: Arc<AtomicBool>,
}

impl Executions {
    /// Notes that a command runs.
    ///
    /// # Errors
    /// It is to end already, or another one has its number.
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

    /// Has a command end, also one that comes only later.
    pub(super) fn end(&self, key: Key) {
        let mut all = self.lock();
        let is_late = |it: &State| matches!(it, State::Ended(at) if at.elapsed() > LATE);
        all.retain(|_, it| !is_late(it));
        let ended = all.values().filter(|it| matches!(it, State::Ended(_)));
        let is_full = ended.count() >= ENDED_MAX;
        match all.get(&key) {
            Some(State::Runs(is_ended)) => is_ended.store(true, Ordering::Release),
            None if !is_full => drop(all.insert(key, State::Ended(Instant::now()))),
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, State>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Execution {
    /// Has it end.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
    }

    /// Whether it is to end.
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

/// How much later than its end a command may come.
const LATE: Duration = Duration::from_secs(60);
/// Ends that are kept for commands which have not come.
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
        let ended = [&one, &two].map(|it| it.is_ended.load(Ordering::Acquire));
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
