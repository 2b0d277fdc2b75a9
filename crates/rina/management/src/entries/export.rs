//! Converts stored entries to the form in which they are sent to other members.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_time::Instant;

use super::{Entry, Held, Key, Kind, Store};

impl Store {
    /// All entries, in the form in which they are sent.
    pub(in super::super) fn export(&self, now: Instant) -> Vec<Entry> {
        self.entries
            .keys()
            .map(|key| self.as_entry(now, key))
            .collect()
    }

    /// All entries of one origin, in the form in which they are sent.
    pub(in super::super) fn export_of(&self, now: Instant, origin: &str) -> Vec<Entry> {
        let of_origin = self.of_origin(origin);
        of_origin.map(|(key, _)| self.as_entry(now, key)).collect()
    }

    pub(super) fn of_origin(&self, origin: &str) -> impl Iterator<Item = (&Key, &Held)> {
        let first = Key {
            origin: origin.to_string(),
            kind: Kind::Member,
            name: String::new(),
        };
        let origin = first.origin.clone();
        let from = self.entries.range(first..);
        from.take_while(move |(key, _)| key.origin == origin)
    }

    /// One entry in the form in which it is sent. Panics if the store does not have the key.
    pub(in super::super) fn as_entry(&self, now: Instant, key: &Key) -> Entry {
        let held = &self.entries[key];
        let since = match held.value {
            None => held.deleted,
            Some(_) if key.origin == self.own || self.is_reachable(&key.origin, now) => now,
            Some(_) => self
                .origins
                .get(&key.origin)
                .map_or(now, |origin| origin.heard),
        };
        Entry {
            key: key.clone(),
            seq: held.seq,
            value: held.value.clone(),
            age: now.since(since),
        }
    }
}
