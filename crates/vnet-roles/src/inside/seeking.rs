//! Watches for echos that others have begun. One that its owner does not end ends by itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet_host::Error;
use carina_vnet_host::way::{PieceSeen, PieceWatch};

/// On whose behalf, the network's name here, and a number that the one who looks has drawn.
pub(super) type Key = (Vec<String>, String, u64);

/// All watches, with their beginnings.
#[derive(Debug, Default)]
pub(super) struct Seeking(Mutex<BTreeMap<Key, (Instant, PieceWatch)>>);

impl Seeking {
    /// Begins a watch.
    ///
    /// # Errors
    /// There are too many, or it cannot begin.
    pub(super) fn begin(
        &self,
        key: Key,
        watch: impl FnOnce() -> Result<PieceWatch, Error>,
    ) -> Result<(), Error> {
        let mut all = self.lock();
        all.retain(|_, (began, _)| began.elapsed() < LEFT);
        if all.len() >= WATCHES_MAX {
            return Err(Error::Unsupported {
                what: "another trace".to_owned(),
                instead: "too many go on already; try again in a minute",
            });
        }
        all.insert(key, (Instant::now(), watch()?));
        Ok(())
    }

    /// Ends a watch: what was seen.
    ///
    /// # Errors
    /// There is no such watch, or its engine has ended.
    pub(super) fn end(&self, key: &Key) -> Result<PieceSeen, Error> {
        let watch = self.lock().remove(key);
        watch.ok_or(Error::Ended("the watch"))?.1.end()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, (Instant, PieceWatch)>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const WATCHES_MAX: usize = 16;
/// A trace of 100 echos that are all lost takes less than this.
const LEFT: Duration = Duration::from_secs(180);
