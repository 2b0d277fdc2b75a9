//! Watches for traces of remote callers: each looks for the echo requests of a trace at this host's
//! ports. A watch that its caller does not end counts as ended after three minutes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use carina_vnet::trace::PieceSeen;
use carina_vnet_host::trace::PieceWatch;
use carina_vnet_roles::inside::tenants::{Place, Places};

use crate::error::Error;

/// On whose behalf, name of the network on this host, and the session number.
pub(super) type Key = (Vec<String>, String, u64);

/// All watches of this host for traces of remote callers.
#[derive(Debug)]
pub(super) struct Seeking {
    all: Mutex<BTreeMap<Key, Begun>>,
    places: Places,
}

#[derive(Debug)]
struct Begun {
    at: Instant,
    watch: PieceWatch,
    _place: Place,
}

impl Default for Seeking {
    fn default() -> Seeking {
        Seeking {
            all: Mutex::default(),
            places: Places::new("traces", WATCHES_MAX),
        }
    }
}

impl Seeking {
    /// Starts a watch.
    ///
    /// # Errors
    /// There are too many watches, or this one cannot start.
    pub(super) fn begin(
        &self,
        key: Key,
        watch: impl FnOnce() -> Result<PieceWatch, carina_vnet_host::Error>,
    ) -> Result<(), Error> {
        let mut all = self.lock();
        all.retain(|_, begun| begun.at.elapsed() < LEFT);
        let begun = Begun {
            _place: self.places.take(&key.0)?,
            at: Instant::now(),
            watch: watch()?,
        };
        all.insert(key, begun);
        Ok(())
    }

    /// Ends a watch, and returns what was seen.
    ///
    /// # Errors
    /// There is no such watch, or its engine has ended.
    pub(super) fn end(&self, key: &Key) -> Result<PieceSeen, Error> {
        let begun = self.lock().remove(key);
        let begun = begun.ok_or(Error::ended("the watch"))?;
        Ok(begun.watch.end()?)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Begun>> {
        // Every critical section leaves the map consistent, even after a panic.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Largest number of watches on a host at a time.
const WATCHES_MAX: usize = 16;
/// Longest duration of a watch; a trace whose 100 echo requests are all lost takes less.
const LEFT: Duration = Duration::from_secs(180);
