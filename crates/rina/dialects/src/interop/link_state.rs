//! The link-state database, and the computation of routes from it.
//!
//! An entry is one member's report of its link to another; both are identified by IPCP name. Of two
//! versions, the one with the higher sequence number counts; if the numbers are equal, the one that
//! is down. The age of a version is the time since it was made. It grows while the version is
//! stored and is sent with it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_ipcp::data_transfer::api;
use carina_routing::compute::{Computation, Paths};
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

/// Names of the reporting member and of the member at the other end of the link.
pub(crate) type Key = (String, String);

/// One version of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkReport {
    /// Cost of sending over the link.
    pub(crate) cost: u32,
    /// Sequence number; higher in a later version.
    pub(crate) seq: u64,
    /// The link can be used. An entry that is down reports that it can no longer be used.
    pub(crate) is_up: bool,
    /// Time since the version was made.
    pub(crate) age: Duration,
}

impl LinkReport {
    /// True when this version counts rather than `other`. Two versions may have the same number,
    /// because a restarted author continues from the first version that it receives. Then the worse
    /// one counts: it is spread until it reaches the author, which makes a later version.
    fn outranks(&self, other: &LinkReport) -> bool {
        let rank = |report: &LinkReport| (report.seq, !report.is_up, report.cost);
        rank(self) > rank(other)
    }
}

/// Limits and times that a dialect defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Largest number of entries; own entries are not limited.
    pub(crate) entries: usize,
    /// An entry that reaches this age is removed.
    pub(crate) age_max: Duration,
    /// [`LinkState::refresh`] renews an own entry that reaches this age.
    pub(crate) renew: Duration,
    /// How long an entry that is down is kept, so that a late copy of the earlier version is
    /// recognized.
    pub(crate) hold: Duration,
    /// A version with a lower sequence number is accepted if it was made at least this much later
    /// than the stored one, because its author has restarted. 0: never.
    pub(crate) restart: Duration,
    /// A link between other members is used only if both ends report it.
    pub(crate) needs_both: bool,
}

/// Result of merging a version from another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeOutcome {
    /// The database now has this version. The caller sends it to the other neighbours.
    New,
    /// The database already had this version.
    Same,
    /// The database has a later version, and ignores this one.
    Old,
    /// The version is about a link of this member, and is wrong or outdated. The database now has
    /// a version with a higher sequence number, which is down if the link does not exist. The
    /// caller sends that version to all neighbours.
    Corrected,
    /// The database has its largest number of entries ([`Limits::entries`]), and ignores this
    /// version.
    Full,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    report: LinkReport,
    /// The time at which the age was `report.age`.
    at: Instant,
}

/// The link-state database of a member.
#[derive(Debug)]
pub(crate) struct LinkState {
    own: String,
    limits: Limits,
    entries: BTreeMap<Key, Entry>,
    is_changed: bool,
}

/// A reachable member with the route to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReachableMember {
    /// Name of the member.
    pub(crate) name: String,
    /// Sum of the costs of the links on the path.
    pub(crate) cost: u64,
    /// The forwarding entry.
    pub(crate) route: api::Route,
}

impl LinkState {
    /// Makes an empty database; `own` is this member's IPCP name.
    pub(crate) fn new(own: &str, limits: Limits) -> LinkState {
        LinkState {
            own: own.to_string(),
            limits,
            entries: BTreeMap::new(),
            is_changed: false,
        }
    }

    /// Replaces the limits.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Removes all entries except the reports of `own`, which are kept as down.
    pub(crate) fn clear(&mut self, own: &str) {
        self.entries.retain(|(from, _), _| from == own);
        for entry in self.entries.values_mut() {
            entry.report.is_up = false;
        }
        self.is_changed = true;
    }

    /// Sets this member's report of its link to `neighbour`: the cost, or `None` for no link.
    /// Returns true if that makes a new version to send.
    pub(crate) fn report(&mut self, now: Instant, neighbour: &str, cost: Option<u32>) -> bool {
        let key = (self.own.clone(), neighbour.to_string());
        let old = self.entries.get(&key).map(|entry| entry.report);
        let old_cost = old.filter(|old| old.is_up).map(|old| old.cost);
        if old_cost == cost {
            return false;
        }
        let report = LinkReport {
            cost: cost.or(old_cost).unwrap_or(1),
            seq: old.map_or(1, |old| old.seq.saturating_add(1)),
            is_up: cost.is_some(),
            age: Duration::ZERO,
        };
        self.put(now, key, report);
        true
    }

    /// Merges a version that a neighbour sent.
    pub(crate) fn insert(&mut self, now: Instant, key: Key, report: LinkReport) -> MergeOutcome {
        if key.0 == self.own {
            return self.correct(now, key, report);
        }
        if let Some(held) = self.get(now, &key) {
            let is_later = report.outranks(&held);
            let has_restarted = report.seq < held.seq
                && !self.limits.restart.is_zero()
                && report.age + self.limits.restart < held.age;
            if !is_later && !has_restarted {
                return if held.outranks(&report) {
                    MergeOutcome::Old
                } else {
                    MergeOutcome::Same
                };
            }
        } else if report.age >= self.limits.age_max {
            // The entry would expire at once.
            return MergeOutcome::Old;
        } else if self.entries.len() >= self.limits.entries {
            return MergeOutcome::Full;
        }
        self.put(now, key, report);
        MergeOutcome::New
    }

    /// Handles a version about a link of this member that this member did not make.
    fn correct(&mut self, now: Instant, key: Key, report: LinkReport) -> MergeOutcome {
        let held = self.get(now, &key);
        let (is_up, cost) = held.map_or((false, 1), |held| (held.is_up, held.cost));
        match held {
            Some(held) if report.seq < held.seq => return MergeOutcome::Old,
            Some(held)
                if report.seq == held.seq && (report.is_up, report.cost) == (is_up, cost) =>
            {
                return MergeOutcome::Same;
            }
            // The absence of the link is known already.
            None if !report.is_up => return MergeOutcome::Same,
            None if self.entries.len() >= self.limits.entries => return MergeOutcome::Full,
            _ => {}
        }
        let report = LinkReport {
            cost,
            seq: report.seq.saturating_add(1),
            is_up,
            age: Duration::ZERO,
        };
        self.put(now, key, report);
        MergeOutcome::Corrected
    }

    /// Ends an entry because a neighbour withdraws it with sequence number `seq`. Returns true if
    /// it was in force; then send the end to the other neighbours. The entry is kept as down for a
    /// while.
    pub(crate) fn withdraw(&mut self, now: Instant, key: &Key, seq: u64) -> bool {
        let held = self.get(now, key).filter(|held| held.is_up);
        let Some(held) = held.filter(|held| seq >= held.seq && key.0 != self.own) else {
            return false;
        };
        let report = LinkReport {
            seq,
            is_up: false,
            age: Duration::ZERO,
            ..held
        };
        self.put(now, key.clone(), report);
        true
    }

    /// Removes an ended entry, because its author announces the link again.
    pub(crate) fn forget_end(&mut self, key: &Key) {
        if self
            .entries
            .get(key)
            .is_some_and(|entry| !entry.report.is_up)
            && key.0 != self.own
        {
            self.entries.remove(key);
        }
    }

    /// Removes all reports of `member`, which has restarted.
    pub(crate) fn forget(&mut self, member: &str) {
        let before = self.entries.len();
        self.entries.retain(|(from, _), _| from != member);
        self.is_changed |= self.entries.len() != before;
    }

    /// Removes entries that are too old. Returns their keys, except for those that were down.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<Key> {
        let Limits { age_max, hold, .. } = self.limits;
        let own = self.own.clone();
        let mut gone = Vec::new();
        self.entries.retain(|key, entry| {
            let age = entry.age(now);
            if !entry.report.is_up {
                // An own entry keeps its sequence number for longer, since others may still store
                // its earlier version.
                return age < if key.0 == own { age_max } else { hold };
            }
            let is_fresh = key.0 == own || age < age_max;
            if !is_fresh {
                gone.push(key.clone());
            }
            is_fresh
        });
        self.is_changed |= !gone.is_empty();
        gone
    }

    /// Makes new versions of the own entries that are due for renewal. Returns their keys.
    pub(crate) fn refresh(&mut self, now: Instant) -> Vec<Key> {
        let renew = self.limits.renew;
        let own = self.entries.iter_mut();
        let old = own.filter(|(key, entry)| {
            key.0 == self.own && entry.report.is_up && entry.age(now) >= renew
        });
        old.map(|(key, entry)| {
            entry.report.seq = entry.report.seq.saturating_add(1);
            entry.report.age = Duration::ZERO;
            entry.at = now;
            key.clone()
        })
        .collect()
    }

    /// The stored version of an entry, with its present age.
    pub(crate) fn get(&self, now: Instant, key: &Key) -> Option<LinkReport> {
        self.entries.get(key).map(|entry| entry.now(now))
    }

    /// All entries with their present ages, including those that are down.
    pub(crate) fn iter(&self, now: Instant) -> impl Iterator<Item = (&Key, LinkReport)> + '_ {
        self.entries
            .iter()
            .map(move |(key, entry)| (key, entry.now(now)))
    }

    /// The own entries with their present ages, including those that are down.
    pub(crate) fn own(&self, now: Instant) -> impl Iterator<Item = (&Key, LinkReport)> + '_ {
        self.iter(now).filter(|(key, _)| key.0 == self.own)
    }

    /// True when any change since the last call affects routes.
    pub(crate) fn take_changed(&mut self) -> bool {
        core::mem::replace(&mut self.is_changed, false)
    }

    /// Computes the routes to all members whose address is known. Links of this member need no
    /// report from the other end.
    pub(crate) fn routes(
        &self,
        paths: Paths,
        address_of: &dyn Fn(&str) -> Option<u64>,
    ) -> Vec<ReachableMember> {
        let up = self.entries.iter().filter(|(_, entry)| entry.report.is_up);
        let costs: BTreeMap<(&str, &str), u32> = up
            .map(|((from, to), entry)| ((from.as_str(), to.as_str()), entry.report.cost))
            .collect();
        let names: BTreeSet<&str> = costs.keys().flat_map(|(from, to)| [*from, *to]).collect();
        let names: Vec<&str> = names.into_iter().collect();
        let own = self.own.as_str();
        let Ok(root) = names.binary_search(&own) else {
            return Vec::new();
        };
        // The route computation numbers members from 1.
        let number = |name: &str| names.binary_search(&name).map_or(0, |at| at as u64 + 1);
        let mut links = BTreeMap::new();
        for ((from, to), cost) in &costs {
            let back = costs.get(&(*to, *from)).copied();
            let costs = match back {
                Some(back) => Some((*cost, back)),
                None if *from == own || !self.limits.needs_both && *to != own => {
                    Some((*cost, *cost))
                }
                None => None,
            };
            // A link that both ends report is passed in both directions, with the same information.
            if from != to && costs.is_some() {
                links.insert((number(from), number(to)), costs);
            }
        }
        let mut computation = Computation::new(paths);
        computation.set_root(root as u64 + 1);
        computation.apply(links);
        let address_at = |number: u64| {
            let name = names.get(usize::try_from(number).ok()?.checked_sub(1)?)?;
            address_of(name).map(Address)
        };
        let all = |numbers: &[u64]| numbers.iter().filter_map(|at| address_at(*at)).collect();
        let routes = computation.routes();
        let reached = routes.iter().filter_map(|(at, route)| {
            let next: Vec<Address> = all(&route.next);
            Some(ReachableMember {
                name: names[usize::try_from(*at).ok()?.checked_sub(1)?].to_string(),
                cost: route.cost,
                route: api::Route {
                    dst: address_at(*at)?,
                    next,
                    alternates: all(&route.alternates),
                },
            })
        });
        reached
            .filter(|reach| !reach.route.next.is_empty())
            .collect()
    }

    fn put(&mut self, now: Instant, key: Key, report: LinkReport) {
        let old = self.entries.insert(key, Entry { report, at: now });
        let usable = |report: &LinkReport| report.is_up.then_some(report.cost);
        let before = old.and_then(|old| usable(&old.report));
        self.is_changed |= before != usable(&report);
    }
}

impl Entry {
    fn age(&self, now: Instant) -> Duration {
        self.report.age + now.since(self.at)
    }

    fn now(&self, now: Instant) -> LinkReport {
        LinkReport {
            age: self.age(now),
            ..self.report
        }
    }
}
