//! A store in memory, for simulations and as a model for tests of other stores.

use std::collections::{BTreeMap, BTreeSet};

use carina_time::{Duration, Instant};

use super::{
    Changes, Compare, Entry, KeyRange, LeaseId, Outcome, Revision, Snapshot, Store, StoreError,
    Transaction, Write,
};

/// A deterministic store in memory, which ends with its process.
#[derive(Clone, Debug)]
pub struct MemoryStore {
    revision: Revision,
    compacted: Revision,
    entries: BTreeMap<String, Entry>,
    /// Deleted keys, each with the revision that deleted it, as far back as the history goes.
    deleted: BTreeMap<String, Revision>,
    /// All keys of `entries` and `deleted` by revision, so that changes are found without scanning
    /// everything.
    changed: BTreeSet<(Revision, String)>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Leases in the order in which they end.
    ends: BTreeSet<(Instant, LeaseId)>,
    leases_granted: u64,
    /// Bytes of all keys and values, and below the most that are allowed.
    bytes: usize,
    bytes_max: usize,
}

#[derive(Clone, Debug)]
struct Lease {
    ttl: Duration,
    ends: Instant,
    keys: BTreeSet<String>,
}

impl MemoryStore {
    /// An empty store with room for `bytes_max` bytes of keys and values.
    #[must_use]
    pub fn new(bytes_max: usize) -> MemoryStore {
        MemoryStore {
            revision: Revision(0),
            compacted: Revision(0),
            entries: BTreeMap::new(),
            deleted: BTreeMap::new(),
            changed: BTreeSet::new(),
            leases: BTreeMap::new(),
            ends: BTreeSet::new(),
            leases_granted: 0,
            bytes: 0,
            bytes_max,
        }
    }

    /// Whether the store has a key. Leases that have ended since the last operation are not taken
    /// into account.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Ends all leases whose time has passed.
    fn expire(&mut self, now: Instant) {
        let over = self.ends.iter().take_while(|(ends, _)| *ends <= now);
        let mut over: Vec<LeaseId> = over.map(|(_, id)| *id).collect();
        // In the order in which they were granted.
        over.sort_unstable();
        for lease in over {
            self.end(lease);
        }
    }

    fn end(&mut self, id: LeaseId) {
        let Some(lease) = self.leases.remove(&id) else {
            return;
        };
        self.ends.remove(&(lease.ends, id));
        if !lease.keys.is_empty() {
            self.revision.0 += 1;
        }
        for key in lease.keys {
            self.delete(&key);
        }
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Absent(key) => !self.entries.contains_key(key),
            Compare::Unchanged(key, since) => {
                let entry = self.entries.get(key);
                entry.is_some_and(|entry| entry.modified == *since)
            }
        }
    }

    /// The bytes of all keys and values after a transaction.
    fn bytes_after(&self, transaction: &Transaction) -> usize {
        let mut bytes = self.bytes;
        for write in &transaction.writes {
            let before = self.entries.get(write.key());
            bytes -= before.map_or(0, size);
            if let Write::Put { key, value, .. } = write {
                bytes += key.len() + value.len();
            }
        }
        bytes
    }

    fn write(&mut self, write: &Write) {
        self.delete(write.key());
        let Write::Put { key, value, lease } = write else {
            return;
        };
        if let Some(lease) = lease.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.insert(key.clone());
        }
        let entry = Entry {
            key: key.clone(),
            value: value.clone(),
            modified: self.revision,
            lease: *lease,
        };
        self.bytes += size(&entry);
        if let Some(gone) = self.deleted.remove(key) {
            self.changed.remove(&(gone, key.clone()));
        }
        self.changed.insert((self.revision, key.clone()));
        self.entries.insert(key.clone(), entry);
    }

    /// Deletes a key, and records that the current revision deleted it.
    fn delete(&mut self, key: &str) {
        let Some(entry) = self.entries.remove(key) else {
            return;
        };
        self.bytes -= size(&entry);
        if let Some(lease) = entry.lease.and_then(|id| self.leases.get_mut(&id)) {
            lease.keys.remove(key);
        }
        let changed = (entry.modified, entry.key);
        self.changed.remove(&changed);
        let (_, key) = changed;
        self.changed.insert((self.revision, key.clone()));
        self.deleted.insert(key, self.revision);
    }

    fn within(&self, range: &KeyRange) -> impl Iterator<Item = &Entry> {
        // `BTreeMap::range` panics on an end before the beginning; such a range is empty.
        let from = range.from.clone();
        let to = range.to.clone().max(from.clone());
        self.entries.range(from..to).map(|(_, entry)| entry)
    }
}

impl Store for MemoryStore {
    fn range(&mut self, now: Instant, range: &KeyRange) -> Result<Snapshot, StoreError> {
        self.expire(now);
        Ok(Snapshot {
            revision: self.revision,
            entries: self.within(range).cloned().collect(),
        })
    }

    fn changes(
        &mut self,
        now: Instant,
        range: &KeyRange,
        after: Revision,
    ) -> Result<Changes, StoreError> {
        self.expire(now);
        if after < self.compacted {
            return Err(StoreError::Compacted(self.compacted));
        }
        let changed = self
            .changed
            .range((Revision(after.0.saturating_add(1)), String::new())..);
        let keys: BTreeSet<&String> = changed
            .map(|(_, key)| key)
            .filter(|key| range.contains(key))
            .collect();
        let (written, gone): (Vec<&String>, Vec<&String>) = keys
            .into_iter()
            .partition(|key| self.entries.contains_key(*key));
        Ok(Changes {
            through: self.revision,
            written: written
                .into_iter()
                .map(|key| self.entries[key].clone())
                .collect(),
            deleted: gone.into_iter().cloned().collect(),
        })
    }

    fn commit(&mut self, now: Instant, transaction: &Transaction) -> Result<Outcome, StoreError> {
        transaction.check()?;
        self.expire(now);
        if !transaction
            .compares
            .iter()
            .all(|condition| self.holds(condition))
        {
            return Ok(Outcome::Conflict);
        }
        for write in &transaction.writes {
            if let Write::Put {
                lease: Some(id), ..
            } = write
                && !self.leases.contains_key(id)
            {
                return Err(StoreError::NoSuchLease(*id));
            }
        }
        let bytes = self.bytes_after(transaction);
        if bytes > self.bytes_max && bytes > self.bytes {
            let words = format!("it has room for {} bytes", self.bytes_max);
            return Err(StoreError::Full(words));
        }
        let changes = |write: &Write| match write {
            Write::Put { .. } => true,
            Write::Delete(key) => self.entries.contains_key(key),
        };
        if transaction.writes.iter().any(changes) {
            self.revision.0 += 1;
        }
        for write in &transaction.writes {
            self.write(write);
        }
        Ok(Outcome::Done(self.revision))
    }

    fn grant(&mut self, now: Instant, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.expire(now);
        self.leases_granted += 1;
        let id = LeaseId(self.leases_granted);
        let lease = Lease {
            ttl,
            ends: now + ttl,
            keys: BTreeSet::new(),
        };
        self.ends.insert((lease.ends, id));
        self.leases.insert(id, lease);
        Ok(id)
    }

    fn renew(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.expire(now);
        match self.leases.get_mut(&lease) {
            Some(held) => {
                self.ends.remove(&(held.ends, lease));
                held.ends = now + held.ttl;
                self.ends.insert((held.ends, lease));
                Ok(())
            }
            None => Err(StoreError::NoSuchLease(lease)),
        }
    }

    fn revoke(&mut self, now: Instant, lease: LeaseId) -> Result<(), StoreError> {
        self.expire(now);
        self.end(lease);
        Ok(())
    }

    fn compact(&mut self, now: Instant, through: Revision) -> Result<(), StoreError> {
        self.expire(now);
        self.compacted = self.compacted.max(through.min(self.revision));
        let compacted = self.compacted;
        let deleted = &mut self.deleted;
        self.changed.retain(|(at, key)| {
            let is_gone = *at <= compacted && deleted.get(key) == Some(at);
            if is_gone {
                deleted.remove(key);
            }
            !is_gone
        });
        Ok(())
    }
}

fn size(entry: &Entry) -> usize {
    entry.key.len() + entry.value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_store_refuses_what_grows_and_takes_what_shrinks() {
        let mut store = MemoryStore::new(10);
        let now = Instant::ZERO;
        let put = |key: &str, bytes| Transaction::new().put(key, vec![0; bytes]);
        store.commit(now, &put("a", 9)).unwrap();
        let error = store.commit(now, &put("b", 1)).unwrap_err();
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        store.commit(now, &put("a", 3)).unwrap();
        store.commit(now, &put("b", 5)).unwrap();
        let all = store.range(now, &KeyRange::prefix("b")).unwrap();
        assert_eq!(all.entries[0].value.len(), 5);
    }
}
