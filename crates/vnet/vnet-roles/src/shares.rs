//! Limits how many things of a kind each party has, so that one leaves room for others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts how many things of one kind each party has; `K` identifies the party. All things of a
/// party share a value of type `V`, which exists as long as the party has any.
#[derive(Debug)]
pub struct Shares<K, V = ()>(Mutex<BTreeMap<K, (usize, Arc<V>)>>);

/// One counted thing of a party. Dropping it lowers the party's count.
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
    /// Raises the count of the party `key` by one until the returned value is dropped. Does not
    /// raise a count that is `max` or more. `max` must not be 0.
    ///
    /// # Errors
    /// The count of the party, if it is not raised.
    pub fn take(self: &Arc<Self>, key: &K, max: usize) -> Result<Share<K, V>, usize> {
        let mut all = self.lock();
        let (count, common) = all.entry(key.clone()).or_default();
        if *count >= max {
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
    /// Raises two counts by one: that of a party, to at most `of_party`, and that of all parties
    /// together, to at most `of_all`.
    ///
    /// # Errors
    /// The count that has reached its bound; neither count is then raised.
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

    /// Whether the counts of all parties are 0.
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
