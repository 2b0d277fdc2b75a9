//! The directory: at which members each application is registered (the directory forwarding table).
//!
//! After the Pouzin Society's *Flow Allocator Specification*, whose flow allocator looks names up
//! in the directory.
//!
//! With policy `replicated`, a registration is a replicated entry, which every member has. With
//! `on-demand`, two members, the *homes* of the name, store it. The homes follow from the name of
//! the application and the names of all members (rendezvous hashing), so every member knows whom to
//! ask, and few registrations move when members join or leave. A registrant renews its registration
//! at the homes every [`RENEW_INTERVAL`]; a home deletes registrations that are not renewed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::Event;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_time::{Duration, Instant};
use carina_wire::check_name;

use super::Management;
use super::policies::DirectoryPolicy;
use super::requester::Requester;
use super::schema::{self, MemberValue, Registrants, result};

/// Interval at which a registrant renews a registration.
pub(super) const RENEW_INTERVAL: Duration = Duration::from_secs(30);

/// How long a home stores a registration that is not renewed: three and a half times
/// [`RENEW_INTERVAL`].
const HELD_TIME: Duration = Duration::from_secs(105);

/// Number of homes of a name.
pub(super) const HOMES: usize = 2;

/// Largest number of members at which one application may be registered.
const HOLDERS_MAX: usize = 64;

/// Largest number of cached answers of homes.
const CACHE_MAX: usize = 4096;

/// Why a home refuses a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
enum HomeFull {
    /// The home already stores `names_max` registrations, the most that the policy allows.
    /// `member` is the home.
    Directory { member: String, names_max: usize },
    /// [`HOLDERS_MAX`] members, the most that are allowed, have already registered this name.
    Name(String),
}

impl fmt::Display for HomeFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HomeFull::Directory { member, names_max } => write!(
                f,
                "the directory of {member} holds {names_max} registrations, its maximum \
                 (names-max of policy directory); end registrations that are not in use, or let \
                 more members join to share them"
            ),
            HomeFull::Name(name) => write!(
                f,
                "{HOLDERS_MAX} members have registered {name:?}, the maximum for one name; end \
                 one of these registrations"
            ),
        }
    }
}

impl core::error::Error for HomeFull {}

/// This member's part of the directory, besides replicated entries.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// The set of members has changed since `holders` was computed: all of it must be recomputed.
    pub(super) is_stale: bool,
    /// Applications whose registrations have changed since then.
    touched: BTreeSet<String>,
    /// For each application, the members where it is registered.
    holders: BTreeMap<String, Vec<String>>,
    /// Registrations that this member stores as a home, by application and registrant.
    held: BTreeMap<String, BTreeMap<String, Held>>,
    held_count: usize,
    /// Cached answers of homes: the members of an application, and until when they are valid.
    cache: BTreeMap<String, (Vec<String>, Instant)>,
    pub(super) renew_at: Option<Instant>,
    /// From this time on, a missing route to a member is reported as an error. Before, this member
    /// has only just enrolled, and routes may still be computed.
    pub(super) routes_known_at: Instant,
    /// Own registrations that wait for the answers of their homes.
    pub(super) registering: BTreeMap<String, PendingRegistration>,
    /// Own registrations whose applications have received the confirmation.
    pub(super) answered: BTreeSet<String>,
    /// Own registrations that a home has accepted since this IPCP became a member.
    pub(super) taken: BTreeSet<String>,
    /// Own registrations that wait because too many requests are under way.
    pub(super) backlog: BTreeSet<String>,
    pub(super) round: u64,
}

/// A registration that a home stores.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// Incarnation of the registrant and invoke-id of its request. Invoke-ids grow within an
    /// incarnation.
    told: (u64, i32),
    /// When the registration expires unless it is renewed.
    until: Instant,
}

impl Held {
    /// True when a request is of the same incarnation and older than the stored registration.
    fn is_newer_than(self, (incarnation, invoke_id): (u64, i32)) -> bool {
        self.told.0 == incarnation && self.told.1 > invoke_id
    }
}

/// An own registration that waits for the answers of its homes.
#[derive(Debug)]
pub(super) struct PendingRegistration {
    /// Number of the attempt; answers to an earlier attempt are ignored.
    pub(super) round: u64,
    /// Number of homes that have not answered.
    pub(super) open: usize,
    /// A home has accepted the registration, or did not answer.
    pub(super) is_taken: bool,
    /// The reason that the last refusing home gave.
    pub(super) refusal: String,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// The members where the application is registered, nearest first; may be empty.
    Known(Vec<String>),
    /// The homes to query, in this order.
    Query(Vec<String>),
}

impl Directory {
    /// Marks an application whose registrations have changed.
    pub(super) fn touch(&mut self, name: &str) {
        self.touched.insert(name.to_string());
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.renew_at
    }
}

impl Management {
    /// The homes of a name: the members that store its registrations.
    pub(super) fn homes(&self, name: &str) -> Vec<String> {
        let mut members: Vec<(u64, String)> = self
            .member_names()
            .into_iter()
            .map(|member| (weight(name, &member), member))
            .collect();
        members.sort_by(|a, b| b.cmp(a));
        members
            .into_iter()
            .take(HOMES)
            .map(|(_, member)| member)
            .collect()
    }

    /// Handles M_CREATE or M_DELETE of a registration, at one of the homes of the name.
    pub(super) fn on_registration(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let DirectoryPolicy::OnDemand { names_max, .. } = self.policies.directory else {
            let reason = "registrations are replicated in this DIF";
            return self.reject_to(now, requester, message, result::OPERATION, reason, dt);
        };
        if check_name(name).is_err() {
            let reason = "that is no name of an application";
            return self.reject_to(now, requester, message, result::VALUE, reason, dt);
        }
        let value = MemberValue::of(&self.store, &requester.name);
        let told = (
            value.map_or(0, |value| value.incarnation),
            message.invoke_id,
        );
        let holders = self.directory.held.get(name);
        let held = holders.and_then(|holders| holders.get(&requester.name));
        if held.is_some_and(|held| held.is_newer_than(told)) {
            // The request was overtaken by a later one, or is a copy: the later one counts.
            self.log.count("stale");
        } else if message.opcode == Opcode::Create {
            if let Err(full) = self.hold(now, name, &requester.name, told, names_max) {
                self.log.count("registrations-refused");
                let reason = full.to_string();
                return self.reject_to(now, requester, message, result::FULL, &reason, dt);
            }
        } else {
            let directory = &mut self.directory;
            if let Some(holders) = directory.held.get_mut(name) {
                directory.held_count -= usize::from(holders.remove(&requester.name).is_some());
                if holders.is_empty() {
                    directory.held.remove(name);
                }
            }
        }
        self.directory.touch(name);
        self.respond_to(now, requester, &message.answer(), dt);
    }

    /// Stores or renews a registration, as a home of its name.
    ///
    /// # Errors
    /// The limit that is reached, and a remedy.
    fn hold(
        &mut self,
        now: Instant,
        name: &str,
        member: &str,
        told: (u64, i32),
        names_max: usize,
    ) -> Result<(), HomeFull> {
        let directory = &mut self.directory;
        let holders = directory.held.get(name);
        let is_held = holders.is_some_and(|holders| holders.contains_key(member));
        // A stored registration is renewed even when the limit is reached.
        if !is_held && directory.held_count >= names_max {
            return Err(HomeFull::Directory {
                member: self.own.clone(),
                names_max,
            });
        }
        if !is_held && holders.is_some_and(|holders| holders.len() >= HOLDERS_MAX) {
            return Err(HomeFull::Name(name.to_string()));
        }
        let holders = directory.held.entry(name.to_string()).or_default();
        let until = now + HELD_TIME;
        let held = Held { told, until };
        let is_new = holders.insert(member.to_string(), held).is_none();
        directory.held_count += usize::from(is_new);
        Ok(())
    }

    /// Handles a member's query where an application is registered.
    pub(super) fn on_lookup(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let mut members = self.held_holders(name);
        if self.registered.contains(name) && !members.contains(&self.own) {
            members.push(self.own.clone());
        }
        let value = Some(schema::encode(&Registrants { members }));
        let answer = schema::answer(message, value);
        self.respond_to(now, requester, &answer, dt);
    }

    fn held_holders(&self, name: &str) -> Vec<String> {
        let holders = self
            .directory
            .held
            .get(name)
            .into_iter()
            .flat_map(BTreeMap::keys);
        holders
            .filter(|member| self.address_of(member).is_some())
            .cloned()
            .collect()
    }

    /// True when caller and called application are both registered at this member. Where other
    /// members have the called name too, the call is meant to reach one of them: an IPCP that calls
    /// any member of its DIF has itself registered that DIF's name.
    pub(super) fn is_of_same_system(&self, caller: &str, called: &str) -> bool {
        self.registered.contains(caller) && self.registered.contains(called)
    }

    /// Looks up the members of the application that `caller` calls, as far as this member knows.
    pub(super) fn lookup(&mut self, now: Instant, name: &str, caller: &str) -> Lookup {
        self.directory_changes();
        match self.policies.directory {
            DirectoryPolicy::Replicated => {
                let holders = self
                    .directory
                    .holders
                    .get(name)
                    .cloned()
                    .unwrap_or_default();
                Lookup::Known(self.by_distance(holders))
            }
            DirectoryPolicy::OnDemand { .. } => {
                if self.registered.contains(name) && !self.registered.contains(caller) {
                    return Lookup::Known(alloc::vec![self.own.clone()]);
                }
                let cached = self
                    .directory
                    .cache
                    .get(name)
                    .filter(|(_, until)| *until > now);
                if let Some((holders, _)) = cached {
                    let holders = holders.clone();
                    return Lookup::Known(self.by_distance(holders));
                }
                let homes = self.homes(name);
                if homes.contains(&self.own) {
                    let holders = self.held_holders(name);
                    if !holders.is_empty() {
                        return Lookup::Known(self.by_distance(holders));
                    }
                }
                let others: Vec<String> =
                    homes.into_iter().filter(|home| *home != self.own).collect();
                if others.is_empty() {
                    Lookup::Known(Vec::new())
                } else {
                    Lookup::Query(others)
                }
            }
        }
    }

    /// Caches the answer of a home. Returns the members of the application, nearest first.
    pub(super) fn cache_holders(
        &mut self,
        now: Instant,
        name: &str,
        members: Vec<String>,
    ) -> Vec<String> {
        if let DirectoryPolicy::OnDemand { cache_time, .. } = self.policies.directory
            && !members.is_empty()
            && !cache_time.is_zero()
        {
            let cache = &mut self.directory.cache;
            if cache.len() >= CACHE_MAX {
                cache.retain(|_, (_, until)| *until > now);
            }
            if cache.len() < CACHE_MAX {
                cache.insert(name.to_string(), (members.clone(), now + cache_time));
            }
        }
        self.by_distance(members)
    }

    /// Deletes a cached answer that proved wrong.
    pub(super) fn forget_holders(&mut self, name: &str) {
        self.directory.cache.remove(name);
    }

    /// Sorts members by distance, equally near ones by name. Members without a route, such as one
    /// that has just joined, come last.
    fn by_distance(&self, members: Vec<String>) -> Vec<String> {
        let mut near: Vec<(u64, String)> = members
            .into_iter()
            .take(1024)
            .filter_map(|member| {
                let distance = self.distance(self.address_of(&member)?);
                Some((distance.unwrap_or(u64::MAX), member))
            })
            .collect();
        near.sort();
        near.dedup();
        near.into_iter().map(|(_, member)| member).collect()
    }

    pub(super) fn directory_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.directory.renew_at.is_none_or(|at| at > now) {
            return;
        }
        self.publish_registrations(now, dt);
        let directory = &mut self.directory;
        for holders in directory.held.values_mut() {
            holders.retain(|_, held| held.until > now);
        }
        directory.held.retain(|_, holders| !holders.is_empty());
        directory.held_count = directory.held.values().map(BTreeMap::len).sum();
        directory.is_stale = true;
    }

    /// Recomputes what has changed, and reports applications that became reachable or unreachable.
    pub(super) fn directory_changes(&mut self) {
        if core::mem::take(&mut self.directory.is_stale) {
            let old = self.directory.holders.keys().cloned();
            let mut names: BTreeSet<String> = old.collect();
            names.extend(self.registered.iter().cloned());
            names.extend(self.directory.held.keys().cloned());
            names.extend(self.store.applications().map(str::to_string));
            self.directory.touched.append(&mut names);
        }
        for name in core::mem::take(&mut self.directory.touched) {
            let holders = self.holders_of(&name);
            let is_reachable = !holders.is_empty();
            let before = if is_reachable {
                self.directory.holders.insert(name.clone(), holders)
            } else {
                self.directory.holders.remove(&name)
            };
            match (before.is_some(), is_reachable) {
                (true, false) => self.log.push(Event::Unreachable { name }),
                (false, true) => self.log.push(Event::Reachable { name }),
                _ => {}
            }
        }
    }

    /// Members where an application is registered, as far as this member knows without asking.
    fn holders_of(&self, name: &str) -> Vec<String> {
        if self.member.is_none() {
            return Vec::new();
        }
        match self.policies.directory {
            DirectoryPolicy::Replicated => self.store.holders(name).map(str::to_string).collect(),
            DirectoryPolicy::OnDemand { .. } => {
                let mut holders = self.held_holders(name);
                if self.registered.contains(name) && !holders.contains(&self.own) {
                    holders.push(self.own.clone());
                }
                holders
            }
        }
    }

    /// Applications and the members where they are registered, for the RIB.
    pub(super) fn holders(&self) -> &BTreeMap<String, Vec<String>> {
        &self.directory.holders
    }

    /// Deletes all knowledge of other members' registrations, because the membership ends.
    pub(super) fn forget_directory(&mut self) {
        self.complete_registrations();
        let holders = core::mem::take(&mut self.directory.holders);
        let answered = core::mem::take(&mut self.directory.answered);
        self.directory = Directory {
            holders,
            answered,
            is_stale: true,
            // The round continues, so that late answers do not match requests of the next
            // membership.
            round: self.directory.round,
            ..Directory::default()
        };
    }

    /// Names of the applications registered at this member.
    pub(super) fn own_applications(&self) -> &BTreeSet<String> {
        &self.registered
    }
}

/// Weight of a member for a name. The [`HOMES`] members with the highest weights are its homes.
fn weight(name: &str, member: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name.bytes().chain([0]).chain(member.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // FNV mixes the last bytes poorly, so the hash is mixed once more.
    hash ^= hash >> 32;
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
