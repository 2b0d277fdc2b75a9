//! Limits how many things of a kind each party has, so that one leaves room for others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what parties have. The things of one party share a value of type `V`, which exists while
/// the party has any.
#[derive(Debug)]
pub struct Shares<K, V = ()>(Mutex<BTreeMap<K, (usize, Arc<V>)>>);

/// One thing of a party. It counts until this is dropped.
#[derive(Debug)]
pub struct Share<K: Ord, V = ()> {
    shares: Arc<Shares<K, V>>,
    key: K,
    /// The value that all things of the party share.
    pub(crate) common: Arc<V>,
}

impl<K, V> Default for Shares<K, V> {
    fn default() -> Shares<K, V> {
        Shares(Mutex::default())
    }
}

impl<K: Ord + Clone, V: Default> Shares<K, V> {
    /// Counts one more for a party, if it has fewer than `most`, which must not be 0.
    ///
    /// # Errors
    /// The number that the party has, which is `most` or more.
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
    /// Counts one more for a party (at most `of_party`), and one for all together (at most
    /// `of_all`).
    ///
    /// # Errors
    /// The number that the party has, or that all have together.
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
        // Every critical section leaves the map consistent, even after a panic.
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
