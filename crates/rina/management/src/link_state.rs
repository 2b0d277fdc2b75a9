//! Links to neighbours, the routing policy, and the effects of new routes.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::Opcode;
use carina_ipcp::api::{Event, N1Port, N1Properties};
use carina_ipcp::data_transfer::api::{DataTransfer, Route};
use carina_time::{Duration, Instant};
use carina_wire::dif::Address;

use super::Management;
use super::entries::Kind;
use super::neighbours::Stage;
use super::schema::{self, MemberValue, Object};

/// Delay from a change of routes to the update of reachability.
const REFRESH_SOON: Duration = Duration::from_millis(100);

/// First pause before the N-1 flow to a lost neighbour is requested again.
const RECONNECT_FIRST: Duration = Duration::from_secs(1);

/// A lost neighbour to which this side had requested an N-1 flow.
#[derive(Debug)]
pub(super) struct LostNeighbour {
    at: Instant,
    pause: Duration,
    /// Number of N-1 flows that this side had to the neighbour.
    wanted: usize,
}

impl Management {
    /// Makes the IPCP at the other end of `n1` a neighbour.
    pub(super) fn neighbour_up(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let keepalive = self.keepalive_interval();
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let key = (flow.props.dif.clone(), flow.props.remote.clone());
        let Some(up) = &mut flow.up else { return };
        up.ask_at = now + keepalive;
        let (name, address) = (up.name.clone(), up.address);
        let n1_count = self.n1s_to(&key);
        if self
            .lost
            .get(&key)
            .is_some_and(|lost| lost.wanted <= n1_count)
        {
            self.lost.remove(&key);
        }
        self.link_changed(now, address, dt);
        self.log.push(Event::NeighbourUp {
            name,
            address: Address(address),
            n1,
        });
        self.compare_with(now, n1, false, dt);
    }

    /// Handles the loss of the neighbour at the other end of `n1`.
    pub(super) fn neighbour_down(
        &mut self,
        now: Instant,
        n1: N1Port,
        name: &str,
        address: u64,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.link_changed(now, address, dt);
        // Computes the other routes first, because the PDUs that wait for this N-1 flow are then
        // moved to them.
        self.drain_routing(now, dt);
        dt.move_waiting(now, n1);
        let (name, reason) = (name.to_string(), reason.to_string());
        self.log.push(Event::NeighbourDown { name, n1, reason });
    }

    /// Tells data transfer and routing which N-1 flows lead to a neighbour now.
    fn link_changed(&mut self, now: Instant, address: u64, dt: &mut dyn DataTransfer) {
        let neighbours = self.neighbours();
        let n1s = neighbours
            .get(&address)
            .map(Vec::as_slice)
            .unwrap_or_default();
        dt.set_neighbour(now, Address(address), n1s);
        let Some(routing) = &mut self.routing else {
            return;
        };
        match n1s.first() {
            Some(best) => routing.handle_link_up(now, address, self.n1s[best].props.cost),
            None => routing.handle_link_down(now, address),
        }
    }

    /// Reports all links to routing again, after this member's address has changed.
    pub(super) fn report_all_links(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        for address in self.neighbours().into_keys() {
            self.link_changed(now, address, dt);
        }
    }

    /// Updates the addresses of neighbours whose member entries have a new address.
    pub(super) fn update_neighbour_addresses(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let mut moved: Vec<(u64, u64)> = Vec::new();
        for flow in self.n1s.values_mut() {
            let Some(up) = &mut flow.up else { continue };
            if !matches!(up.stage, Stage::Neighbours) {
                continue;
            }
            let value = MemberValue::of(&self.store, &up.name);
            let Some(value) = value.filter(|value| value.incarnation == up.incarnation) else {
                continue;
            };
            if value.address != up.address {
                moved.push((up.address, value.address));
                up.address = value.address;
            }
        }
        for (old, new) in moved {
            self.link_changed(now, old, dt);
            self.link_changed(now, new, dt);
        }
    }

    /// Sends the messages of the routing policy, and applies its new routes.
    pub(super) fn drain_routing(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let Some(routing) = &mut self.routing else {
            return;
        };
        let mut messages = Vec::new();
        while let Some(message) = routing.poll_message(now) {
            messages.push(message);
        }
        let delta = routing.poll_routes();
        let neighbours = if messages.is_empty() {
            BTreeMap::new()
        } else {
            self.neighbours()
        };
        for (to, message) in messages {
            let Some(n1) = neighbours.get(&to).and_then(|n1s| n1s.first()) else {
                continue;
            };
            let value = Some(schema::encode_routing(&message));
            let message = schema::request(Opcode::Write, &Object::Routing, value);
            self.tell(now, *n1, message, false, dt);
        }
        if let Some(delta) = delta {
            let changed = delta.changed.into_iter().map(|route| Route {
                dst: Address(route.dst),
                next: route.next.into_iter().map(Address).collect(),
                alternates: route.alternates.into_iter().map(Address).collect(),
            });
            let changed: Vec<Route> = changed.collect();
            let removed: Vec<Address> = delta.removed.into_iter().map(Address).collect();
            // A new routing policy does not know the routes of the one before, so all routes are
            // replaced.
            if core::mem::take(&mut self.is_routing_new) {
                dt.set_forwarding(&changed);
            } else {
                dt.change_forwarding(&changed, &removed);
            }
            // Changes of routes come in bursts, and the refresh examines every member, so it is
            // delayed.
            self.refresh_at = self.refresh_at.min(now + REFRESH_SOON);
        }
    }

    /// Cost of the route to an address; `None` without a route.
    pub(super) fn distance(&self, address: u64) -> Option<u64> {
        if self
            .member
            .as_ref()
            .is_some_and(|member| member.address == address)
        {
            return Some(0);
        }
        let routing = self.routing.as_ref()?;
        routing.table().get(&address).map(|route| route.cost)
    }

    /// Address of a visible member; `None` when the name is unknown or hidden.
    pub(super) fn address_of(&self, name: &str) -> Option<u64> {
        if name == self.own {
            return self.member.as_ref().map(|member| member.address);
        }
        if !self.store.is_visible(name) {
            return None;
        }
        MemberValue::of(&self.store, name).map(|value| value.address)
    }

    /// Names of visible members by address.
    pub(super) fn members_by_address(&self) -> BTreeMap<u64, String> {
        let others = self
            .store
            .visible(Kind::Member)
            .filter_map(|(origin, _, value)| {
                let value = schema::decode::<MemberValue>(value)?;
                Some((value.address, origin.to_string()))
            });
        others.collect()
    }

    /// Handles a routing message of the neighbour over `n1`. Returns false when it is malformed.
    pub(super) fn on_routing(&mut self, now: Instant, n1: N1Port, bytes: &[u8]) -> bool {
        let Some(message) = schema::decode_routing(bytes) else {
            return false;
        };
        let from = self.neighbour(n1).map(|up| up.address);
        if let (Some(from), Some(routing)) = (from, &mut self.routing) {
            routing.handle_message(now, from, message);
        }
        true
    }

    /// Schedules a new request for the N-1 flow to a lost neighbour, if the policy reconnects.
    pub(super) fn schedule_reconnect(&mut self, now: Instant, dif: String, remote: String) {
        if self.policies.enrollment.reconnects {
            let at = now + self.random.about(RECONNECT_FIRST);
            let key = (dif, remote);
            let wanted = self.n1s_to(&key) + 1;
            let pause = RECONNECT_FIRST;
            let lost = self
                .lost
                .entry(key)
                .or_insert(LostNeighbour { at, pause, wanted });
            lost.wanted = lost.wanted.max(wanted);
        }
    }

    /// Number of N-1 flows that this side requested to a name in an N-1 DIF.
    fn n1s_to(&self, key: &(String, String)) -> usize {
        let flows = self.n1s.values().map(|flow| &flow.props);
        let is_such = |props: &&N1Properties| {
            props.is_initiator && props.dif == key.0 && props.remote == key.1
        };
        flows.filter(is_such).count()
    }

    pub(super) fn reconnect_due(&self) -> Option<Instant> {
        self.lost.values().map(|lost| lost.at).min()
    }

    /// Requests the N-1 flows to lost neighbours that are due, with growing pauses.
    pub(super) fn reconnect_timeout(&mut self, now: Instant) {
        let pause_max = self.policies.enrollment.retry_max;
        let due: Vec<(String, String)> = self
            .lost
            .iter()
            .filter(|(_, lost)| lost.at <= now)
            .map(|(key, _)| key.clone())
            .collect();
        for key in due {
            let n1_count = self.n1s_to(&key);
            let Some(lost) = self.lost.get_mut(&key) else {
                continue;
            };
            lost.pause = (lost.pause * 2).min(pause_max);
            lost.at = now + self.random.about(lost.pause);
            if n1_count < lost.wanted {
                let (dif, remote) = key;
                self.log.push(Event::NeedN1 { dif, remote });
            }
        }
    }

    /// Replaces a management channel whose sequence numbers run out; the old one is used until
    /// then.
    pub(super) fn channel_rollover(
        &mut self,
        now: Instant,
        channel: u32,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(n1) = self.channels.get(&channel).copied() else {
            return;
        };
        if self
            .n1s
            .get(&n1)
            .is_some_and(|flow| flow.initiator.is_none() && flow.responder.is_none())
        {
            self.log.count("channel-rollover");
            self.initiate(now, n1, dt);
        }
    }

    /// Updates which members are reachable and whose entries are visible. Runs periodically, and
    /// soon after each change of routes.
    pub(super) fn refresh(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let own = self.member.as_ref().map(|member| member.address);
        let table = self.routing.as_ref().map(|routing| routing.table());
        let is_reachable = |value: &[u8]| {
            let value = schema::decode::<MemberValue>(value);
            value.is_some_and(|MemberValue { address, .. }| {
                own == Some(address) || table.is_some_and(|table| table.contains_key(&address))
            })
        };
        self.directory.is_stale |= self.store.refresh(now, is_reachable);
        self.check_reachability(now, dt);
        self.lift_expulsions(now, dt);
        if self.has_lost_address() {
            self.take_new_address(now, dt);
        }
    }

    /// True when a visible member with a lower name has this member's address.
    fn has_lost_address(&self) -> bool {
        let Some(own) = self.member.as_ref().map(|member| member.address) else {
            return false;
        };
        self.store.members_before().any(|value| {
            schema::decode::<MemberValue>(value).is_some_and(|value| value.address == own)
        })
    }
}
