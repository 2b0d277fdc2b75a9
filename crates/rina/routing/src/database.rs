//! What a member knows of all links of the DIF, and which version of a report wins.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::{Duration, Instant};

use crate::message::{Address, Digest, FlowState, OriginDigest, Summary};

/// All flow-state objects that a member knows, its own among them. Bounded; memory is linear in
/// the number of objects.
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

/// Bounds and times of a [`Database`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Objects at most, tombstones included. Own objects are always accepted.
    pub objects: usize,
    /// Age at which an object is forgotten; at most 49 days.
    pub age: Duration,
    /// Age at which an own object is made anew; well below `age`.
    pub refresh: Duration,
}

#[derive(Clone, Debug)]
struct Object {
    cost: u32,
    seq: u64,
    is_up: bool,
    /// Milliseconds of this member's clock when the version was made; negative when that was
    /// before the clock began.
    born_ms: i64,
}

#[derive(Debug, Default)]
struct Origin {
    name: String,
    digest: Digest,
}

/// The outcome of merging an object that came from a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MergeOutcome {
    /// It is new or newer: kept, and to be sent to the other neighbours.
    Accepted,
    /// It is known.
    Known,
    /// A newer one is known, which the neighbour should hear of.
    Outdated,
    /// It claims to be this member's own and is newer than this member's, or unknown to it: this
    /// member has made a still newer version, to be sent to all neighbours.
    Disputed,
    /// It is too old.
    Expired,
    /// The database is full.
    Full,
    /// No object can look like this.
    Malformed,
}

impl Database {
    /// An empty database of the member `own`.
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

    /// The member whose database it is.
    pub fn own(&self) -> Address {
        self.own
    }

    /// Changes bounds and times; nothing is forgotten at once.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Gives this member another address. Its old objects must have been withdrawn.
    pub fn set_own(&mut self, own: Address, name: &str) {
        self.own = own;
        self.own_name = name.into();
    }

    /// Objects in it, tombstones included.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// This member reports its link to `to`; `None` withdraws it. Returns whether that made a new
    /// version, to be sent to all neighbours.
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

    /// Takes an object that a neighbour sent.
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

    /// Another member has a version of this member's own object: left over from its former life,
    /// or made up. This member's version must win, so it is sent with a higher sequence number.
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

    /// Withdraws an object that an earlier life of this member made under another address. Returns
    /// whether that made a new version, to be sent to all neighbours.
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

    /// Makes own objects anew that are old; returns the neighbours that they are about.
    pub fn refresh(&mut self, now: Instant) -> Vec<Address> {
        let mut due = Vec::new();
        for (key, object) in self.objects.range((self.own, 0)..=(self.own, Address::MAX)) {
            // Tombstones are not renewed: they are to go.
            if object.is_up && now >= self.refresh_at(*key, object) {
                due.push((key.1, object.cost, above(object.seq)));
            }
        }
        for (to, cost, seq) in &due {
            self.originate(now, *to, Some(*cost), *seq);
        }
        due.into_iter().map(|(to, ..)| to).collect()
    }

    /// When the next own object is to be made anew.
    pub fn refresh_due(&self) -> Option<Instant> {
        self.objects
            .range((self.own, 0)..=(self.own, Address::MAX))
            .filter(|(_, object)| object.is_up)
            .map(|(key, object)| self.refresh_at(*key, object))
            .min()
    }

    /// Spread over the last eighth of the time, so that members that came up together do not
    /// refresh together.
    fn refresh_at(&self, key: (Address, Address), object: &Object) -> Instant {
        let refresh_ms = self.limits.refresh.as_millis();
        let spread = (refresh_ms / 8).max(1);
        let early = mix(key.0 ^ mix(key.1)) % spread;
        let at_ms = object.born_ms + refresh_ms as i64 - early as i64;
        Instant::from_millis(u64::try_from(at_ms).unwrap_or(0))
    }

    /// Forgets what is too old; returns the keys of what was.
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

    /// The object of this key as it is sent to others at `now`.
    pub fn object(&self, now: Instant, key: (Address, Address)) -> Option<FlowState> {
        let object = self.objects.get(&key)?;
        let origin = self.origins.get(&key.0)?;
        // One more than the truth, so that an object that travels in circles grows old.
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

    /// Cost of sending from one member to a neighbour, if it reports the link as up.
    pub fn cost(&self, from: Address, to: Address) -> Option<u32> {
        self.objects.get(&(from, to))?.report()
    }

    /// Keys of all objects in order.
    pub fn keys(&self) -> impl Iterator<Item = (Address, Address)> + '_ {
        self.objects.keys().copied()
    }

    /// Keys of the objects that one member reports.
    pub fn keys_of(&self, origin: Address) -> impl Iterator<Item = (Address, Address)> + '_ {
        let range = self.objects.range((origin, 0)..=(origin, Address::MAX));
        range.map(|(key, _)| *key)
    }

    /// Digest of everything.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Digest of what one member reports.
    pub fn digest_of(&self, origin: Address) -> Digest {
        self.origins
            .get(&origin)
            .map(|origin| origin.digest)
            .unwrap_or_default()
    }

    /// Digests by origin, of at most `max` origins from `first` on. The next summary starts one
    /// after its `last`, unless that is [`Address::MAX`].
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

    /// Origins between `first` and `last` of which this database knows something.
    pub fn origins(&self, first: Address, last: Address) -> impl Iterator<Item = Address> + '_ {
        // A summary from a peer may have its ends the wrong way round.
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

    /// Orders versions. The same sequence number with different content happens when a member has
    /// lost its memory; all must choose alike, and the careful choice is the withdrawn or dear one.
    fn rank(&self) -> (u64, bool, u32) {
        (self.seq, !self.is_up, self.cost)
    }

    fn hash(&self, key: (Address, Address)) -> u64 {
        let content = u64::from(self.cost) << 1 | u64::from(self.is_up);
        mix(mix(mix(mix(key.0) ^ key.1) ^ self.seq) ^ content)
    }
}

/// The next sequence number. At the end of the range it stays: no higher number exists, and the
/// object has to expire first. A correct member never gets there.
fn above(seq: u64) -> u64 {
    (seq + 1).min(SEQ_MAX)
}

/// The finisher of SplitMix64: every bit of the input changes half of the output.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Highest sequence number: room for a version each nanosecond during 292 years.
pub const SEQ_MAX: u64 = i64::MAX as u64;

/// Longest name of a member in bytes.
pub const NAME_MAX: usize = 255;

/// Whole milliseconds since the origin of the clock.
fn millis(now: Instant) -> i64 {
    now.as_millis() as i64
}
