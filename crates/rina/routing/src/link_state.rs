//! The routing policy `link-state`.
//!
//! ```text
//!  report or message        delay, hold                          drained
//!  changes the database --> spf_at --> compute --> pending delta --------> IPCP
//!         |
//!         +--> every other neighbour's `Peer::pending` --> Message::Objects
//! ```

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::api::{Delta, PendingDelta, Route, Routing, State, replace, take_delta};
use crate::compute::Computation;
use crate::database::{Database, MergeOutcome};
use crate::error::RoutingError;
use crate::flood::Peers;
use crate::former::FormerLinks;
use crate::message::{Address, FlowState, Message, Summary};
use crate::parameters::Parameters;

/// Link-state routing: every member reports its links to all others, and each member computes
/// shortest paths.
pub(crate) struct LinkState {
    parameters: Parameters,
    database: Database,
    name: String,
    /// The links to neighbours, with their costs.
    links: BTreeMap<Address, u32>,
    peers: Peers,
    computation: Computation,
    /// Pairs of members whose reports have changed, the lower address first.
    stale: BTreeSet<(Address, Address)>,
    table: BTreeMap<Address, Route>,
    delta: PendingDelta,
    has_left: bool,
    former: FormerLinks,
    timers: Timers,
    disputes: Disputes,
    counters: Counters,
}

/// The times at which the policy must act.
#[derive(Default)]
struct Timers {
    spf_at: Option<Instant>,
    spf_last: Option<Instant>,
    sweep_at: Option<Instant>,
    sync_at: Option<Instant>,
    refresh_at: Option<Instant>,
}

/// Limits how often this member replaces other members' versions of its own objects. Otherwise two
/// members with the same address would do nothing else.
#[derive(Default)]
struct Disputes {
    second: u64,
    count: u32,
}

#[derive(Default)]
struct Counters {
    messages: u64,
    accepted: u64,
    known: u64,
    outdated: u64,
    disputed: u64,
    disputed_ignored: u64,
    expired: u64,
    full: u64,
    malformed: u64,
    forgotten: u64,
    withdrawn: u64,
    computations: u64,
    destinations: u64,
}

impl LinkState {
    /// Creates the policy.
    ///
    /// # Errors
    /// A parameter is unknown or its value is invalid.
    pub(crate) fn new(params: &BTreeMap<String, String>) -> Result<LinkState, RoutingError> {
        let parameters = Parameters::parse(params)?;
        Ok(LinkState {
            database: Database::new(0, "", parameters.limits),
            computation: Computation::new(parameters.paths),
            parameters,
            name: String::new(),
            links: BTreeMap::new(),
            peers: Peers::default(),
            stale: BTreeSet::new(),
            table: BTreeMap::new(),
            delta: PendingDelta::new(),
            has_left: false,
            former: FormerLinks::default(),
            timers: Timers::default(),
            disputes: Disputes::default(),
            counters: Counters::default(),
        })
    }

    fn report(&mut self, now: Instant, to: Address, cost: Option<u32>) {
        if self.database.own() != 0 && self.database.report(now, to, cost) {
            self.own_changed(now, to);
            // A change that this member detects itself need not wait for further changes.
            self.timers.spf_at = Some(now);
        }
    }

    fn own_changed(&mut self, now: Instant, to: Address) {
        let key = (self.database.own(), to);
        self.peers.flood(key, None);
        self.mark(now, key);
        self.plan_refresh();
    }

    fn mark(&mut self, now: Instant, (from, to): (Address, Address)) {
        self.stale.insert((from.min(to), from.max(to)));
        let hold = self
            .timers
            .spf_last
            .map_or(Instant::ZERO, |last| last + self.parameters.hold);
        let at = hold.max(now + self.parameters.delay);
        let at = self.timers.spf_at.map_or(at, |set| set.min(at));
        self.timers.spf_at = Some(at);
        let sweep_at = now + self.parameters.sweep();
        self.timers.sweep_at.get_or_insert(sweep_at);
    }

    fn plan_refresh(&mut self) {
        let due = self.database.refresh_due();
        self.timers.refresh_at = due;
    }

    fn compute(&mut self, now: Instant) {
        self.timers.spf_at = None;
        self.timers.spf_last = Some(now);
        self.counters.computations += 1;
        let stale = core::mem::take(&mut self.stale);
        let touched = self.computation.update(&self.database, stale);
        self.counters.destinations += touched.len() as u64;
        for dst in touched {
            let new = self.computation.route(dst);
            if new.as_ref() != self.table.get(&dst) {
                self.delta.insert(dst);
                match new {
                    Some(route) => self.table.insert(dst, route),
                    None => self.table.remove(&dst),
                };
            }
        }
    }

    /// Recomputes everything, after the root or the parameters have changed.
    fn restart(&mut self, now: Instant) {
        self.computation = Computation::new(self.parameters.paths);
        self.computation.set_root(self.database.own());
        let all = self.database.keys().map(|(a, b)| (a.min(b), a.max(b)));
        self.computation.update(&self.database, all.collect());
        self.stale.clear();
        self.timers.spf_last = Some(now);
        self.timers.spf_at = None;
        self.counters.computations += 1;
        let wanted = self.computation.routes();
        replace(&mut self.table, wanted, &mut self.delta);
    }

    fn take_objects(&mut self, now: Instant, from: Address, objects: &[FlowState]) {
        for object in objects {
            if object.from == self.database.own() && !self.disputes.allow(now) {
                self.counters.disputed_ignored += 1;
                continue;
            }
            let key = (object.from, object.to);
            match self.database.insert(now, object) {
                MergeOutcome::Accepted => {
                    self.counters.accepted += 1;
                    self.peers.flood(key, Some(from));
                    self.peers.has(from, key);
                    self.mark(now, key);
                    let is_former = object.is_up && object.name == self.name;
                    self.former.note(now, key, is_former);
                }
                MergeOutcome::Known => {
                    self.counters.known += 1;
                    self.peers.has(from, key);
                }
                MergeOutcome::Outdated => {
                    self.counters.outdated += 1;
                    self.peers.lacks(from, [key]);
                }
                MergeOutcome::Disputed => {
                    self.counters.disputed += 1;
                    self.disputes.count += 1;
                    self.own_changed(now, object.to);
                }
                MergeOutcome::Expired => self.counters.expired += 1,
                MergeOutcome::Full => self.counters.full += 1,
                MergeOutcome::Malformed => self.counters.malformed += 1,
            }
        }
    }

    /// Compares a summary of a neighbour with the database. For each origin on which the two
    /// disagree, queues this member's objects for the neighbour and requests the neighbour's. Each
    /// side ignores what it already has.
    fn take_summary(&mut self, from: Address, summary: &Summary) {
        if summary.first > summary.last {
            self.counters.malformed += 1;
            return;
        }
        for theirs in &summary.origins {
            if self.database.digest_of(theirs.origin) != theirs.digest {
                let keys = self.database.keys_of(theirs.origin);
                self.peers.lacks(from, keys);
                self.peers.want(from, theirs.origin);
            }
        }
        let named: BTreeSet<Address> = summary.origins.iter().map(|row| row.origin).collect();
        for origin in self.database.origins(summary.first, summary.last) {
            if !named.contains(&origin) {
                self.peers.lacks(from, self.database.keys_of(origin));
            }
        }
    }

    /// Withdraws what this member reported under another address before a restart.
    fn withdraw_former(&mut self, now: Instant) {
        for key in self.former.take_due(now) {
            if self.database.withdraw(now, key) {
                self.counters.withdrawn += 1;
                self.peers.flood(key, None);
                self.mark(now, key);
            }
        }
    }

    fn sweep(&mut self, now: Instant) {
        let old = self.database.expire(now);
        self.counters.forgotten += old.len() as u64;
        self.timers.sweep_at = None;
        for key in old {
            self.peers.forget(key);
            self.mark(now, key);
        }
        if !self.database.is_empty() {
            self.timers.sweep_at = Some(now + self.parameters.sweep());
        }
    }
}

impl Routing for LinkState {
    fn set_own(&mut self, now: Instant, address: Address, name: &str) {
        if address == self.database.own() && name == self.name && !self.has_left {
            return;
        }
        let links = self.links.clone();
        for neighbour in links.keys() {
            self.report(now, *neighbour, None);
        }
        self.has_left = false;
        self.name = name.into();
        self.database.set_own(address, name);
        for (neighbour, cost) in links {
            self.report(now, neighbour, Some(cost));
        }
        // If other members still have objects of this address, this member disputes them when they
        // arrive.
        self.restart(now);
    }

    fn handle_link_up(&mut self, now: Instant, neighbour: Address, cost: u32) {
        if neighbour == 0 || neighbour == self.database.own() {
            return;
        }
        let cost = cost.max(1);
        if self.links.insert(neighbour, cost).is_none() {
            self.peers.add(neighbour);
            if let Some(sync) = self.parameters.sync {
                self.timers.sync_at.get_or_insert(now + sync);
            }
        }
        if !self.has_left {
            self.report(now, neighbour, Some(cost));
        }
    }

    fn handle_link_down(&mut self, now: Instant, neighbour: Address) {
        self.links.remove(&neighbour);
        self.peers.remove(neighbour);
        self.report(now, neighbour, None);
    }

    fn handle_message(&mut self, now: Instant, from: Address, message: Message) {
        self.counters.messages += 1;
        match message {
            Message::Objects(objects) => self.take_objects(now, from, &objects),
            Message::Digest(theirs) if theirs == self.database.digest() => {}
            // The member with the lower address sends its summary, and the other one reacts to it.
            Message::Digest(_) if self.database.own() < from => self.peers.summarise(from),
            Message::Digest(_) => self.peers.compare(from),
            Message::Summary(summary) => self.take_summary(from, &summary),
            Message::Want(origins) => {
                for origin in origins {
                    self.peers.lacks(from, self.database.keys_of(origin));
                }
            }
        }
    }

    fn handle_leave(&mut self, now: Instant) {
        self.has_left = true;
        let neighbours: Vec<Address> = self.links.keys().copied().collect();
        for neighbour in neighbours {
            self.report(now, neighbour, None);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.sweep_at) {
            self.sweep(now);
        }
        self.withdraw_former(now);
        if is_due(self.timers.refresh_at) {
            for to in self.database.refresh(now) {
                self.peers.flood((self.database.own(), to), None);
            }
            self.plan_refresh();
        }
        if is_due(self.timers.sync_at) {
            self.peers.compare_all();
            let again = self.parameters.sync.filter(|_| !self.links.is_empty());
            self.timers.sync_at = again.map(|sync| now + sync);
        }
        if is_due(self.timers.spf_at) {
            self.compute(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let Timers {
            spf_at,
            sweep_at,
            sync_at,
            refresh_at,
            spf_last: _,
        } = self.timers;
        [spf_at, sweep_at, sync_at, refresh_at, self.former.due()]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_message(&mut self, now: Instant) -> Option<(Address, Message)> {
        let batch = self.parameters.batch;
        self.peers.poll(&self.database, now, batch)
    }

    fn poll_routes(&mut self) -> Option<Delta> {
        take_delta(&self.table, &mut self.delta)
    }

    fn table(&self) -> &BTreeMap<Address, Route> {
        &self.table
    }

    fn set_params(
        &mut self,
        now: Instant,
        params: &BTreeMap<String, String>,
    ) -> Result<(), RoutingError> {
        self.parameters = Parameters::parse(params)?;
        self.database.set_limits(self.parameters.limits);
        self.timers.sync_at = self
            .parameters
            .sync
            .filter(|_| !self.links.is_empty())
            .map(|sync| now + sync);
        if self.timers.sweep_at.is_some() {
            self.timers.sweep_at = Some(now + self.parameters.sweep());
        }
        self.plan_refresh();
        self.restart(now);
        Ok(())
    }

    fn show(&self, now: Instant) -> State {
        let keys = self.database.keys();
        let counters = &self.counters;
        State {
            links: keys
                .filter_map(|key| self.database.object(now, key))
                .collect(),
            counters: Vec::from([
                ("messages", counters.messages),
                ("objects_accepted", counters.accepted),
                ("objects_known", counters.known),
                ("objects_outdated", counters.outdated),
                ("objects_disputed", counters.disputed),
                ("objects_disputed_ignored", counters.disputed_ignored),
                ("objects_expired", counters.expired),
                ("objects_refused_full", counters.full),
                ("malformed", counters.malformed),
                ("objects_forgotten", counters.forgotten),
                ("objects_withdrawn_former", counters.withdrawn),
                ("computations", counters.computations),
                ("destinations_computed", counters.destinations),
            ]),
        }
    }
}

impl Disputes {
    fn allow(&mut self, now: Instant) -> bool {
        let second = now.as_millis() / 1000;
        if second != self.second {
            *self = Disputes { second, count: 0 };
        }
        self.count < DISPUTES_PER_SECOND
    }
}

/// Largest number of disputes in one second. This is enough for a member with many links that
/// restarts with its old address.
const DISPUTES_PER_SECOND: u32 = 256;
