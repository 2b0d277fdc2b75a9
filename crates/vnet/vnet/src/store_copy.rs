//! A role's local copy of its keys in the store.

use std::collections::{BTreeMap, BTreeSet};

use carina_time::Instant;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::store::{Entry, KeyRange, Revision, Store, StoreError};

/// A copy of all keys with a given prefix, updated by the store's changes.
#[derive(Clone, Debug)]
pub struct StoreCopy {
    range: KeyRange,
    seen: Option<Revision>,
    entries: BTreeMap<String, Entry>,
}

impl StoreCopy {
    /// A copy of the keys with this prefix, empty until the first [`StoreCopy::refresh`].
    #[must_use]
    pub fn new(prefix: &str) -> StoreCopy {
        StoreCopy {
            range: KeyRange::prefix(prefix),
            seen: None,
            entries: BTreeMap::new(),
        }
    }

    /// Updates the copy from the store. Returns the keys that were changed, added or removed.
    ///
    /// # Errors
    /// The store does not answer; the copy is unchanged.
    pub fn refresh(
        &mut self,
        store: &mut dyn Store,
        now: Instant,
    ) -> Result<BTreeSet<String>, StoreError> {
        let Some(seen) = self.seen else {
            return self.read_all(store, now);
        };
        let changes = match store.changes(now, &self.range, seen) {
            Err(StoreError::Compacted(_)) => return self.read_all(store, now),
            other => other?,
        };
        let mut changed = BTreeSet::new();
        for key in changes.deleted {
            if self.entries.remove(&key).is_some() {
                changed.insert(key);
            }
        }
        for entry in changes.written {
            changed.insert(entry.key.clone());
            self.entries.insert(entry.key.clone(), entry);
        }
        self.seen = Some(changes.through);
        Ok(changed)
    }

    fn read_all(
        &mut self,
        store: &mut dyn Store,
        now: Instant,
    ) -> Result<BTreeSet<String>, StoreError> {
        let snapshot = store.range(now, &self.range)?;
        let pair = |entry: Entry| (entry.key.clone(), entry);
        let entries: BTreeMap<_, _> = snapshot.entries.into_iter().map(pair).collect();
        let old = std::mem::replace(&mut self.entries, entries);
        self.seen = Some(snapshot.revision);
        let keys = old.keys().chain(self.entries.keys());
        let differs = |key: &&String| old.get(*key) != self.entries.get(*key);
        Ok(keys.filter(differs).cloned().collect())
    }

    /// The entry of a key at the last refresh; `None` if there was none.
    #[must_use]
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// The revision that last wrote a key, for comparison in a transaction; `None` if the key was
    /// absent.
    #[must_use]
    pub fn revision(&self, key: &str) -> Option<Revision> {
        self.entries.get(key).map(|entry| entry.modified)
    }
}

/// Serializes a record to the value of a key.
///
/// # Panics
/// Never for records whose maps have keys of text or numbers.
pub fn to_value<T: Serialize>(record: &T) -> Vec<u8> {
    serde_json::to_vec(record).expect("a record is JSON")
}

/// Parses a record from the value of an entry.
///
/// # Errors
/// The value is not such a record: the store is damaged, or another version has written it.
pub fn from_value<T: DeserializeOwned>(entry: &Entry) -> Result<T, StoreError> {
    let wrong = |error| StoreError::Damaged(format!("{}: {error}", entry.key));
    serde_json::from_slice(&entry.value).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Transaction;
    use crate::store::memory::MemoryStore;

    #[test]
    fn copy_follows_the_store_also_past_a_forgotten_history() {
        let mut store = MemoryStore::new(1 << 20);
        let now = Instant::ZERO;
        let mut copy = StoreCopy::new("a/");
        let put = |key: &str| Transaction::new().put(key, vec![1]);
        store.commit(now, &put("a/1").put("b/1", vec![])).unwrap();
        let changed = |copy: &mut StoreCopy, store: &mut MemoryStore| -> Vec<String> {
            copy.refresh(store, now).unwrap().into_iter().collect()
        };
        assert_eq!(changed(&mut copy, &mut store), ["a/1"]);
        store.commit(now, &put("a/2").delete("a/1")).unwrap();
        assert_eq!(changed(&mut copy, &mut store), ["a/1", "a/2"]);
        assert_eq!(changed(&mut copy, &mut store), [""; 0]);
        store.commit(now, &put("a/3").delete("a/2")).unwrap();
        let through = store.range(now, &KeyRange::prefix("a/")).unwrap().revision;
        store.compact(now, through).unwrap();
        assert_eq!(changed(&mut copy, &mut store), ["a/2", "a/3"]);
        assert!(copy.entry("a/2").is_none() && copy.revision("a/3").is_some());
    }
}
