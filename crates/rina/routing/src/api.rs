//! What an IPCP asks of its routing policy, and the routes that it gets.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use carina_time::Instant;

use crate::error::RoutingError;
use crate::message::{Address, FlowState, Message};

/// How PDUs for one member leave this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where they go.
    pub dst: Address,
    /// Neighbours that they may be given to, in ascending order; never empty. Several have equal
    /// cost.
    pub next: Vec<Address>,
    /// Neighbours to give them to when all of `next` are gone, best first. None of them sends the
    /// PDU back here when one link has failed; see docs/explanation/routing.md for the failure of a
    /// member.
    pub alternates: Vec<Address>,
    /// Cost of the way; 0 when the policy knows of no cost.
    pub cost: u64,
}

/// What has changed in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Routes that are new or different, by address.
    pub changed: Vec<Route>,
    /// Members that cannot be reached any more.
    pub removed: Vec<Address>,
}

/// What a policy shows to people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// All objects, tombstones included.
    pub links: Vec<FlowState>,
    /// Counters by name: messages, objects by fate, computations.
    pub counters: Vec<(&'static str, u64)>,
}

/// A routing policy of one member. The time never goes back.
///
/// After each `handle_*`, drain [`poll_message`](Routing::poll_message) and
/// [`poll_routes`](Routing::poll_routes) and read [`poll_timeout`](Routing::poll_timeout) again.
pub trait Routing: Send {
    /// This member's address and name. Called before anything else; later on when the address
    /// changes, which withdraws what was reported under the old one.
    fn set_own(&mut self, now: Instant, address: Address, name: &str);

    /// There is a link to this neighbour, or its cost has changed. Several N-1 flows to one
    /// neighbour are one link. A cost of 0 counts as 1.
    fn handle_link_up(&mut self, now: Instant, neighbour: Address, cost: u32);

    /// The link to this neighbour is gone.
    fn handle_link_down(&mut self, now: Instant, neighbour: Address);

    /// A message of a neighbour.
    fn handle_message(&mut self, now: Instant, from: Address, message: Message);

    /// Withdraws everything that this member reports; it is about to leave the DIF. Drain
    /// `poll_message` and send before the N-1 flows go.
    fn handle_leave(&mut self, now: Instant);

    /// To be called at the time that `poll_timeout` gave, or later.
    fn handle_timeout(&mut self, now: Instant);

    /// When `handle_timeout` is due; may lie in the past. May change after every `handle_*`.
    #[must_use]
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next message, and the neighbour that it is for; neighbours take turns. Objects are
    /// batched, and what is not taken yet is replaced by newer versions.
    #[must_use]
    fn poll_message(&mut self, now: Instant) -> Option<(Address, Message)>;

    /// What has changed in the table since the last call; `None` when nothing has.
    #[must_use]
    fn poll_routes(&mut self) -> Option<Delta>;

    /// The whole table by destination. It holds no route to this member itself.
    fn table(&self) -> &BTreeMap<Address, Route>;

    /// Changes parameters while the DIF runs; those not named return to their defaults.
    ///
    /// # Errors
    /// An unknown parameter or an invalid value; then nothing has changed.
    fn set_params(
        &mut self,
        now: Instant,
        params: &BTreeMap<String, String>,
    ) -> Result<(), RoutingError>;

    /// What people may want to see.
    fn show(&self, now: Instant) -> State;
}

/// Brings `table` to `wanted`, noting what changes.
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

/// Destinations whose routes have changed since the last [`Routing::poll_routes`].
pub(crate) type PendingDelta = alloc::collections::BTreeSet<Address>;

/// The answer of [`Routing::poll_routes`].
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
