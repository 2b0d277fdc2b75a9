//! Drained hosts: their nodes move away, or stay with a reason, and no other nodes arrive.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::host_part::VnetId;
use carina_vnet::message::ReasonCode;
use carina_vnet::pip::Pip;

use super::super::timing;
use super::super::unsteady_store::{Shares, Trouble, UnsteadyStore};
use super::{Broken, Event, Who, World};

/// The drained hosts.
#[derive(Debug, Default)]
pub(super) struct Drains {
    hosts: BTreeMap<usize, Drain>,
    /// Hosts that a provider has drained or will drain, and that should be drained now.
    meant: BTreeSet<usize>,
    /// For each provider, a process that only reads what the provider's other processes have
    /// promised.
    readers: BTreeMap<usize, Pip<UnsteadyStore>>,
}

/// A host that its provider has recorded as drained.
#[derive(Debug)]
struct Drain {
    /// Nodes that were on the host, or about to arrive, and have not left since.
    nodes: BTreeSet<(VnetId, String)>,
    /// Time until which nodes leave the host.
    leaves_until: Instant,
}

impl World<'_> {
    /// Drains a random host. A few hosts stay drained until the end; others may take nodes again
    /// after some time.
    pub(super) fn drain_one(&mut self, now: Instant) {
        let every = self.scenario.upsets.map(|upsets| upsets.drain_every);
        let Some(every) = every.filter(|_| self.is_troubled()) else {
            return;
        };
        self.again(now, every, Event::Drain);
        let host = self.upsets.index(self.hosts.len());
        if !self.drains.meant.insert(host) {
            return;
        }
        self.queue
            .put(now.as_nanos(), Event::SetDrained(host, true));
        if !self.upsets.chance(REMAIN) {
            let over = now + Duration::from_millis(self.upsets.within(1000, 60_000));
            self.queue
                .put(over.as_nanos(), Event::SetDrained(host, false));
        }
    }

    /// Lets a process of a provider record that a host is drained or no longer drained. Repeats the
    /// attempt if it fails.
    pub(super) fn set_drained(
        &mut self,
        now: Instant,
        host: usize,
        is_drained: bool,
    ) -> Result<(), Broken> {
        if !is_drained {
            self.drains.hosts.remove(&host);
            self.drains.meant.remove(&host);
        } else if !self.drains.meant.contains(&host) {
            // The drain was already ended.
            return Ok(());
        }
        let pip = self.host_of[host];
        let process = self.upsets.index(self.pips[pip].len());
        let answer = {
            let process = Rc::clone(&self.pips[pip][process]);
            let mut machine = process.machine.borrow_mut();
            let name = &self.hosts[host].name;
            machine
                .as_mut()
                .map(|machine| machine.set_drained(now, name, is_drained))
        };
        self.note(|| format!("host {host} is drained {is_drained}: {answer:?}"));
        match answer {
            Some(Ok(_)) if is_drained => self.begin_drain(now, host)?,
            Some(Ok(_)) => {}
            Some(Err(reason)) if reason.code == ReasonCode::Impossible => {
                let name = &self.hosts[host].name;
                return Err(Broken(format!("{name} cannot be drained: {reason:?}")));
            }
            _ => {
                let again = now + Duration::from_secs(1);
                self.queue
                    .put(again.as_nanos(), Event::SetDrained(host, is_drained));
            }
        }
        self.flush(now, Who::Pip(pip, process))
    }

    fn begin_drain(&mut self, now: Instant, host: usize) -> Result<(), Broken> {
        self.outcome.drained += 1;
        let drain = Drain {
            nodes: self.promised_at(now, host)?,
            leaves_until: now + LEAVES,
        };
        self.drains.hosts.insert(host, drain);
        self.queue.put(now.as_nanos(), Event::Leave(host));
        Ok(())
    }

    /// Moves the nodes of a drained host away. A node that cannot move needs a reason. Checks that
    /// no node has arrived.
    pub(super) fn leave(&mut self, now: Instant, host: usize) -> Result<(), Broken> {
        self.check_drained(now, host)?;
        let Some(drain) = self.drains.hosts.get(&host) else {
            return Ok(());
        };
        let leaves = self.is_troubled() && now < drain.leaves_until;
        let again = if leaves { LEAVES_AGAIN } else { CHECKS_AGAIN };
        self.queue.put((now + again).as_nanos(), Event::Leave(host));
        if !leaves || drain.nodes.is_empty() {
            return Ok(());
        }
        let pip = self.host_of[host];
        let process = self.upsets.index(self.pips[pip].len());
        let done = self.move_away(now, host, process);
        self.flush(now, Who::Pip(pip, process)).and(done)
    }

    fn move_away(&mut self, now: Instant, host: usize, process: usize) -> Result<(), Broken> {
        let process = Rc::clone(&self.pips[self.host_of[host]][process]);
        let mut machine = process.machine.borrow_mut();
        let Some(machine) = machine.as_mut() else {
            return Ok(());
        };
        let name = self.hosts[host].name.clone();
        for away in machine.nodes_away(now, &name) {
            let (vnet, node) = (away.vnet.to_string(), away.node);
            let begun = match &away.to {
                Ok(ways) => {
                    let Some(to) = ways.iter().find(|to| **to != name) else {
                        return Err(Broken(format!(
                            "{node} of {vnet} leaves {name} for {ways:?}"
                        )));
                    };
                    let number = self.upsets.next_u64();
                    let limit = Duration::from_secs(self.upsets.within(1, 20));
                    let begun = machine.begin_move(now, [&vnet, &node, to], number, limit);
                    format!("to {to}: {begun:?}")
                }
                Err(reason) if reason.message.is_empty() => {
                    let what = format!("{node} of {vnet} stays on {name} without a reason");
                    return Err(Broken(what));
                }
                Err(reason) => format!("stays: {reason:?}"),
            };
            self.note(|| format!("node {node} of {vnet} leaves {name} {begun}"));
        }
        Ok(())
    }

    /// Checks that no place on a host was promised while it was drained.
    fn check_drained(&mut self, now: Instant, host: usize) -> Result<(), Broken> {
        if !self.drains.hosts.contains_key(&host) {
            return Ok(());
        }
        let promised = self.promised_at(now, host)?;
        let Some(drain) = self.drains.hosts.get_mut(&host) else {
            return Ok(());
        };
        if let Some((vnet, node)) = promised.difference(&drain.nodes).next() {
            let name = &self.hosts[host].name;
            let what = format!("{name} is drained, and node {node} of {vnet} came there");
            return Err(Broken(what));
        }
        drain.nodes = promised;
        Ok(())
    }

    /// Checks, when there have been no faults for a while, that drained hosts only have nodes that
    /// stayed.
    pub(super) fn check_all_drained(&mut self, now: Instant) -> Result<(), Broken> {
        let hosts: Vec<usize> = self.drains.hosts.keys().copied().collect();
        for host in hosts {
            self.check_drained(now, host)?;
            let Some(drain) = self.drains.hosts.get(&host) else {
                continue;
            };
            let played = &self.hosts[host];
            let parts = played.parts.iter();
            let mut nodes = parts.flat_map(|(vnet, (part, _))| {
                part.nodes.iter().map(|node| (*vnet, node.name.clone()))
            });
            let is_new = |string: &(VnetId, String)| !drain.nodes.contains(string);
            if let Some((vnet, node)) = nodes.find(is_new) {
                let name = &played.name;
                let what = format!("{name} is drained, and has node {node} of {vnet}");
                return Err(Broken(what));
            }
        }
        Ok(())
    }

    /// Whether a key of a provider's store records a host as drained, and rightly so.
    pub(super) fn is_drained_key(&self, key: &str) -> bool {
        let drained = self.drains.meant.iter();
        let mut names = drained.map(|host| &self.hosts[*host].name);
        names.any(|name| key.ends_with(&format!("/drained/{name}")))
    }

    /// The nodes to which a provider has promised a place on a host, according to its store.
    fn promised_at(
        &mut self,
        now: Instant,
        host: usize,
    ) -> Result<BTreeSet<(VnetId, String)>, Broken> {
        let pip = self.host_of[host];
        let name = &self.hosts[host].name;
        let reader = self.drains.readers.entry(pip).or_insert_with(|| {
            let trouble = Trouble::new(Shares::default(), Random::new(0));
            let trouble = Rc::new(RefCell::new(trouble));
            let store = Rc::clone(&self.pip_stores[pip]);
            let store = UnsteadyStore::new(store, trouble, Vec::new());
            let (name, inventory, _) = &self.scenario.pips[pip];
            let reader = Pip::new(name, inventory.clone(), store, timing(None));
            reader.expect("the scenario's inventory is sound")
        });
        let nodes = reader.nodes_at(now, name);
        nodes.map_err(|error| Broken(format!("the nodes at {name}: {error}")))
    }
}

/// Share of drained hosts, in 1/10000, that stay drained.
const REMAIN: u32 = 3000;
/// How long nodes leave a host, and the interval between attempts.
const LEAVES: Duration = Duration::from_secs(10);
const LEAVES_AGAIN: Duration = Duration::from_secs(2);
/// Interval at which the arrival of nodes on a drained host is checked.
const CHECKS_AGAIN: Duration = Duration::from_secs(10);
