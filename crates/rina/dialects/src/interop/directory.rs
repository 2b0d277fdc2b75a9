//! The directory forwarding table: which members hold which applications.
//!
//! A holder of an application is a member where the application is registered. A dialect identifies
//! it by IPCP name or by address. An entry states that one member holds one application. Of two
//! versions, the one with the higher sequence number counts.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::api::Event;
use carina_time::{Duration, Instant};

/// Sequence number that withdraws an entry in any version.
pub(crate) const ANY_VERSION: u64 = u64::MAX;

/// Limits of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Largest number of entries of other members.
    pub(crate) entries: usize,
    /// How long the end of an entry is remembered, so that a late copy of the entry is recognized.
    pub(crate) hold: Duration,
}

/// Result of merging an entry from another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeOutcome {
    /// The directory now has this entry. The caller sends it to the other neighbours.
    New,
    /// The directory already had this entry.
    Same,
    /// The directory has a later version of the entry, or the end of a later version, and ignores
    /// this one.
    Old,
    /// The entry says falsely that an application is registered at this member, or is an outdated
    /// version of an entry of this member. The caller sends this member's entry, or the end of the
    /// entry, to all neighbours.
    Corrected,
    /// The directory has its largest number of entries ([`Limits::entries`]), and ignores this
    /// entry.
    Full,
}

/// The directory of a member.
#[derive(Debug)]
pub(crate) struct Directory<H> {
    own: H,
    limits: Limits,
    /// Sequence numbers of the entries of others, by application and holder.
    entries: BTreeMap<String, BTreeMap<H, u64>>,
    /// Number of entries of others.
    count: usize,
    /// Applications of this member with their sequence numbers.
    registered: BTreeMap<String, u64>,
    /// Ended entries, each with its last sequence number and the time until which it is remembered.
    ended: BTreeMap<(String, H), (u64, Instant)>,
    /// Applications reported to the owner as reachable.
    reported: BTreeSet<String>,
    /// Applications whose holders have changed since the last report.
    touched: BTreeSet<String>,
}

impl<H: Ord + Clone> Directory<H> {
    /// Makes the empty directory of the member `own`.
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

    /// Changes the identification of this member.
    pub(crate) fn set_own(&mut self, own: H) {
        self.own = own;
    }

    /// Registers an application of this system. Returns its sequence number if it was not
    /// registered.
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

    /// True when the application is registered at this member.
    pub(crate) fn is_registered(&self, app: &str) -> bool {
        self.registered.contains_key(app)
    }

    /// The applications of this member, with sequence numbers.
    pub(crate) fn registered(&self) -> impl Iterator<Item = (&str, u64)> + '_ {
        self.registered
            .iter()
            .map(|(app, seq)| (app.as_str(), *seq))
    }

    /// Merges an entry from another member: `holder` holds `app`.
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

    /// Removes the memory of an entry's end, because the holder itself announces the entry again.
    pub(crate) fn forget_end(&mut self, app: &str, holder: &H) {
        if *holder != self.own {
            self.ended.remove(&(app.to_string(), holder.clone()));
        }
    }

    /// Ends an entry: `holder` does not hold `app` since version `seq`. Returns true if the entry
    /// was in force; then send its end to the other neighbours.
    pub(crate) fn withdraw(&mut self, now: Instant, app: &str, holder: &H, seq: u64) -> bool {
        let held = self.held(app, holder).filter(|held| seq >= *held);
        if let Some(held) = held {
            self.remove(app, holder);
            // With `ANY_VERSION` the entry ends in its own version, so that the next version is a
            // later one.
            let ended = if seq == ANY_VERSION { held } else { seq };
            self.end(now, (app.to_string(), holder.clone()), ended);
        }
        held.is_some()
    }

    /// Removes the entries of a lost member. Returns its applications with sequence numbers.
    pub(crate) fn lost(&mut self, holder: &H) -> Vec<(String, u64)> {
        let of_it = self.others().filter(|(_, at, _)| *at == holder);
        let gone: Vec<(String, u64)> = of_it.map(|(app, _, seq)| (app.to_string(), seq)).collect();
        for (app, _) in &gone {
            self.remove(app, holder);
        }
        gone
    }

    /// The sequence number of an entry, of this member or another; `None` if there is no such
    /// entry.
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

    /// The members that hold `app`; this member comes first if it holds it.
    pub(crate) fn holders(&self, app: &str) -> Vec<H> {
        let own = self.is_registered(app).then(|| self.own.clone());
        let others = self.entries.get(app).into_iter().flatten();
        own.into_iter()
            .chain(others.map(|(holder, _)| holder.clone()))
            .collect()
    }

    /// The entries of others: application, holder, sequence number.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &H, u64)> + '_ {
        self.entries.iter().flat_map(|(app, holders)| {
            let of_app = holders.iter();
            of_app.map(move |(holder, seq)| (app.as_str(), holder, *seq))
        })
    }

    /// All applications, each with its holders.
    pub(crate) fn places(&self) -> BTreeMap<&str, Vec<H>> {
        let own = self.registered.keys().map(|app| (app.as_str(), &self.own));
        let others = self.others().map(|(app, holder, _)| (app, holder));
        let mut places: BTreeMap<&str, Vec<H>> = BTreeMap::new();
        for (app, holder) in own.chain(others) {
            places.entry(app).or_default().push(holder.clone());
        }
        places
    }

    /// Removes all entries of others, because this IPCP is no longer a member. Its own
    /// registrations stay.
    pub(crate) fn clear(&mut self) {
        self.touched.extend(self.entries.keys().cloned());
        self.entries.clear();
        self.count = 0;
        self.ended.clear();
    }

    /// Marks all applications as changed, because the reachability of holders has changed.
    pub(crate) fn touch_all(&mut self) {
        self.touched.extend(self.entries.keys().cloned());
        self.touched.extend(self.registered.keys().cloned());
        self.touched.extend(self.reported.iter().cloned());
    }

    /// The applications that became reachable or unreachable since the last call. `is_there`
    /// returns whether a holder is reachable.
    pub(crate) fn changes(&mut self, is_reachable: &dyn Fn(&H) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        for name in core::mem::take(&mut self.touched) {
            let has_holder = self.holders(&name).iter().any(is_reachable);
            if has_holder && self.reported.insert(name.clone()) {
                events.push(Event::Reachable { name });
            } else if !has_holder && self.reported.remove(&name) {
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
