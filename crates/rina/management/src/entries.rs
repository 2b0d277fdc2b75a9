//! Replicated state: entries that every member of the DIF holds.
//!
//! An entry belongs to the member that made it (its *origin*), which alone makes new versions of
//! it, each with a higher sequence number. Entries spread by flooding; digests by origin find
//! what a partition or a crash kept apart. A deleted entry stays for a while as a *tombstone*, so
//! that older versions do not come back.
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
//! Hidden entries are still compared and passed on, with the time that their origin has been
//! silent, so that members forget them at about the same time and do not give them back to one
//! another.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Bound;

use carina_time::{Duration, Instant};

mod export;
mod limits;

pub(super) use limits::{ENTRIES_MAX, PER_ORIGIN_MAX, StoreFull};

/// How long entries of an unreachable member stay visible.
pub(super) const SILENT_AFTER: Duration = Duration::from_secs(60);

/// After how long they are forgotten.
pub(super) const FORGET_AFTER: Duration = Duration::from_secs(600);

/// How often [`Store::refresh`] is called.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// How long a tombstone is kept.
const TOMBSTONE_TIME: Duration = Duration::from_secs(300);

/// Highest version that is believed: there is always room for another one above it.
const SEQ_MAX: u64 = 1 << 62;

/// Bits of a version that are the incarnation's and not counted: two members of one name make no
/// two versions that are taken for the same.
const SEQ_TAG_BITS: u32 = 16;

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A member: the key is its name, and it is the origin.
    Member,
    /// An application: the key is its name.
    Application,
    /// A member that was expelled: the key is its name.
    Expelled,
}

/// What an entry is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) origin: String,
    pub(super) kind: Kind,
    pub(super) name: String,
}

/// An entry as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// Version, 1 or more.
    pub(super) seq: u64,
    /// `None` for a tombstone.
    pub(super) value: Option<Vec<u8>>,
    /// How long ago it was deleted, for a tombstone, or how long its origin has been unreachable.
    pub(super) age: Duration,
}

#[derive(Clone, Debug)]
struct Held {
    seq: u64,
    value: Option<Vec<u8>>,
    /// When it was deleted, for a tombstone.
    deleted: Instant,
}

/// What the store made of an entry that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeOutcome {
    /// It is new, or newer: pass it on.
    Accepted,
    /// It was known.
    Known,
    /// The store has a newer version, which the sender lacks.
    Outdated,
    /// It is an entry of this member that this member did not make: to be reissued.
    Disputed,
    /// There is no room, or it is too old to matter.
    Refused,
}

/// The entries that a member holds.
#[derive(Debug, Default)]
pub(super) struct Store {
    own: String,
    /// Of the incarnation, as long as [`SEQ_TAG_BITS`].
    tag: u64,
    seq: u64,
    entries: BTreeMap<Key, Held>,
    /// Live entries: how many of each origin and kind, the sum of their hashes by origin, and the
    /// origins of each application.
    counts: BTreeMap<(String, Kind), usize>,
    digests: BTreeMap<String, u64>,
    holders: BTreeMap<String, BTreeSet<String>>,
    /// Other members that entries are known of.
    origins: BTreeMap<String, Origin>,
    /// Live entries of [`Kind::Expelled`], which there are seldom.
    expelled: usize,
}

/// What is known of a member that has made entries.
#[derive(Debug, Default)]
struct Origin {
    /// When it was last reachable.
    heard: Instant,
    is_visible: bool,
    /// Value of its own live entry of [`Kind::Member`], to be looked at often.
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

    /// Makes or changes an entry of this member.
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

    /// Deletes an entry of this member; `None` when there is no such entry.
    pub(super) fn delete(&mut self, now: Instant, kind: Kind, name: &str) -> Option<Entry> {
        let key = self.own_key(kind, name);
        self.entries.get(&key)?.value.as_ref()?;
        Some(self.write_own(key, None, now))
    }

    /// Takes an entry of another member.
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
            // An own one too: saying it anew, with another number, for each old copy that is still
            // on its way would never end.
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

    /// Makes a new version of an own entry, later than what others have; a tombstone when this
    /// member has no such entry.
    pub(super) fn reissue(&mut self, now: Instant, key: &Key) -> Entry {
        let value = self.entries.get(key).and_then(|held| held.value.clone());
        self.write_own(key.clone(), value, now)
    }

    /// An entry, visible or not; `None` when it is deleted.
    pub(super) fn value(&self, kind: Kind, origin: &str, name: &str) -> Option<&[u8]> {
        let key = Key {
            origin: origin.to_string(),
            kind,
            name: name.to_string(),
        };
        self.entries.get(&key)?.value.as_deref()
    }

    /// Visible entries of a kind, by origin and name.
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

    /// All entries of a kind that are not deleted, hidden ones included.
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

    /// Entries of this origin are shown: it is reachable, or was not long ago.
    pub(super) fn is_visible(&self, origin: &str) -> bool {
        origin == self.own || self.origins.get(origin).is_some_and(|it| it.is_visible)
    }

    /// Sum of the hashes of each origin's live entries.
    pub(super) fn digests(&self) -> &BTreeMap<String, u64> {
        &self.digests
    }

    /// Members that have an application and are visible, by name.
    pub(super) fn holders(&self, application: &str) -> impl Iterator<Item = &str> {
        let origins = self.holders.get(application).into_iter().flatten();
        origins
            .map(String::as_str)
            .filter(|origin| self.is_visible(origin))
    }

    /// Applications that any member has, hidden ones included.
    pub(super) fn applications(&self) -> impl Iterator<Item = &str> {
        self.holders.keys().map(String::as_str)
    }

    /// Applications of one member.
    pub(super) fn applications_of(&self, origin: &str) -> impl Iterator<Item = &str> {
        let of_origin = self
            .of_origin(origin)
            .filter(|(key, held)| key.kind == Kind::Application && held.value.is_some());
        of_origin.map(|(key, _)| key.name.as_str())
    }

    /// Tells which members can be reached now, by the value of their [`Kind::Member`]. Returns true
    /// when visibility has changed. It is called after every change of routes, and compares no
    /// names.
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

    /// Values of [`Kind::Member`] of visible members whose names come before this one's.
    pub(super) fn members_before(&self) -> impl Iterator<Item = &[u8]> {
        let until = (Bound::Unbounded, Bound::Excluded(self.own.as_str()));
        let before = self.origins.range::<str, _>(until);
        let visible = before.filter(|(_, origin)| origin.is_visible);
        visible.filter_map(|(_, origin)| origin.member.as_deref())
    }

    fn is_reachable(&self, origin: &str, now: Instant) -> bool {
        // `refresh` runs at least as often as this.
        let origin = self.origins.get(origin);
        origin.is_some_and(|it| now.since(it.heard) < 2 * REFRESH_INTERVAL)
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

    /// Puts an entry in place of another version of it.
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

/// FNV-1a over everything that makes a version, and mixed: the sum over the versions of a restarted
/// member would often be that of its old ones, since FNV passes the last bits on as they are.
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
