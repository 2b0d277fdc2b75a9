//! The link-state database as flow-state objects, and the routes computed from it.
//!
//! An object is one member's report of its link to another, with a sequence number. A changed
//! object is sent to all neighbours except the one from which it came, after a delay that collects
//! several changes in one message. A neighbour that sends an outdated object gets the present one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Route};
use carina_routing::compute::Paths;
use carina_time::{Duration, Instant};
use carina_wire::check_name;
use carina_wire::dif::Address;

use super::Irati;
use super::objects::{self, class};
use super::values::{self, FlowState, FlowStates};
use crate::interop::link_state::{
    Key, Limits, LinkReport, LinkState, MergeOutcome, ReachableMember,
};

/// Duration of a tick, the unit of an object's age.
const TICK: Duration = Duration::from_millis(997);
/// Age in ticks at which an object is removed.
const AGE_MAX: u64 = 10_000;
/// How long changes are collected before they are sent.
const PROPAGATION_DELAY: Duration = Duration::from_millis(101);
/// How long changes are collected before routes are computed.
const COMPUTATION_DELAY: Duration = Duration::from_millis(103);
/// Largest number of objects in a message.
const OBJECTS_MAX: usize = 15;
/// Bytes of a message besides its objects.
const FRAME_BYTES: usize = 128;
/// Largest number of addresses that a member may have at a time: two while it changes them.
const ADDRESSES_MAX: usize = 4;
/// Largest number of objects.
const LINKS_MAX: usize = 16_384;
/// How long after the loss of a member its registrations are removed.
const LOST_TIME: Duration = Duration::from_secs(5);
/// Largest number of next hops of equal cost, and whether there are alternates.
const PATHS: Paths = Paths {
    max: 8,
    has_alternates: true,
};

/// Limits and times of the database.
pub(super) fn limits() -> Limits {
    Limits {
        entries: LINKS_MAX,
        age_max: AGE_MAX * TICK,
        renew: AGE_MAX / 2 * TICK,
        hold: Duration::from_secs(600),
        restart: Duration::ZERO,
        needs_both: true,
    }
}

/// What this member knows about links and members.
pub(super) struct Topology {
    pub(super) links: LinkState,
    /// Addresses by member name, the present one first.
    pub(super) members: BTreeMap<String, Vec<u64>>,
    pub(super) reaches: Vec<ReachableMember>,
    /// Next hops and cost, by address.
    pub(super) routes: BTreeMap<u64, (Vec<u64>, u64)>,
    /// Members that were lost, and when their registrations are removed.
    pub(super) lost: BTreeMap<u64, Instant>,
    send_at: Option<Instant>,
    compute_at: Option<Instant>,
    expire_at: Instant,
}

impl Topology {
    pub(super) fn new(own: &str) -> Topology {
        Topology {
            links: LinkState::new(own, limits()),
            members: BTreeMap::new(),
            reaches: Vec::new(),
            routes: BTreeMap::new(),
            lost: BTreeMap::new(),
            send_at: None,
            compute_at: None,
            expire_at: Instant::ZERO,
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let lost = self.lost.values().copied().min();
        [self.send_at, self.compute_at, lost, Some(self.expire_at)]
            .into_iter()
            .flatten()
            .min()
    }

    fn address(&self, name: &str) -> Option<u64> {
        self.members.get(name)?.first().copied()
    }
}

impl Irati {
    /// Records the address of a member.
    pub(super) fn learn_address(&mut self, now: Instant, name: &str, address: u64) {
        let old = self
            .topology
            .members
            .insert(name.into(), alloc::vec![address]);
        if old.and_then(|all| all.first().copied()) != Some(address) {
            self.compute_soon(now);
        }
    }

    /// Reports this member's link to a neighbour: its cost, or `None` for no link.
    pub(super) fn report_link(&mut self, now: Instant, neighbour: &str, cost: Option<u32>) {
        if self.topology.links.report(now, neighbour, cost) {
            let key = (self.own.clone(), neighbour.into());
            self.queue_links(now, &[key], None);
        }
        self.compute_soon(now);
    }

    fn compute_soon(&mut self, now: Instant) {
        self.topology
            .compute_at
            .get_or_insert(now + COMPUTATION_DELAY);
    }

    /// Queues entries for all neighbours except one.
    fn queue_links(&mut self, now: Instant, keys: &[Key], except: Option<N1Port>) {
        for (n1, flow) in &mut self.n1s {
            if flow.is_up() && Some(*n1) != except {
                flow.pending_links.extend(keys.iter().cloned());
            }
        }
        self.topology.send_at.get_or_insert(now + PROPAGATION_DELAY);
    }

    /// Queues all links that are up for one neighbour.
    pub(super) fn queue_all_links(&mut self, now: Instant, n1: N1Port) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let all = self.topology.links.iter(now);
        // Including the neighbour's own reports: if it has restarted, it must make later versions
        // than those from before.
        let up = all.filter(|(_, report)| report.is_up);
        flow.pending_links.extend(up.map(|(key, _)| key.clone()));
        self.topology.send_at.get_or_insert(now + PROPAGATION_DELAY);
    }

    /// Handles the objects of a neighbour.
    pub(super) fn on_links(&mut self, now: Instant, n1: N1Port, message: &Message) {
        let Ok(states) = values::read::<FlowStates>(message) else {
            return self.discard(n1, "links-unreadable");
        };
        for state in states.all {
            self.on_link(now, n1, state);
        }
        if self.topology.links.take_changed() {
            self.compute_soon(now);
        }
    }

    fn on_link(&mut self, now: Instant, n1: N1Port, state: FlowState) {
        let FlowState {
            name,
            mut addresses,
            neighbour,
            neighbour_addresses,
            ..
        } = state;
        let are_names = [&name, &neighbour]
            .into_iter()
            .all(|name| check_name(name).is_ok());
        let are_addresses = [&addresses, &neighbour_addresses]
            .into_iter()
            .all(|all| !all.is_empty() && all.len() <= ADDRESSES_MAX && !all.contains(&0));
        if !are_names || !are_addresses || name == neighbour {
            return self.discard(n1, "link-unsound");
        }
        let is_up = state.is_up && u64::from(state.age) <= AGE_MAX;
        let report = LinkReport {
            cost: state.cost.max(1),
            seq: state.seq.into(),
            is_up,
            // The end of an object is kept for the full time, whatever age it has.
            age: if is_up {
                u64::from(state.age) * TICK
            } else {
                Duration::ZERO
            },
        };
        let key = (name, neighbour);
        match self.topology.links.insert(now, key.clone(), report) {
            MergeOutcome::New => {
                self.note_received(n1, &key);
                if is_up {
                    addresses.sort_unstable();
                    self.note_addresses(&key.0, addresses);
                    if !self.topology.members.contains_key(&key.1) {
                        self.note_addresses(&key.1, neighbour_addresses);
                    }
                }
                self.queue_links(now, &[key], Some(n1));
            }
            MergeOutcome::Same => self.note_received(n1, &key),
            MergeOutcome::Old => {
                if let Some(flow) = self.n1s.get_mut(&n1) {
                    flow.pending_links.insert(key);
                    self.topology.send_at.get_or_insert(now + PROPAGATION_DELAY);
                }
            }
            MergeOutcome::Corrected => {
                self.log.count("links-corrected");
                self.queue_links(now, &[key], None);
            }
            MergeOutcome::Full => self.discard(n1, "links-full"),
        }
    }

    /// Records that a neighbour has this version, so it need not be sent to it.
    fn note_received(&mut self, n1: N1Port, key: &Key) {
        if let Some(flow) = self.n1s.get_mut(&n1) {
            flow.pending_links.remove(key);
        }
    }

    fn note_addresses(&mut self, name: &str, addresses: Vec<u64>) {
        let is_own = name == self.own || self.n1_of(name).is_some();
        let taken = self.topology.members.iter().find(|(other, all)| {
            other.as_str() != name && all.iter().any(|address| addresses.contains(address))
        });
        if let Some((other, _)) = taken {
            let text = alloc::format!("members {other:?} and {name:?} have one address");
            self.log.notice("address", &text);
        }
        if addresses.contains(&self.address) && name != self.own {
            let text = alloc::format!("member {name:?} has the address of this one");
            self.log.notice("address", &text);
            return self.log.count("address-disputed");
        }
        if !is_own {
            self.topology.members.insert(name.into(), addresses);
        }
    }

    pub(super) fn links_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let topology = &mut self.topology;
        if topology.expire_at <= now {
            topology.expire_at = now + 10 * TICK;
            topology.links.expire(now);
            let fresh = topology.links.refresh(now);
            if topology.links.take_changed() {
                self.compute_soon(now);
            }
            if !fresh.is_empty() {
                self.queue_links(now, &fresh, None);
            }
        }
        if self.topology.send_at.take_if(|at| *at <= now).is_some() {
            for n1 in self.up() {
                self.send_pending_links(now, n1, dt);
            }
        }
        if self.topology.compute_at.take_if(|at| *at <= now).is_some() {
            self.compute(now, dt);
        }
        self.forget_lost(now);
    }

    fn send_pending_links(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let pending_links = core::mem::take(&mut flow.pending_links);
        let states: Vec<FlowState> = pending_links
            .iter()
            .filter_map(|key| self.flow_state(now, key))
            .collect();
        let room = dt.management_max().saturating_sub(FRAME_BYTES);
        for part in super::parts(states, OBJECTS_MAX, room) {
            let value = FlowStates { all: part };
            let message = objects::request(Opcode::Write, class::LINKS, objects::LINKS, &value);
            self.send(now, n1, &message, dt);
        }
    }

    /// An entry of the database as an object; `None` when an address is unknown.
    pub(super) fn flow_state(&self, now: Instant, key: &Key) -> Option<FlowState> {
        let report = self.topology.links.get(now, key)?;
        let addresses = |name: &str| {
            if name == self.own {
                Some(alloc::vec![self.address])
            } else {
                self.topology.members.get(name).cloned()
            }
        };
        let ticks = if report.is_up {
            report.age / TICK
        } else {
            AGE_MAX + 1
        };
        Some(FlowState {
            name: key.0.clone(),
            addresses: addresses(&key.0)?,
            neighbour: key.1.clone(),
            neighbour_addresses: addresses(&key.1)?,
            cost: report.cost,
            seq: u32::try_from(report.seq).unwrap_or(u32::MAX),
            is_up: report.is_up,
            age: u32::try_from(ticks).unwrap_or(u32::MAX),
        })
    }

    /// Recomputes the routes.
    pub(super) fn compute(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let topology = &mut self.topology;
        let _ = topology.links.take_changed();
        let named: BTreeSet<String> = topology
            .links
            .iter(now)
            .flat_map(|((from, to), _)| [from.clone(), to.clone()])
            .collect();
        topology.members.retain(|name, _| named.contains(name));
        topology.reaches = topology.links.routes(PATHS, &|name| topology.address(name));
        let mut routes = BTreeMap::new();
        let mut table = Vec::new();
        for reach in &topology.reaches {
            let next: Vec<u64> = reach.route.next.iter().map(|next| next.0).collect();
            let all = topology.members.get(&reach.name);
            for address in all.into_iter().flatten() {
                routes.insert(*address, (next.clone(), reach.cost));
                table.push(Route {
                    dst: Address(*address),
                    ..reach.route.clone()
                });
            }
        }
        let old = core::mem::replace(&mut topology.routes, routes);
        for address in old.keys() {
            if !topology.routes.contains_key(address) {
                topology.lost.insert(*address, now + LOST_TIME);
            }
        }
        for address in topology.routes.keys() {
            topology.lost.remove(address);
        }
        dt.set_forwarding(&table);
        let (own, routes) = (self.address, &self.topology.routes);
        self.flows.set_reachability(now, &|address| {
            address == own || routes.contains_key(&address)
        });
        self.directory.touch_all();
    }

    /// Handles an entry of a lost member: it is back, and its links are still to arrive. Its
    /// registrations are kept for the full time again. Returns true, once for each time, if other
    /// members would soon remove them because they do not know yet.
    pub(super) fn keep_lost(&mut self, now: Instant, address: u64) -> bool {
        let Some(at) = self.topology.lost.get_mut(&address) else {
            return false;
        };
        let until = core::mem::replace(at, now + LOST_TIME);
        until < now + LOST_TIME / 2
    }

    fn forget_lost(&mut self, now: Instant) {
        let mut gone = Vec::new();
        self.topology.lost.retain(|address, at| {
            let is_over = *at <= now;
            if is_over {
                gone.push(*address);
            }
            !is_over
        });
        for address in gone {
            self.directory.lost(&address);
        }
    }
}
