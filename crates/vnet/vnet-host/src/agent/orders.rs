//! Carries out orders of a provider, and reports to it.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use carina_apps::tunnel_mux::MuxCarrier;
use carina_vnet::document::Carrier;
use carina_vnet::host_part::{
    Far, HostLimits, HostPart, HostStatus, LinkPart, NodeState, RefusedChange, VnetId,
};
use carina_vnet::message::{FromAgent, ToAgent};

use super::network::{Again, Network, report_of_absent};
use super::{Agent, random_id};
use crate::admission_check::limits_of_this_host;
use crate::carrier::carrier_of;
use crate::directory::{Record, Requester, part_name};
use crate::error::{Attempt, Error, Result};
use crate::{admission_check, leftovers};
use carina_vnet::report::VnetReport;

/// What an agent remembers about orders in addition to its networks.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Parts that this host has refused.
    refused: Mutex<BTreeMap<VnetId, RefusedPart>>,
    /// The limits of this host, and when they were determined.
    limits: Mutex<Option<(Instant, HostLimits)>>,
    /// Names of networks that are being removed.
    leaving: Arc<Mutex<BTreeSet<String>>>,
    removals: Mutex<Vec<JoinHandle<()>>>,
}

/// A part that this host has refused, and the time of the next attempt, if any.
#[derive(Debug)]
struct RefusedPart {
    part: HostPart,
    status: HostStatus,
    /// The node that cannot be made, and the state that is reported for it.
    node: (String, NodeState),
    /// When to retry the part after a failure that may be temporary, because the host's resource
    /// was in use. The waiting time grows.
    again: Again,
}

impl RefusedPart {
    /// The report of this refusal, for a network of which an earlier part exists.
    fn change(&self) -> RefusedChange {
        let (node, state) = self.node.clone();
        RefusedChange {
            generation: self.part.generation,
            node,
            state,
        }
    }
}

impl Agent {
    /// Carries out an order of the provider. Making and removing continue on threads of their own;
    /// [`Agent::say`] reports their progress. The agent ignores an order that is older than the
    /// existing part or the latest removal. A part that exceeds this host's limits is not tried:
    /// its nodes are reported as failed, with the reason.
    ///
    /// # Errors
    /// The agent's own files cannot be written; the same order may succeed later.
    pub fn tell(&self, order: &ToAgent) -> Result<()> {
        let done = match order {
            ToAgent::Set(part) => self.set(part),
            ToAgent::Remove { vnet, through } => self.let_go(*vnet, *through),
            ToAgent::Receive(order) => self.await_node(order),
            ToAgent::Send(order) => self.send_node(order),
            ToAgent::EndMove { vnet, number } => self.end_move(*vnet, *number),
        };
        self.host.changes.add();
        done
    }

    /// The report for the provider: the parts that it has ordered, and recent removals. Networks of
    /// operators of this host are not included.
    #[must_use]
    pub fn say(&self) -> FromAgent {
        let networks: Vec<Arc<Network>> = self.lock().values().map(Arc::clone).collect();
        let made = networks
            .iter()
            .filter_map(|network| network.status_for_provider());
        let mut parts: Vec<HostStatus> = made.collect();
        for (vnet, refused) in &*lock(&self.orders.refused) {
            // The part of the earlier generation still exists, and is what is reported.
            match parts.iter_mut().find(|part| part.vnet == *vnet) {
                Some(status) => status.refused = Some(refused.change()),
                None => parts.push(refused.status.clone()),
            }
        }
        FromAgent {
            host: self.name.clone(),
            parts,
            removed: self.removed.all(),
            moves: networks
                .iter()
                .flat_map(|network| network.moves())
                .collect(),
            moves_at: self.moves.at(),
            limits: Some(self.limits()),
        }
    }

    /// Waits until [`Agent::say`] has changed since change number `seen`, at most for `wait`.
    /// Returns the number of the latest change.
    #[must_use]
    pub fn changed(&self, seen: u64, wait: Duration) -> u64 {
        self.host.changes.wait(seen, wait)
    }

    /// The limits of this host, determined at most a moment ago.
    fn limits(&self) -> HostLimits {
        let mut known = lock(&self.orders.limits);
        let fresh = known.take().filter(|(at, _)| at.elapsed() < LIMITS);
        let (at, limits) = fresh.unwrap_or_else(|| (Instant::now(), limits_of_this_host()));
        known.insert((at, limits)).1.clone()
    }

    /// Retries parts that could not be made, with growing waiting times.
    ///
    /// # Errors
    /// Those of [`Agent::tell`].
    pub fn try_refused_again(&self) -> Result<()> {
        let due: Vec<HostPart> = {
            let refused = lock(&self.orders.refused);
            let due = refused
                .values()
                .filter(|candidate| candidate.again.is_due());
            due.map(|due| due.part.clone()).collect()
        };
        due.iter().try_for_each(|part| self.set(part))
    }

    /// The report of a refused part, for callers that ask for its nodes.
    pub(super) fn report_of_refused(&self, name: &str) -> Option<VnetReport> {
        let refused = lock(&self.orders.refused);
        let mut refused = refused.iter();
        let found = refused.find(|(vnet, _)| part_name(**vnet) == name);
        found.map(|(_, refused)| report_of_absent(name, &refused.part, refused.status.clone()))
    }

    fn set(&self, part: &HostPart) -> Result<()> {
        let began = Instant::now();
        let (vnet, name) = (part.vnet, part_name(part.vnet));
        let mut networks = self.lock();
        let existing = networks.get(&name);
        let newest = existing.map(|network| network.generation());
        let is_late = Some(part.generation) <= newest.max(self.removed.through(vnet));
        // The provider repeats an order that comes too early.
        if is_late || lock(&self.orders.leaving).contains(&name) {
            return Ok(());
        }
        if let Some(network) = existing
            && self.removed.through(vnet) >= newest
        {
            // An earlier removal has failed; it is retried first.
            return self.begin_removal(name, Arc::clone(network));
        }
        let mut part = part.clone();
        let chosen = self.choose_for_provider(&mut part, existing, &networks, &name);
        let part = &part;
        if let Err(error) = chosen.and_then(|()| self.check(part, &networks)) {
            self.refuse(part, &error);
            return Ok(());
        }
        lock(&self.orders.refused).remove(&vnet);
        let own = match existing {
            Some(network) => network.record().vnet,
            None => random_id()?,
        };
        let record = Record {
            vnet: own,
            wanted: Requester::Provider { vnet },
            part: HostPart {
                vnet: own,
                ..part.clone()
            },
            is_settled: existing.is_some_and(|existing| existing.stays_settled(part)),
            until_ms: None,
        };
        match networks.entry(name) {
            Entry::Occupied(network) => network.get().change(record, began),
            Entry::Vacant(place) => {
                let dir = self.vnets.vnet(place.key());
                place.insert(self.begin(dir, record, began)?);
                Ok(())
            }
        }
    }

    fn refuse(&self, part: &HostPart, error: &Error) {
        let mut refused = lock(&self.orders.refused);
        let known = refused.remove(&part.vnet);
        let known = known.filter(|known| known.part.generation == part.generation);
        let mut again = known.map_or_else(Again::default, |known| known.again);
        again.later();
        let first = part.nodes.first().map(|node| node.name.as_str());
        let node = error.node().or(first).unwrap_or_default();
        let refusal = RefusedPart {
            part: part.clone(),
            status: refusal(part, error),
            node: (node.to_owned(), error.state()),
            again,
        };
        refused.insert(part.vnet, refusal);
    }

    /// Checks a part against this host's abilities, and that no other network uses the same
    /// tunnels.
    pub(super) fn check(
        &self,
        part: &HostPart,
        networks: &BTreeMap<String, Arc<Network>>,
    ) -> Result<()> {
        part.check()?;
        check_starts(part)?;
        admission_check::check(part)?;
        let mut tunnels = BTreeMap::new();
        let own = part_name(part.vnet);
        for (name, network) in networks.iter().filter(|(name, _)| **name != own) {
            let record = network.record();
            // Links without a carrier here were refused before.
            let keys = record
                .part
                .links
                .iter()
                .filter_map(|link| tunnel_of(link).ok()?);
            tunnels.extend(keys.map(|key| (key, name.clone())));
        }
        for link in &part.links {
            let Some(tunnel) = tunnel_of(link)? else {
                continue;
            };
            let Some(underlay) = &self.host.underlay else {
                return Err(Error::Unsupported {
                    what: format!("link {} to another host", link.number),
                    instead: crate::underlay::NEEDED,
                });
            };
            let (remote, gateway) = (tunnel.1, underlay.gateway);
            let is_behind = gateway.is_some_and(|gateway| gateway.next_hop(remote) != remote);
            if is_behind && link.carrier == Carrier::Dif {
                return Err(Error::Unsupported {
                    what: format!("link {} as a flow to {remote}", link.number),
                    instead: "the host is behind the gateway, which flows of the DIF cannot \
                         cross: use `ipip`, `gre` or `vxlan`",
                });
            }
            if let Some(other) = tunnels.insert(tunnel, own.clone()) {
                let link = link.number;
                return Err(Error::TunnelTaken { link, other });
            }
        }
        Ok(())
    }

    fn let_go(&self, vnet: VnetId, through: u64) -> Result<()> {
        let name = part_name(vnet);
        let network = self.lock().get(&name).map(Arc::clone);
        if network
            .as_ref()
            .is_some_and(|network| network.generation() > through)
        {
            return Ok(());
        }
        // If the agent is killed from here on, the next one carries out the removal.
        self.removed.note(vnet, through)?;
        let is_newer = |part: &RefusedPart| part.part.generation > through;
        lock(&self.orders.refused).retain(|of, refused| *of != vnet || is_newer(refused));
        match network {
            Some(network) => self.begin_removal(name, network),
            None => Ok(()),
        }
    }

    /// Removes a network on a thread of its own. If that fails, the network stays in the list, and
    /// the next order retries the removal.
    fn begin_removal(&self, name: String, network: Arc<Network>) -> Result<()> {
        if !lock(&self.orders.leaving).insert(name.clone()) {
            return Ok(());
        }
        let dir = self.vnets.vnet(&name);
        let networks = Arc::clone(&self.networks);
        let leaving = Arc::clone(&self.orders.leaving);
        let changes = Arc::clone(&self.host.changes);
        let left = name.clone();
        let removal = move || {
            network.leave_dif();
            network.stop();
            match leftovers::remove(&dir, &network.record()) {
                Ok(()) => drop(lock(&networks).remove(&name)),
                Err(error) => network.tell(format!("it cannot be removed: {error}")),
            }
            lock(&leaving).remove(&name);
            changes.add();
        };
        let thread = std::thread::Builder::new().name("vnet-removal".into());
        let begun = thread.spawn(removal).attempt("starting a thread");
        let begun = begun.inspect_err(|_| {
            lock(&self.orders.leaving).remove(&left);
        })?;
        let mut removals = lock(&self.orders.removals);
        removals.retain(|thread| !thread.is_finished());
        removals.push(begun);
        Ok(())
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        for removal in lock(&self.removals).drain(..) {
            // A thread that panicked has ended, too.
            let _ = removal.join();
        }
    }
}

/// What must be unique among the tunnels of a host: both addresses, the carrier, and the tag.
type TunnelKey = (Ipv4Addr, Ipv4Addr, (Option<MuxCarrier>, u32));

/// The tunnel or flow of a link to another host; `None` for other links.
///
/// # Errors
/// This host does not support the link's carrier.
fn tunnel_of(link: &LinkPart) -> Result<Option<TunnelKey>> {
    match &link.far {
        Far::Here(_) | Far::Users(_) | Far::Nic(_) => Ok(None),
        Far::Host(far) if link.carrier == Carrier::Dif => {
            Ok(Some((far.local, far.remote, (None, link.tag))))
        }
        Far::Host(far) => {
            let (carrier, tag) = carrier_of(link)?.tag(link);
            Ok(Some((far.local, far.remote, (Some(carrier), tag))))
        }
    }
}

/// The status of a part that is refused with this error.
fn refusal(part: &HostPart, error: &Error) -> HostStatus {
    let mut status = part.absent();
    for node in status.nodes.values_mut() {
        node.state = error.state();
    }
    status
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the value consistent, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long the limits of this host are cached.
const LIMITS: Duration = Duration::from_secs(2);
/// Refuses commands, variables and file systems in namespaces for providers' networks: a command
/// in a namespace has the root rights of this host. In machines, it stays within the machine.
fn check_starts(part: &HostPart) -> Result<()> {
    let enters = |node: &&carina_vnet::host_part::NodePart| {
        node.kind.has_namespace() && !node.start.is_empty()
    };
    match part.nodes.iter().find(enters) {
        None => Ok(()),
        Some(node) => Err(Error::Unsupported {
            what: format!(
                "node {}: exec, environment, files and filesystem in a namespace, which has the \
                 rights of its host",
                node.name
            ),
            instead: "providers give them to virtual machines only: kind = \"vm\"",
        }),
    }
}
