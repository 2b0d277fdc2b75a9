//! The directory forwarding table: which member holds which application.
//!
//! A holder is what a dialect calls it by: an IPCP name or an address. An entry is a holder's word
//! that an application can be reached at it; of two versions the one with the higher sequence
//! number counts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::Event;
use carina_time::{Duration, Instant};

/// Whatever version of an entry is held, it ends.
pub(crate) const ANY_VERSION: u64 = u64::MAX;

/// Bounds of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Entries of others at most.
    pub(crate) entries: usize,
    /// How long the end of an entry is remembered, so that a late copy of it is known.
    pub(crate) hold: Duration,
}

/// What the directory made of an entry that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeOutcome {
    /// It is in force: to be sent to the other neighbours.
    New,
    /// It was here already.
    Same,
    /// A later version, or the later end of it, is here.
    Old,
    /// It says that this member has an application that it does not have, or an outdated version:
    /// the entry as it is, or its end, is to be sent to all.
    Corrected,
    /// The table is full.
    Full,
}

/// The whole directory.
#[derive(Debug)]
pub(crate) struct Directory<H> {
    own: H,
    limits: Limits,
    /// Sequence numbers of others' entries.
    entries: BTreeMap<String, BTreeMap<H, u64>>,
    /// How many these are.
    count: usize,
    /// Of this member's.
    registered: BTreeMap<String, u64>,
    /// Ends: with which sequence number, and until when they are remembered.
    ended: BTreeMap<(String, H), (u64, Instant)>,
    /// Applications that were reported as reachable.
    reported: BTreeSet<String>,
    /// Applications whose holders changed.
    touched: BTreeSet<String>,
}

impl<H: Ord + Clone> Directory<H> {
    /// An empty directory of the member `own`.
    pub(crate) fn new(own: H, limits: Limits) -> Directory<H> {
        Directory {
            own,
            limits,
            entries: BTreeMap::new(),
            count: 0,
            registered: BTreeMap::new(),
            ended: BTreeMap::new(),
            reported: BTreeSet::new(),
            touched: BTreeSet::new(),
        }
    }

    /// This member is called otherwise from here on.
    pub(crate) fn set_own(&mut self, own: H) {
        self.own = own;
    }

    /// An application of this system can be reached. Returns its sequence number when it is new.
    pub(crate) fn register(&mut self, app: &str) -> Option<u64> {
        if self.registered.contains_key(app) {
            return None;
        }
        let ended = self.ended.remove(&(app.to_string(), self.own.clone()));
        let seq = ended.map_or(1, |(seq, _)| seq.saturating_add(1));
        self.registered.insert(app.to_string(), seq);
        self.touched.insert(app.to_string());
        Some(seq)
    }

    /// Withdraws the registration of `app`. Returns its last sequence number if it was registered.
    pub(crate) fn unregister(&mut self, now: Instant, app: &str) -> Option<u64> {
        let seq = self.registered.remove(app)?;
        self.end(now, (app.to_string(), self.own.clone()), seq);
        self.touched.insert(app.to_string());
        Some(seq)
    }

    /// Whether it is an application of this system.
    pub(crate) fn is_registered(&self, app: &str) -> bool {
        self.registered.contains_key(app)
    }

    /// Applications of this system, with sequence numbers.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.registered
            .iter()
            .map(|(app, seq)| (app.as_str(), *seq))
    }

    /// Takes an entry: `holder` has `app`.
    pub(crate) fn insert(&mut self, now: Instant, app: &str, holder: H, seq: u64) -> MergeOutcome {
        if holder == self.own {
            return match self.registered.get_mut(app) {
                Some(own) if seq <= *own => MergeOutcome::Same,
                Some(own) => {
                    *own = seq.saturating_add(1);
                    MergeOutcome::Corrected
                }
                None => {
                    self.end(now, (app.to_string(), holder), seq);
                    MergeOutcome::Corrected
                }
            };
        }
        let held = self.entries.get_mut(app);
        if let Some(held) = held.and_then(|holders| holders.get_mut(&holder)) {
            return match seq.cmp(held) {
                core::cmp::Ordering::Greater => {
                    *held = seq;
                    MergeOutcome::New
                }
                core::cmp::Ordering::Equal => MergeOutcome::Same,
                core::cmp::Ordering::Less => MergeOutcome::Old,
            };
        }
        let key = (app.to_string(), holder);
        let is_ended = |(end, until): &(u64, Instant)| seq <= *end && now < *until;
        if self.ended.get(&key).is_some_and(is_ended) {
            return MergeOutcome::Old;
        }
        if self.count >= self.limits.entries {
            return MergeOutcome::Full;
        }
        self.ended.remove(&key);
        self.touched.insert(app.to_string());
        self.count += 1;
        self.entries.entry(key.0).or_default().insert(key.1, seq);
        MergeOutcome::New
    }

    /// Forgets that an entry ended: its holder itself says that it is there.
    pub(crate) fn forget_end(&mut self, app: &str, holder: &H) {
        if *holder != self.own {
            self.ended.remove(&(app.to_string(), holder.clone()));
        }
    }

    /// Takes the end of an entry: `holder` has not had `app` since version `seq`. Returns whether
    /// it is news: to be sent to the other neighbours.
    pub(crate) fn withdraw(&mut self, now: Instant, app: &str, holder: &H, seq: u64) -> bool {
        let held = self.held(app, holder).filter(|held| seq >= *held);
        if let Some(held) = held {
            self.remove(app, holder);
            // The next version is a later one than that which ended, and no later than any.
            let ended = if seq == ANY_VERSION { held } else { seq };
            self.end(now, (app.to_string(), holder.clone()), ended);
        }
        held.is_some()
    }

    /// A member is gone: its entries are, too. Returns the applications with sequence numbers.
    pub(crate) fn lost(&mut self, holder: &H) -> Vec<(String, u64)> {
        let of_it = self.others().filter(|(_, at, _)| *at == holder);
        let gone: Vec<(String, u64)> = of_it.map(|(app, _, seq)| (app.to_string(), seq)).collect();
        for (app, _) in &gone {
            self.remove(app, holder);
        }
        gone
    }

    /// The sequence number of an entry, own or another's.
    pub(crate) fn seq(&self, app: &str, holder: &H) -> Option<u64> {
        if *holder == self.own {
            return self.registered.get(app).copied();
        }
        self.held(app, holder)
    }

    fn held(&self, app: &str, holder: &H) -> Option<u64> {
        self.entries.get(app)?.get(holder).copied()
    }

    fn remove(&mut self, app: &str, holder: &H) {
        let Some(holders) = self.entries.get_mut(app) else {
            return;
        };
        if holders.remove(holder).is_some() {
            self.count -= 1;
        }
        if holders.is_empty() {
            self.entries.remove(app);
        }
        self.touched.insert(app.to_string());
    }

    /// The members that hold `app`; this member first when it does.
    pub(crate) fn holders(&self, app: &str) -> Vec<H> {
        let own = self.is_registered(app).then(|| self.own.clone());
        let others = self.entries.get(app).into_iter().flatten();
        own.into_iter()
            .chain(others.map(|(holder, _)| holder.clone()))
            .collect()
    }

    /// Entries of others with their sequence numbers.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &H, u64)> + '_ {
        self.entries.iter().flat_map(|(app, holders)| {
            let of_app = holders.iter();
            of_app.map(move |(holder, seq)| (app.as_str(), holder, *seq))
        })
    }

    /// All applications with their holders.
    pub(crate) fn places(&self) -> BTreeMap<&str, Vec<H>> {
        let own = self.registered.keys().map(|app| (app.as_str(), &self.own));
        let others = self.others().map(|(app, holder, _)| (app, holder));
        let mut places: BTreeMap<&str, Vec<H>> = BTreeMap::new();
        for (app, holder) in own.chain(others) {
            places.entry(app).or_default().push(holder.clone());
        }
        places
    }

    /// Forgets everything of others: this IPCP is no member any more. What is registered stays.
    pub(crate) fn clear(&mut self) {
        self.touched.extend(self.entries.keys().cloned());
        self.entries.clear();
        self.count = 0;
        self.ended.clear();
    }

    /// Looks at all applications again: which holders can be reached has changed.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.entries.keys().cloned());
        self.touched.extend(self.registered.keys().cloned());
        self.touched.extend(self.reported.iter().cloned());
    }

    /// What has become reachable or unreachable since it was asked last. `is_there` says whether a
    /// holder can be reached.
    pub(crate) fn changes(&mut self, is_there: &dyn Fn(&H) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for name in core::mem::take(&mut self.touched) {
            let is_reachable = self.holders(&name).iter().any(is_there);
            if is_reachable && self.reported.insert(name.clone()) {
                events.push(Event::Reachable { name });
            } else if !is_reachable && self.reported.remove(&name) {
                events.push(Event::Unreachable { name });
            }
        }
        events
    }

    fn end(&mut self, now: Instant, key: (String, H), seq: u64) {
        if self.ended.len() >= self.limits.entries {
            self.ended.retain(|_, (_, until)| now < *until);
        }
        if self.ended.len() < self.limits.entries {
            let until = now + self.limits.hold;
            self.ended.insert(key, (seq, until));
        }
    }
}
