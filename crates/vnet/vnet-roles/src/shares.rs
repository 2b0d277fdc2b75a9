//! How much of something each party has at a time, so that one leaves room for the others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What parties have. All that one has shares a `V`, which is there while it has anything.
#[derive(Debug)]
pub struct Shares<K, V = ()>(Mutex<BTreeMap<K, (usize, Arc<V>)>>);

/// One thing that a party has, until this is dropped.
#[derive(Debug)]
pub struct Share<K: Ord, V = ()> {
    shares: Arc<Shares<K, V>>,
    key: K,
    /// What all of the party have together.
    pub(crate) common: Arc<V>,
}

impl<K, V> Default for Shares<K, V> {
    fn default() -> Shares<K, V> {
        Shares(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Default> Shares<K, V> {
    /// One more for a party that has fewer than `most`, which is not 0.
    ///
    /// # Errors
    /// How many it has.
    pub fn take(self: &Arc<Self>, key: &K, most: usize) -> Result<Share<K, V>, usize> {
        let mut all = self.lock();
        let (count, common) = all.entry(key.clone()).or_default();
        if *count >= most {
            return Err(*count);
        }
        *count += 1;
        Ok(Share {
            shares: Arc::clone(self),
            key: key.clone(),
            common: Arc::clone(common),
        })
    }
}

impl<K: Ord + Clone, V: Default> Shares<Option<K>, V> {
    /// One more for a party, and one of all: at most `of_party` and `of_all` of them.
    ///
    /// # Errors
    /// How many the party has, or all together.
    pub fn both(
        self: &Arc<Self>,
        party: Option<K>,
        [of_party, of_all]: [usize; 2],
    ) -> Result<[Share<Option<K>, V>; 2], usize> {
        let own = self.take(&party, of_party)?;
        Ok([own, self.take(&None, of_all)?])
    }
}

impl<K, V> Shares<K, V> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, (usize, Arc<V>)>> {
        // Every critical section leaves the map whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no party has anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }
}

impl<K: Ord, V> Drop for Share<K, V> {
    fn drop(&mut self) {
        let mut all = self.shares.lock();
        if let Some((count, _)) = all.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.key);
            }
        }
    }
}
