//! Replicated state: entries that every member of the DIF holds.
//!
//! An entry belongs to the member that made it, its *origin*. Only the origin makes new versions of
//! the entry, each with a higher sequence number. Entries spread by flooding. Neighbours compare
//! digests by origin, which repairs what a partition or a crash prevented. A deleted entry stays
//! for a while as a *tombstone*, so that older versions do not return.
//!
//! ```text
//!              newer version                 origin unreachable for SILENT_AFTER
//!   (none) ------------------> live ------------------------------------------> hidden
//!      ^                        | ^                 origin reachable               | |
//!      |  TOMBSTONE_TIME        | +------------------------------------------------+ |
//!      +------------ tombstone <+ deleted by its origin                              |
//!      +------------------------------------------------------------ FORGET_AFTER ---+
//! ```
//!
//! Hidden entries are still compared and forwarded, with the time for which their origin has been
//! unreachable. So all members forget them at about the same time, and no member returns them to
//! another.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Bound;

use carina_time::{Duration, Instant};

mod export;
mod limits;

pub(super) use limits::{ENTRIES_MAX, PER_ORIGIN_MAX, StoreFull};

/// Entries of a member are hidden when it has been unreachable for this long.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(60);

/// Entries of a member are forgotten when it has been unreachable for this long.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Interval at which [`Store::refresh`] is called.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Time for which the store keeps the tombstone of a deleted entry.
const TOMBSTONE_TIME: Duration = Duration::from_secs(300);

/// Highest sequence number that is accepted, so that a higher one always exists.
const SEQ_MAX: u64 = 1 << 62;

/// Low bits of a sequence number that come from the incarnation and do not count up. So two members
/// of the same name never produce equal versions.
const SEQ_TAG_BITS: u32 = 16;

/// The kind of object that an entry describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A member. The key is the member's name, and the member is the origin.
    Member,
    /// A registered application. The key is its name.
    Application,
    /// A member that was expelled. The key is its name.
    Expelled,
}

/// What identifies an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) origin: String,
    pub(super) kind: Kind,
    pub(super) name: String,
}

/// An entry as it is sent to other members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Sequence number of the version, 1 or more.
    pub(super) seq: u64,
    /// `None` for a tombstone.
    pub(super) value: Option<Vec<u8>>,
    /// For a tombstone: how long ago the entry was deleted. For any other entry: how long its
    /// origin has been unreachable.
    pub(super) age: Duration,
}

#[derive(Clone, Debug)]
struct Held {
    seq: u64,
    value: Option<Vec<u8>>,
    /// For a tombstone: when the entry was deleted.
    deleted: Instant,
}

/// Result of merging an entry from another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeOutcome {
    /// The version is new: forward it.
    Accepted,
    /// The version was already known.
    Known,
    /// The store has a newer version, which the sender lacks.
    Outdated,
    /// The entry has this member as its origin, but this member did not make it: reissue it.
    Disputed,
    /// The store is full, or the entry is too old.
    Refused,
}

/// The replicated entries that a member holds.
#[derive(Debug, Default)]
pub(super) struct Store {
    own: String,
    /// The low [`SEQ_TAG_BITS`] bits of this member's sequence numbers, from its incarnation.
    tag: u64,
    seq: u64,
    entries: BTreeMap<Key, Held>,
    /// Number of live entries, by origin and kind.
    counts: BTreeMap<(String, Kind), usize>,
    /// Sum of the hashes of the live entries, by origin.
    digests: BTreeMap<String, u64>,
    /// Origins of the live entries of each application.
    holders: BTreeMap<String, BTreeSet<String>>,
    /// Other members whose entries the store has.
    origins: BTreeMap<String, Origin>,
    /// Number of live entries of [`Kind::Expelled`], usually 0.
    expelled: usize,
}

/// State of another member that is the origin of entries.
#[derive(Debug, Default)]
struct Origin {
    /// Time at which the member was last reachable.
    heard: Instant,
    is_visible: bool,
    /// Value of the member's live entry of [`Kind::Member`]; a copy for fast access.
    member: Option<Vec<u8>>,
}

impl Store {
    pub(super) fn new(own: &str, incarnation: u64) -> Store {
        Store {
            own: own.to_string(),
            tag: incarnation & ((1 << SEQ_TAG_BITS) - 1),
            ..Store::default()
        }
    }

    /// Makes or changes an entry of this member. Returns the new version.
    ///
    /// # Errors
    /// A limit is reached.
    pub(super) fn put(
        &mut self,
        kind: Kind,
        name: &str,
        value: Vec<u8>,
    ) -> Result<Entry, StoreFull> {
        let key = self.own_key(kind, name);
        let is_new = self
            .entries
            .get(&key)
            .is_none_or(|held| held.value.is_none());
        if is_new && self.count(kind, &self.own) >= PER_ORIGIN_MAX {
            return Err(StoreFull::Member);
        }
        if !self.entries.contains_key(&key) && self.entries.len() >= ENTRIES_MAX {
            return Err(StoreFull::Dif);
        }
        Ok(self.write_own(key, Some(value), Instant::ZERO))
    }

    /// Deletes an entry of this member and returns its tombstone; `None` when there is no such
    /// entry.
    pub(super) fn delete(&mut self, now: Instant, kind: Kind, name: &str) -> Option<Entry> {
        let key = self.own_key(kind, name);
        self.entries.get(&key)?.value.as_ref()?;
        Some(self.write_own(key, None, now))
    }

    /// Merges an entry from another member into the store.
    pub(super) fn merge(&mut self, now: Instant, entry: Entry) -> MergeOutcome {
        let Entry {
            key,
            seq,
            value,
            age,
        } = entry;
        if seq == 0 || seq > SEQ_MAX {
            return MergeOutcome::Refused;
        }
        if let Some(held) = self.entries.get(&key) {
            // This applies to own entries too: reissuing the entry for each old copy still in
            // transit would never end.
            if held.seq > seq {
                return MergeOutcome::Outdated;
            }
            if held.seq == seq && (key.origin != self.own || held.value == value) {
                if value.is_some() && key.origin != self.own {
                    self.note_heard(&key.origin, now - age);
                }
                return MergeOutcome::Known;
            }
        }
        if key.origin == self.own {
            self.seq = self.seq.max(seq);
            let is_nothing = value.is_none() && !self.entries.contains_key(&key);
            return if is_nothing {
                MergeOutcome::Known
            } else {
                MergeOutcome::Disputed
            };
        }
        let is_old = match value {
            None => age >= TOMBSTONE_TIME,
            Some(_) => age >= FORGET_AFTER,
        };
        let is_full = !self.entries.contains_key(&key)
            && (self.entries.len() >= ENTRIES_MAX
                || self.count(key.kind, &key.origin) >= PER_ORIGIN_MAX);
        if is_old || is_full {
            return MergeOutcome::Refused;
        }
        let then = now - age;
        if value.is_some() {
            self.note_heard(&key.origin, then);
        }
        let held = Held {
            seq,
            value,
            deleted: then,
        };
        self.set(key, held);
        MergeOutcome::Accepted
    }

    /// Makes a new version of an own entry, with a sequence number above all that were seen. It is
    /// a tombstone when this member does not have the entry.
    pub(super) fn reissue(&mut self, now: Instant, key: &Key) -> Entry {
        let value = self.entries.get(key).and_then(|held| held.value.clone());
        self.write_own(key.clone(), value, now)
    }

    /// The value of an entry, visible or not; `None` when it is deleted or absent.
    pub(super) fn value(&self, kind: Kind, origin: &str, name: &str) -> Option<&[u8]> {
        let key = Key {
            origin: origin.to_string(),
            kind,
            name: name.to_string(),
        };
        self.entries.get(&key)?.value.as_deref()
    }

    /// Visible entries of a kind: origin, name and value.
    pub(super) fn visible(&self, kind: Kind) -> impl Iterator<Item = (&str, &str, &[u8])> {
        self.entries.iter().filter_map(move |(key, held)| {
            let value = held.value.as_deref()?;
            (key.kind == kind && self.is_visible(&key.origin)).then_some((
                key.origin.as_str(),
                key.name.as_str(),
                value,
            ))
        })
    }

    /// All entries of a kind that are not deleted, hidden ones included: origin, name and value.
    pub(super) fn all(&self, kind: Kind) -> impl Iterator<Item = (&str, &str, &[u8])> {
        let is_nothing = kind == Kind::Expelled && self.expelled == 0;
        let entries = (!is_nothing).then(|| self.entries.iter());
        entries
            .into_iter()
            .flatten()
            .filter_map(move |(key, held)| {
                let value = held.value.as_deref()?;
                (key.kind == kind).then_some((key.origin.as_str(), key.name.as_str(), value))
            })
    }

    /// True when the entries of this origin are visible: it was reachable within [`SILENT_AFTER`].
    pub(super) fn is_visible(&self, origin: &str) -> bool {
        origin == self.own
            || self
                .origins
                .get(origin)
                .is_some_and(|origin| origin.is_visible)
    }

    /// For each origin, the sum of the hashes of its live entries.
    pub(super) fn digests(&self) -> &BTreeMap<String, u64> {
        &self.digests
    }

    /// Names of the visible members where an application is registered.
    pub(super) fn holders(&self, application: &str) -> impl Iterator<Item = &str> {
        let origins = self.holders.get(application).into_iter().flatten();
        origins
            .map(String::as_str)
            .filter(|origin| self.is_visible(origin))
    }

    /// Applications that are registered at any member, hidden ones included.
    pub(super) fn applications(&self) -> impl Iterator<Item = &str> {
        self.holders.keys().map(String::as_str)
    }

    /// Applications registered at one member.
    pub(super) fn applications_of(&self, origin: &str) -> impl Iterator<Item = &str> {
        let of_origin = self
            .of_origin(origin)
            .filter(|(key, held)| key.kind == Kind::Application && held.value.is_some());
        of_origin.map(|(key, _)| key.name.as_str())
    }

    /// Updates which members are visible and forgets members unreachable for [`FORGET_AFTER`].
    /// `is_reachable` judges a member by the value of its [`Kind::Member`] entry. Returns true when
    /// visibility has changed. It runs after every change of routes, so it avoids comparing names.
    pub(super) fn refresh(&mut self, now: Instant, is_reachable: impl Fn(&[u8]) -> bool) -> bool {
        let mut forgotten = Vec::new();
        let mut has_changed = false;
        for (name, origin) in &mut self.origins {
            if origin.member.as_deref().is_some_and(&is_reachable) {
                origin.heard = now;
            }
            let silent = now.since(origin.heard);
            has_changed |= origin.is_visible != (silent < SILENT_AFTER);
            origin.is_visible = silent < SILENT_AFTER;
            if silent >= FORGET_AFTER {
                forgotten.push(name.clone());
            }
        }
        for name in forgotten {
            for entry in self.export_of(now, &name) {
                self.unset(&entry.key);
            }
            self.origins.remove(&name);
        }
        self.entries
            .retain(|_, held| held.value.is_some() || now.since(held.deleted) < TOMBSTONE_TIME);
        has_changed
    }

    /// Values of the [`Kind::Member`] entries of visible members whose names sort before this
    /// one's.
    pub(super) fn members_before(&self) -> impl Iterator<Item = &[u8]> {
        let until = (Bound::Unbounded, Bound::Excluded(self.own.as_str()));
        let before = self.origins.range::<str, _>(until);
        let visible = before.filter(|(_, origin)| origin.is_visible);
        visible.filter_map(|(_, origin)| origin.member.as_deref())
    }

    fn is_reachable(&self, origin: &str, now: Instant) -> bool {
        // `refresh` runs at least once in each [`REFRESH_INTERVAL`].
        let origin = self.origins.get(origin);
        origin.is_some_and(|origin| now.since(origin.heard) < 2 * REFRESH_INTERVAL)
    }

    fn note_heard(&mut self, origin: &str, then: Instant) {
        if let Some(known) = self.origins.get_mut(origin) {
            known.heard = known.heard.max(then);
        } else {
            let new = Origin {
                heard: then,
                is_visible: true,
                member: None,
            };
            self.origins.insert(origin.to_string(), new);
        }
    }

    fn own_key(&self, kind: Kind, name: &str) -> Key {
        Key {
            origin: self.own.clone(),
            kind,
            name: name.to_string(),
        }
    }

    fn count(&self, kind: Kind, origin: &str) -> usize {
        self.counts
            .get(&(origin.to_string(), kind))
            .copied()
            .unwrap_or(0)
    }

    /// Stores an entry; it replaces an earlier version.
    fn set(&mut self, key: Key, held: Held) {
        self.unset(&key);
        if let Some(value) = &held.value {
            self.expelled += usize::from(key.kind == Kind::Expelled);
            if key.kind == Kind::Member
                && key.name == key.origin
                && let Some(origin) = self.origins.get_mut(&key.origin)
            {
                origin.member = Some(value.clone());
            }
            *self
                .counts
                .entry((key.origin.clone(), key.kind))
                .or_default() += 1;
            let digest = self.digests.entry(key.origin.clone()).or_default();
            *digest = digest.wrapping_add(hash(&key, held.seq));
            if key.kind == Kind::Application {
                let origins = self.holders.entry(key.name.clone()).or_default();
                origins.insert(key.origin.clone());
            }
        }
        self.entries.insert(key, held);
    }

    fn unset(&mut self, key: &Key) {
        let Some(Held {
            seq,
            value: Some(_),
            ..
        }) = self.entries.remove(key)
        else {
            return;
        };
        self.expelled -= usize::from(key.kind == Kind::Expelled);
        if key.kind == Kind::Member
            && key.name == key.origin
            && let Some(origin) = self.origins.get_mut(&key.origin)
        {
            origin.member = None;
        }
        let of_kind = (key.origin.clone(), key.kind);
        if let Some(count) = self.counts.get_mut(&of_kind) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&of_kind);
            }
        }
        if let Some(digest) = self.digests.get_mut(&key.origin) {
            *digest = digest.wrapping_sub(hash(key, seq));
        }
        let has_any = [Kind::Member, Kind::Application, Kind::Expelled]
            .into_iter()
            .any(|kind| self.count(kind, &key.origin) > 0);
        if !has_any {
            self.digests.remove(&key.origin);
        }
        if key.kind == Kind::Application
            && let Some(origins) = self.holders.get_mut(&key.name)
        {
            origins.remove(&key.origin);
            if origins.is_empty() {
                self.holders.remove(&key.name);
            }
        }
    }

    fn write_own(&mut self, key: Key, value: Option<Vec<u8>>, now: Instant) -> Entry {
        self.seq = ((self.seq >> SEQ_TAG_BITS) + 1) << SEQ_TAG_BITS | self.tag;
        let held = Held {
            seq: self.seq,
            value: value.clone(),
            deleted: now,
        };
        self.set(key.clone(), held);
        Entry {
            key,
            seq: self.seq,
            value,
            age: Duration::ZERO,
        }
    }
}

/// FNV-1a hash of what identifies a version, mixed once more. Without the mixing, FNV carries the
/// last bytes over unchanged, and the sum of a restarted member's new versions would often equal
/// the sum of its old ones.
fn hash(key: &Key, seq: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    eat(&[key.kind as u8]);
    eat(key.name.as_bytes());
    eat(&[0]);
    eat(&seq.to_be_bytes());
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests;
