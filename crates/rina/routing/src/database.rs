//! The database of all links in the DIF, and the rule which version of a report wins.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};

use crate::message::{Address, Digest, FlowState, OriginDigest, Summary};

/// All flow-state objects that a member knows, including its own. Their number is limited; memory
/// is linear in the number of objects.
///
/// ```text
///            newer seq                    age = max
///  (absent) ----------> up or withdrawn ------------> (absent)
///                          |     ^
///                          +-----+ newer seq; or same seq, different content: the greater one
/// ```
#[derive(Debug)]
pub struct Database {
    own: Address,
    own_name: String,
    limits: Limits,
    objects: BTreeMap<(Address, Address), Object>,
    origins: BTreeMap<Address, Origin>,
    digest: Digest,
}

/// Limits and times of a [`Database`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest number of objects, including tombstones. A member's own objects are always accepted.
    pub objects: usize,
    /// Age at which an object is removed from the database; at most 49 days.
    pub age: Duration,
    /// Age at which a member sends a new version of its own object; well below `age`.
    pub refresh: Duration,
}

#[derive(Clone, Debug)]
struct Object {
    cost: u32,
    seq: u64,
    is_up: bool,
    /// When the version was made, in milliseconds of this member's clock. Negative if that was
    /// before the clock's origin.
    born_ms: i64,
}

#[derive(Debug, Default)]
struct Origin {
    name: String,
    digest: Digest,
}

/// The result of merging an object that a neighbour sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MergeOutcome {
    /// The object is new or newer: it was stored, and must be sent to the other neighbours.
    Accepted,
    /// The object is already known; nothing changed.
    Known,
    /// A newer version is known, which must be sent to the neighbour.
    Outdated,
    /// The object names this member as its reporter, but is newer than this member's version or
    /// unknown to it. This member has made a still newer version, which must be sent to all
    /// neighbours.
    Disputed,
    /// The object is older than the limit `age`, and was not stored.
    Expired,
    /// The database is full, and the object was not stored.
    Full,
    /// The object is invalid, and was not stored.
    Malformed,
}

impl Database {
    /// Makes an empty database of the member with address `own`.
    pub fn new(own: Address, name: &str, limits: Limits) -> Database {
        Database {
            own,
            own_name: name.into(),
            limits,
            objects: BTreeMap::new(),
            origins: BTreeMap::new(),
            digest: Digest::default(),
        }
    }

    /// Returns the address of the member that owns the database.
    pub fn own(&self) -> Address {
        self.own
    }

    /// Replaces the limits and times. Does not remove objects that exceed the new limits.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Changes the address and name of this member. Its objects under the old address must have
    /// been withdrawn.
    pub fn set_own(&mut self, own: Address, name: &str) {
        self.own = own;
        self.own_name = name.into();
    }

    /// Returns the number of objects, including tombstones.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether the database has no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Reports this member's link to `to`; a cost of `None` withdraws it. Returns whether this made
    /// a new version, which must be sent to all neighbours.
    pub fn report(&mut self, now: Instant, to: Address, cost: Option<u32>) -> bool {
        let key = (self.own, to);
        let seq = match (self.objects.get(&key), cost) {
            (None, None) => return false,
            (None, Some(_)) => 1,
            (Some(old), cost) if old.report() == cost => return false,
            (Some(old), _) => above(old.seq),
        };
        self.originate(now, to, cost, seq);
        true
    }

    fn originate(&mut self, now: Instant, to: Address, cost: Option<u32>, seq: u64) {
        let object = Object {
            cost: cost.unwrap_or(1),
            seq,
            is_up: cost.is_some(),
            born_ms: millis(now),
        };
        self.put((self.own, to), object);
        let origin = self.origins.entry(self.own).or_default();
        origin.name.clone_from(&self.own_name);
    }

    /// Merges an object that a neighbour sent into the database.
    pub fn insert(&mut self, now: Instant, new: &FlowState) -> MergeOutcome {
        let named = new.from != 0 && new.to != 0 && new.from != new.to;
        let sane = new.cost > 0 && (1..=SEQ_MAX).contains(&new.seq) && new.name.len() <= NAME_MAX;
        if !named || !sane {
            return MergeOutcome::Malformed;
        }
        let key = (new.from, new.to);
        let old = self.objects.get(&key);
        if u64::from(new.age_ms) >= self.limits.age.as_millis()
            && old.is_none_or(|old| old.seq < new.seq)
        {
            return MergeOutcome::Expired;
        }
        if new.from == self.own {
            return self.insert_own(now, new);
        }
        if let Some(old) = old {
            let (old, new) = (old.rank(), (new.seq, !new.is_up, new.cost));
            if old == new {
                return MergeOutcome::Known;
            }
            if old > new {
                return MergeOutcome::Outdated;
            }
        } else if self.objects.len() >= self.limits.objects {
            return MergeOutcome::Full;
        }
        let object = Object {
            cost: new.cost,
            seq: new.seq,
            is_up: new.is_up,
            born_ms: millis(now).saturating_sub(i64::from(new.age_ms)),
        };
        self.put(key, object);
        let origin = self.origins.entry(new.from).or_default();
        origin.name.clone_from(&new.name);
        MergeOutcome::Accepted
    }

    /// Merges a version of this member's own object from another member. It is left over from
    /// before a restart, or forged. This member's version must win, so it gets a higher sequence
    /// number.
    fn insert_own(&mut self, now: Instant, new: &FlowState) -> MergeOutcome {
        let report = match self.objects.get(&(new.from, new.to)) {
            Some(own) if own.rank() == (new.seq, !new.is_up, new.cost) => {
                return MergeOutcome::Known;
            }
            Some(own) if own.seq > new.seq => return MergeOutcome::Outdated,
            Some(own) => own.report(),
            None => None,
        };
        self.originate(now, new.to, report, above(new.seq));
        MergeOutcome::Disputed
    }

    /// Withdraws an object that this member reported under another address before a restart.
    /// Returns whether this made a new version, which must be sent to all neighbours.
    pub fn withdraw(&mut self, now: Instant, key: (Address, Address)) -> bool {
        let Some(old) = self.objects.get(&key) else {
            return false;
        };
        if !old.is_up || key.0 == self.own {
            return false;
        }
        let tombstone = Object {
            seq: above(old.seq),
            is_up: false,
            born_ms: millis(now),
            ..*old
        };
        self.put(key, tombstone);
        true
    }

    /// Makes new versions of old own objects. Returns the neighbours at the other ends of these
    /// links.
    pub fn refresh(&mut self, now: Instant) -> Vec<Address> {
        let mut due = Vec::new();
        for (key, object) in self.objects.range((self.own, 0)..=(self.own, Address::MAX)) {
            // Tombstones are not renewed, so that they expire.
            if object.is_up && now >= self.refresh_at(*key, object) {
                due.push((key.1, object.cost, above(object.seq)));
            }
        }
        for (to, cost, seq) in &due {
            self.originate(now, *to, Some(*cost), *seq);
        }
        due.into_iter().map(|(to, ..)| to).collect()
    }

    /// Returns when the next object of this member must be renewed, or `None`.
    pub fn refresh_due(&self) -> Option<Instant> {
        self.objects
            .range((self.own, 0)..=(self.own, Address::MAX))
            .filter(|(_, object)| object.is_up)
            .map(|(key, object)| self.refresh_at(*key, object))
            .min()
    }

    /// When an object must be renewed. The times are spread over the last eighth of the interval,
    /// so that members that started together do not refresh together.
    fn refresh_at(&self, key: (Address, Address), object: &Object) -> Instant {
        let refresh_ms = self.limits.refresh.as_millis();
        let spread = (refresh_ms / 8).max(1);
        let early = mix(key.0 ^ mix(key.1)) % spread;
        let at_ms = object.born_ms + refresh_ms as i64 - early as i64;
        Instant::from_millis(u64::try_from(at_ms).unwrap_or(0))
    }

    /// Removes objects that are too old, and returns their keys.
    pub fn expire(&mut self, now: Instant) -> Vec<(Address, Address)> {
        let limit = self.limits.age.as_millis() as i64;
        let old: Vec<(Address, Address)> = self
            .objects
            .iter()
            .filter(|(_, object)| millis(now) - object.born_ms >= limit)
            .map(|(key, _)| *key)
            .collect();
        for key in &old {
            self.remove(*key);
        }
        old
    }

    /// Returns the object with this key, with its age at `now`, as it is sent to neighbours, or
    /// `None`.
    pub fn object(&self, now: Instant, key: (Address, Address)) -> Option<FlowState> {
        let object = self.objects.get(&key)?;
        let origin = self.origins.get(&key.0)?;
        // The age is one higher than the real one, so that an object that travels in circles
        // expires.
        let age = millis(now).saturating_sub(object.born_ms).saturating_add(1);
        Some(FlowState {
            from: key.0,
            name: origin.name.clone(),
            to: key.1,
            cost: object.cost,
            seq: object.seq,
            is_up: object.is_up,
            age_ms: u32::try_from(age.max(1)).unwrap_or(u32::MAX),
        })
    }

    /// Returns the cost of sending from a member to its neighbour, if the member reports the link
    /// as up.
    pub fn cost(&self, from: Address, to: Address) -> Option<u32> {
        self.objects.get(&(from, to))?.report()
    }

    /// Returns the keys of all objects, in ascending order. An object describes a link; its key is
    /// the member that reports the link, and the neighbour at the other end.
    pub fn keys(&self) -> impl Iterator<Item = (Address, Address)> + '_ {
        self.objects.keys().copied()
    }

    /// Returns the keys of the objects that the member `origin` reports, in ascending order of the
    /// neighbours.
    pub fn keys_of(&self, origin: Address) -> impl Iterator<Item = (Address, Address)> + '_ {
        let range = self.objects.range((origin, 0)..=(origin, Address::MAX));
        range.map(|(key, _)| *key)
    }

    /// Returns the digest of the whole database.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest of the objects that the member `origin` reports.
    pub fn digest_of(&self, origin: Address) -> Digest {
        self.origins
            .get(&origin)
            .map(|origin| origin.digest)
            .unwrap_or_default()
    }

    /// Returns digests by origin, of at most `max` origins starting at `first`. The next summary
    /// starts one above its `last`, unless that is [`Address::MAX`].
    pub fn summary(&self, first: Address, max: usize) -> Summary {
        let mut rest = self.origins.range(first..);
        let origins: Vec<OriginDigest> = rest
            .by_ref()
            .take(max.max(1))
            .map(|(address, origin)| OriginDigest {
                origin: *address,
                digest: origin.digest,
            })
            .collect();
        let last = match (rest.next(), origins.last()) {
            (Some(_), Some(end)) => end.origin,
            _ => Address::MAX,
        };
        Summary {
            first,
            last,
            origins,
        }
    }

    /// Returns the members from `first` to `last` that have objects in this database.
    pub fn origins(&self, first: Address, last: Address) -> impl Iterator<Item = Address> + '_ {
        // In a summary from a peer, the last address may be below the first.
        let last = last.max(first);
        self.origins
            .range(first..=last)
            .map(|(address, _)| *address)
    }

    fn put(&mut self, key: (Address, Address), object: Object) {
        self.remove_digest(key);
        let hash = object.hash(key);
        self.objects.insert(key, object);
        let origin = self.origins.entry(key.0).or_default();
        for digest in [&mut self.digest, &mut origin.digest] {
            digest.objects += 1;
            digest.hash = digest.hash.wrapping_add(hash);
        }
    }

    fn remove_digest(&mut self, key: (Address, Address)) {
        let Some(old) = self.objects.get(&key) else {
            return;
        };
        let hash = old.hash(key);
        let origin = self.origins.entry(key.0).or_default();
        for digest in [&mut self.digest, &mut origin.digest] {
            digest.objects -= 1;
            digest.hash = digest.hash.wrapping_sub(hash);
        }
    }

    fn remove(&mut self, key: (Address, Address)) {
        self.remove_digest(key);
        self.objects.remove(&key);
        if self.digest_of(key.0).objects == 0 {
            self.origins.remove(&key.0);
        }
    }
}

impl Object {
    fn report(&self) -> Option<u32> {
        self.is_up.then_some(self.cost)
    }

    /// Orders versions. The same sequence number with different contents occurs when a member has
    /// lost its state. All members must choose the same version; the safe choice is the withdrawn
    /// or more expensive one.
    fn rank(&self) -> (u64, bool, u32) {
        (self.seq, !self.is_up, self.cost)
    }

    fn hash(&self, key: (Address, Address)) -> u64 {
        let content = u64::from(self.cost) << 1 | u64::from(self.is_up);
        mix(mix(mix(mix(key.0) ^ key.1) ^ self.seq) ^ content)
    }
}

/// The next sequence number. The highest number is not exceeded; an object with it must expire
/// first. A correct member never reaches it.
fn above(seq: u64) -> u64 {
    (seq + 1).min(SEQ_MAX)
}

/// The mixing function of SplitMix64: each bit of the input changes about half of the output bits.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Highest sequence number: enough for a new version each nanosecond for 292 years.
pub const SEQ_MAX: u64 = i64::MAX as u64;

/// Longest name of a member that is accepted, in bytes.
pub const NAME_MAX: usize = 255;

/// The time in whole milliseconds since the clock's origin.
fn millis(now: Instant) -> i64 {
    now.as_millis() as i64
}
