//! The interface of a routing policy, and the routes that it computes.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::error::RoutingError;
use crate::message::{Address, FlowState, Message};

/// The next hops for PDUs to one member, as the routing policy computed them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Address of the member to which the route leads.
    pub dst: Address,
    /// Neighbours to which PDUs for `dst` may be sent, in ascending order; never empty. If there
    /// are several, their paths have equal cost.
    pub next: Vec<Address>,
    /// Neighbours to use when all of `next` have failed, best first. If one link has failed, none
    /// of them sends the PDU back to this member. docs/explanation/routing.md describes the failure
    /// of a member.
    pub alternates: Vec<Address>,
    /// Cost of the shortest path to the destination; 0 if the policy does not know costs.
    pub cost: u64,
}

/// Changes of the routing table since the last [`Routing::poll_routes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// New or changed routes, sorted by address.
    pub changed: Vec<Route>,
    /// Addresses of members that have become unreachable.
    pub removed: Vec<Address>,
}

/// State of a routing policy, for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// All flow-state objects in the database, including tombstones.
    pub links: Vec<FlowState>,
    /// Counters with their names: messages, objects by outcome, computations.
    pub counters: Vec<(&'static str, u64)>,
}

/// The routing policy of one member: it receives link events and messages, and computes routes.
/// Times passed to it must never decrease.
///
/// After each `handle_*` call, call [`poll_message`](Routing::poll_message) and
/// [`poll_routes`](Routing::poll_routes) until they return `None`, and call
/// [`poll_timeout`](Routing::poll_timeout) again.
pub trait Routing: Send {
    /// Sets this member's address and name. Call it first. A later call with another address
    /// withdraws everything that was reported under the old one.
    fn set_own(&mut self, now: Instant, address: Address, name: &str);

    /// Notes that there is a link to this neighbour, or that its cost has changed. Several N-1
    /// flows to one neighbour count as one link. A cost of 0 counts as 1.
    fn handle_link_up(&mut self, now: Instant, neighbour: Address, cost: u32);

    /// Notes that the link to this neighbour has failed; routes change accordingly.
    fn handle_link_down(&mut self, now: Instant, neighbour: Address);

    /// Processes a routing message from the neighbour with address `from`.
    fn handle_message(&mut self, now: Instant, from: Address, message: Message);

    /// Withdraws everything that this member reports, because it is about to leave the DIF. Send
    /// all messages of `poll_message` before the N-1 flows are closed.
    fn handle_leave(&mut self, now: Instant);

    /// Handles all deadlines up to `now`. Call this at the time that `poll_timeout` returned, or
    /// later.
    fn handle_timeout(&mut self, now: Instant);

    /// Returns when `handle_timeout` is due, possibly in the past; `None` if no deadline is set.
    /// Each `handle_*` call may change it.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// Returns the next message and the neighbour to send it to, or `None`.
    /// Neighbours are served in turn. Objects are batched; objects not fetched yet are replaced by
    /// newer versions.
    #[must_use]
    fn poll_message(&mut self, now: Instant) -> Option<(Address, Message)>;

    /// Returns the changes of the routing table since the last call; `None` if nothing has changed.
    #[must_use]
    fn poll_routes(&mut self) -> Option<Delta>;

    /// Returns the whole routing table, by destination. It has no route to this member itself.
    fn table(&self) -> &BTreeMap<Address, Route>;

    /// Changes parameters while the DIF runs. Parameters that are not given return to their
    /// defaults.
    ///
    /// # Errors
    /// A parameter is unknown or its value is invalid; nothing has changed then.
    fn set_params(
        &mut self,
        now: Instant,
        params: &BTreeMap<String, String>,
    ) -> Result<(), RoutingError>;

    /// Returns the state of the policy, for people to read.
    fn show(&self, now: Instant) -> State;
}

/// Replaces the contents of `table` by `wanted`, and adds changed destinations to `delta`.
pub(crate) fn replace(
    table: &mut BTreeMap<Address, Route>,
    wanted: BTreeMap<Address, Route>,
    delta: &mut PendingDelta,
) {
    for dst in table.keys() {
        if !wanted.contains_key(dst) {
            delta.insert(*dst);
        }
    }
    for (dst, route) in &wanted {
        if table.get(dst) != Some(route) {
            delta.insert(*dst);
        }
    }
    *table = wanted;
}

/// Destinations whose routes have changed since the last call of [`Routing::poll_routes`].
pub(crate) type PendingDelta = alloc::collections::BTreeSet<Address>;

/// Makes the result of [`Routing::poll_routes`] from the pending destinations, and clears these.
pub(crate) fn take_delta(
    table: &BTreeMap<Address, Route>,
    pending: &mut PendingDelta,
) -> Option<Delta> {
    if pending.is_empty() {
        return None;
    }
    let mut delta = Delta::default();
    for dst in core::mem::take(pending) {
        match table.get(&dst) {
            Some(route) => delta.changed.push(route.clone()),
            None => delta.removed.push(dst),
        }
    }
    Some(delta)
}
