//! Running nodes that arrive from another host.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Instant;

use carina_vnet::host_part::{HostPart, NodePart, NodeState};
use carina_vnet::message::{MoveState, ReceiveNode};

use super::{Vnet, lock};
use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::guest_wire::with_disk::take_both;
use crate::guest_wire::{self, GuestWire, Offer, Reply, Sent};
use crate::making::{make_ends, remove_named, rename};
use crate::names::end_of;
use crate::node::{Arrival, ArrivalNote, Node, Site, arrival_notes, forget_arrival, stay};
use crate::port_selection::both_ports;
use crate::progress::Progress;
use crate::steps::Steps;
use carina_vnet::host_part::LinkEnd;

/// A node that another host is to send here, and whose machine has not arrived yet.
#[derive(Debug)]
pub(super) struct Awaited {
    node: String,
    from: String,
    /// The part of this host with the node; its uid is the one in this host's names.
    part: Arc<HostPart>,
    arrival: Option<Arrival>,
    /// When the guest was paused on both hosts, and how long it had been paused by then, µs.
    stood: Option<(Instant, u64)>,
}

impl Vnet {
    /// Prepares to receive a node from another host. `part` has the uid in this host's names.
    pub(crate) fn await_node(&self, order: &ReceiveNode, part: HostPart) {
        let mut all = lock(&self.arrivals);
        if all.contains_key(&order.number) {
            return;
        }
        let awaited = Awaited {
            node: order.node.clone(),
            from: order.from.clone(),
            part: Arc::new(part),
            arrival: None,
            stood: None,
        };
        all.insert(order.number, awaited);
        drop(all);
        self.progress.tell(format!(
            "node {} arrives from host {}",
            order.node, order.from
        ));
        self.progress
            .set_move(order.number, Some(MoveState::Awaited {}));
    }

    /// Receives a node over a connection. If that fails, the sender gets the reason.
    ///
    /// # Errors
    /// The node is not awaited, or does not arrive.
    pub(crate) fn receive_node(
        &self,
        from: &str,
        offer: &Offer,
        wire: &mut GuestWire,
    ) -> Result<()> {
        let taken = self.try_receive(from, offer, wire);
        if let Err(error) = &taken {
            // The sender may have closed the connection.
            let _ = guest_wire::write(wire, &Reply::Refused(error.to_string()));
        }
        taken
    }

    fn try_receive(&self, from: &str, offer: &Offer, wire: &mut GuestWire) -> Result<()> {
        let number = offer.number;
        let is_awaited = lock(&self.arrivals).get(&number).is_some_and(|candidate| {
            candidate.from == from
                && candidate.node == offer.node
                && candidate.arrival.is_none()
                && candidate.stood.is_none()
        });
        if !is_awaited {
            return Err(Error::NotAwaited(offer.node.chars().take(64).collect()));
        }
        let done = self.receive_guest(offer, wire);
        if let Err(error) = &done {
            let reason = error.to_string();
            lock(&self.arrivals).remove(&number);
            self.progress
                .tell(format!("node {} does not arrive: {error}", offer.node));
            let state = MoveState::Failed { reason };
            self.progress.set_move(number, Some(state));
        }
        done
    }

    fn receive_guest(&self, offer: &Offer, wire: &mut GuestWire) -> Result<()> {
        let what = || format!("receiving node {}", offer.node);
        let mut arrival = self.prepare_arrival(offer)?;
        let taken = self.take_guest(&mut arrival, wire, &what());
        let sent = match taken {
            Ok(sent) => sent,
            Err(error) => {
                let part = lock(&self.part);
                self.lead_back(&part);
                let _ = arrival.give_up(&self.dir, &part);
                return Err(error);
            }
        };
        let mut all = lock(&self.arrivals);
        let Some(awaited) = all.get_mut(&offer.number) else {
            drop(all);
            let part = lock(&self.part);
            self.lead_back(&part);
            arrival.give_up(&self.dir, &part)?;
            return Err(Error::NotAwaited(offer.node.clone()));
        };
        awaited.arrival = Some(arrival);
        awaited.stood = Some((Instant::now(), sent.paused_us));
        drop(all);
        let state = MoveState::Arrived {};
        self.progress.set_move(offer.number, Some(state));
        // The provider learns this from this host's report, even if the sender does not get the
        // reply.
        let _ = guest_wire::write(wire, &Reply::Ready);
        Ok(())
    }

    fn prepare_arrival(&self, offer: &Offer) -> Result<Arrival> {
        // Locked until the arrival is prepared, so that no change interferes.
        let now = lock(&self.part);
        let part = lock(&self.arrivals)
            .get(&offer.number)
            .map(|state| Arc::clone(&state.part));
        let part = part.ok_or_else(|| Error::NotAwaited(offer.node.clone()))?;
        let wanted = part
            .node(&offer.node)
            .ok_or_else(|| self.no_node(&offer.node))?;
        if lock(&self.nodes).contains_key(&offer.node) {
            return Err(Error::NotAwaited(offer.node.clone()));
        }
        self.progress.check()?;
        let ends = ends_of(&part, wanted);
        // An end of the link that stays here may use either of its two names.
        let second = lock(&self.second).with_others(&ends);
        let note = ArrivalNote {
            node: offer.node.clone(),
            number: offer.number,
            generation: part.generation,
            ports: ends.iter().map(|end| second.port(*end)).collect(),
            cards: offer.cards.clone(),
            has_all: false,
            has_disk: offer.disk.is_some(),
        };
        let site = Site {
            whole: &part,
            ports: &second,
            dir: &self.dir,
            images: &self.images,
        };
        let arrival = Arrival::prepare(&site, wanted, offer, note)?;
        // The engine already opens the new ports, because that takes a while.
        let opened = self.prepare_coming(&now, &part, &offer.node, &second);
        match opened.and_then(|()| self.progress.check()) {
            Ok(()) => Ok(arrival),
            Err(error) => {
                self.lead_back(&now);
                arrival.give_up(&self.dir, &now)?;
                Err(error)
            }
        }
    }

    fn take_guest(&self, arrival: &mut Arrival, wire: &mut GuestWire, what: &str) -> Result<Sent> {
        let mut qemu = arrival.begin()?;
        let disk = arrival.note().has_disk.then(|| arrival.begin_disk());
        let disk = disk.transpose()?;
        guest_wire::write(wire, &Reply::Ready).attempt(what)?;
        match disk {
            Some(disk) => take_both(wire, &qemu, &disk).attempt(what)?,
            None => {
                let taken = guest_wire::take_pieces(wire, &mut qemu);
                let ended = taken.and_then(|()| qemu.shutdown(Shutdown::Write));
                ended.attempt(what)?;
            }
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.lead_to(arrival.note()));
            arrival.wait()
        })?;
        let sent = guest_wire::read(wire).attempt(what)?;
        arrival.complete(&self.dir)?;
        self.progress.check()?;
        Ok(sent)
    }

    /// Makes the links of a node that has arrived lead to it. If that fails, the next part does it.
    fn lead_to(&self, note: &ArrivalNote) {
        let awaited = lock(&self.arrivals);
        let part = awaited
            .get(&note.number)
            .map(|state| Arc::clone(&state.part));
        drop(awaited);
        let Some((part, wanted)) = part
            .as_ref()
            .and_then(|part| Some((part, part.node(&note.node)?)))
        else {
            return;
        };
        let ends = ends_of(part, wanted).into_iter().zip(&note.ports);
        let came: Vec<(LinkEnd, bool)> = ends
            .map(|(end, port)| (end, both_ports(end)[1] == *port))
            .collect();
        if let Err(error) = self.lead_to_arrived(part, &note.node, &came) {
            self.progress.tell(format!(
                "links of node {} are redirected late: {error}",
                note.node
            ));
        }
    }

    /// Resumes nodes that have arrived and that `part` contains, and adds them to `current`. Gives
    /// up arrivals that `part` has made obsolete.
    pub(super) fn admit_arrivals(&self, current: &mut HostPart, part: &HostPart) -> Result<()> {
        let mut all = lock(&self.arrivals);
        let over: Vec<u64> = all
            .iter()
            .filter(|(_, arrival)| arrival.part.generation < part.generation)
            .map(|(number, _)| *number)
            .collect();
        let over: Vec<(u64, Awaited)> = over
            .into_iter()
            .filter_map(|number| Some((number, all.remove(&number)?)))
            .collect();
        drop(all);
        for (number, awaited) in over {
            let Some(arrival) = awaited.arrival else {
                self.progress.set_move(number, None);
                continue;
            };
            let wanted = part.node(&awaited.node);
            let is_next = awaited.part.generation + 1 == part.generation;
            let Some(wanted) = wanted.filter(|_| is_next && arrival.note().has_all) else {
                arrival.give_up(&self.dir, part)?;
                self.progress.set_move(number, None);
                continue;
            };
            if let Err(error) = self.admit(current, part, wanted, arrival) {
                self.progress
                    .tell(format!("node {} is recreated: {error}", awaited.node));
                forget_arrival(&self.dir, &awaited.node)?;
                self.progress.set_move(number, None);
                continue;
            }
            let paused_us = awaited.stood.map(|(since, before)| {
                let here = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                before.saturating_add(here)
            });
            let state = MoveState::Runs { paused_us };
            self.progress.set_move(number, Some(state));
        }
        Ok(())
    }

    fn admit(
        &self,
        current: &mut HostPart,
        part: &HostPart,
        wanted: &NodePart,
        arrival: Arrival,
    ) -> Result<()> {
        arrival.resume()?;
        let name = &wanted.name;
        let ports = arrival.note().ports.clone();
        let node = Node::arrived(&self.dir, wanted, arrival)?;
        for (end, port) in ends_of(part, wanted).into_iter().zip(ports) {
            lock(&self.came).insert(end, both_ports(end)[1] == port);
        }
        lock(&self.nodes).insert(name.clone(), Arc::new(node));
        current.nodes.push(wanted.clone());
        if let Err(error) = self.note_founder(part, wanted) {
            self.progress.tell(error.to_string());
        }
        self.progress
            .node(name, |report| report.state = NodeState::Up);
        self.progress
            .tell(format!("node {name} has arrived, and runs here"));
        Ok(())
    }

    /// Gives up a node that was awaited in a move, unless it runs here.
    pub(super) fn await_no_longer(&self, part: &HostPart, number: u64) -> Result<()> {
        let awaited = lock(&self.arrivals).remove(&number);
        match awaited.and_then(|awaited| awaited.arrival) {
            Some(arrival) => {
                self.lead_back(part);
                arrival.give_up(&self.dir, part)
            }
            None => Ok(()),
        }
    }

    /// The nodes that have arrived and that `part`, as the next generation, resumes.
    pub(crate) fn arrived_for(&self, part: &HostPart) -> Vec<String> {
        let all = lock(&self.arrivals);
        let arrived = all.values().filter(|candidate| {
            let is_next = candidate.part.generation + 1 == part.generation;
            is_next
                && candidate
                    .arrival
                    .as_ref()
                    .is_some_and(|arrival| arrival.note().has_all)
        });
        arrived.map(|arrived| arrived.node.clone()).collect()
    }

    /// Whether a node has arrived with its ports in the current change, so that it already has its
    /// cards.
    pub(super) fn has_come(&self, part: &HostPart, node: &str) -> bool {
        let came = lock(&self.came);
        let ends = part.node(node).map(|node| ends_of(part, node));
        ends.is_some_and(|ends| ends.iter().any(|end| came.contains_key(end)))
    }

    /// The numbers of links that need ports; links of nodes that have arrived already have them.
    pub(super) fn without_ports(&self, links: &[u32]) -> Vec<u32> {
        let came = lock(&self.came);
        let has_ports = |link: u32| came.keys().any(|(of, _)| *of == link);
        let all = links.iter().copied();
        all.filter(|link| !has_ports(*link)).collect()
    }

    /// Renames the ports of ends that stay to their new sides, and makes ports for ends that come
    /// to this host without them. Returns the ports of ends that have moved to another host.
    ///
    /// The engine has all these ports open, and passes frames until it has the new graph.
    pub(super) fn repoint(&self, part: &HostPart, steps: &Steps) -> Result<Vec<String>> {
        let came = lock(&self.came).clone();
        let (mut names, mut made, mut unused) = (Vec::new(), Vec::new(), Vec::new());
        let mut second = lock(&self.second);
        for link in &steps.repointed {
            let [from, to] = link.side.map(|side| (link.number, side));
            let old = second.port(from);
            let mut of_gone = None;
            if link.goes {
                let gone = (link.number, 1 - from.1);
                of_gone = Some(second.port(gone));
                unused.extend(both_ports(gone));
                second.forget_end(gone);
            }
            if from != to {
                second.change_side(from, to);
                if of_gone.is_some_and(|port| port == second.port(to)) {
                    *second = second.with_others(&[to]);
                }
                names.push((old, second.port(to)));
            }
            let coming = (link.number, 1 - to.1);
            if link.comes && !came.contains_key(&coming) {
                made.push(coming);
            }
        }
        came.iter()
            .for_each(|(end, is_second)| second.set(*end, *is_second));
        drop(second);
        lock(&self.paths).repoint(steps.repointed.iter().map(|link| link.number));
        let (taken, unused): (Vec<String>, Vec<String>) = unused
            .into_iter()
            .partition(|port| names.iter().any(|(_, new)| new == port));
        // A change that failed may have left a port of this name.
        remove_named(part, &taken)?;
        rename(part, &names)?;
        make_ends(part, &made)?;
        Ok(unused)
    }
}

fn ends_of(part: &HostPart, node: &NodePart) -> Vec<LinkEnd> {
    let interfaces = node.interfaces.iter();
    interfaces
        .map(|interface| end_of(part, &node.name, interface))
        .collect()
}

/// The ports of arriving nodes, which do not belong to a link end yet.
pub(super) fn ports_of_arrivals(arrivals: &BTreeMap<u64, Awaited>) -> Vec<String> {
    let all = arrivals
        .values()
        .filter_map(|arrival| arrival.arrival.as_ref());
    all.flat_map(|arrival| arrival.note().ports.clone())
        .collect()
}

/// Handles nodes that were arriving when an agent was killed. A node that runs, or that the part
/// already contains, becomes an ordinary node. A node that has arrived completely and is paused is
/// awaited further. All others are removed.
///
/// # Errors
/// A QEMU cannot be ended, or a port cannot be removed.
pub(super) fn arrived(
    dir: &VnetDir,
    part: &HostPart,
    progress: &Progress,
) -> Result<BTreeMap<u64, Awaited>> {
    let mut all = BTreeMap::new();
    for note in arrival_notes(dir)? {
        let (number, node) = (note.number, note.node.clone());
        let (is_here, generation) = (part.node(&node).is_some(), note.generation);
        let Some(arrival) = Arrival::found(dir, part, note.clone())? else {
            if is_here {
                // The machine may already be at its final place, but paused.
                stay(dir, &node)?
            } else if note.has_disk && note.has_all && part.generation == generation {
                // If the provider has decided already, this is the only disk. `end_move` removes it
                // if the provider has given the move up.
                remove_named(part, &note.ports)?;
                let reason = "its QEMU has ended after it had arrived".to_owned();
                progress.set_move(number, Some(MoveState::Failed { reason }));
                continue;
            } else {
                remove_named(part, &note.ports)?;
                note.remove_disk(part)?;
            }
            forget_arrival(dir, &node)?;
            continue;
        };
        if note.has_all && is_here && part.generation == generation + 1 {
            arrival.leave_settled(dir)?;
            let state = MoveState::Runs { paused_us: None };
            progress.set_move(number, Some(state));
        } else if note.has_all && part.generation == generation {
            // The node resumes with the next part, which is assumed to be like this one.
            progress.set_move(number, Some(MoveState::Arrived {}));
            let awaited = Awaited {
                node,
                from: String::new(),
                part: Arc::new(part.clone()),
                arrival: Some(arrival),
                stood: None,
            };
            all.insert(number, awaited);
        } else {
            arrival.give_up(dir, part)?;
        }
    }
    for (_, number) in crate::node::away(dir)? {
        progress.set_move(number, Some(MoveState::Sending {}));
    }
    Ok(all)
}
