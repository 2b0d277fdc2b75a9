//! Messages on their way, which may be lost, delayed or duplicated.

use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::message::{FromVnp, ToAgent, ToPip};
use carina_vnet::{pip, vnp};

use super::super::Mutant;
use super::super::host::PlayedHost;
use super::super::scenario::MARK;
use super::{Broken, Event, Packet, Who, World};

impl World<'_> {
    /// Sends the messages of a process, unless it has died at a write.
    pub(super) fn flush(&mut self, now: Instant, who: Who) -> Result<(), Broken> {
        let trouble = self.trouble_of(who);
        if trouble.is_some_and(|trouble| trouble.borrow().is_dead) {
            if self.is_running(who) {
                self.die(now, who);
            }
            return Ok(());
        }
        let (packets, next) = match who {
            Who::Pip(pip, process) => self.sent_by_pip(pip, process)?,
            Who::Vnp(number, process) => self.sent_by_vnp(number, process)?,
            Who::Vno(number) => self.sent_by_vno(number),
            Who::Host(_) => (Vec::new(), Instant::MAX),
        };
        for (to, packet) in packets {
            self.send(who, to, packet);
        }
        self.set_timer(now, who, next);
        Ok(())
    }

    fn sent_by_pip(&mut self, pip: usize, process: usize) -> Result<Sent, Broken> {
        let mut packets = Vec::new();
        let slot = Rc::clone(&self.pips[pip][process]);
        let mut machine = slot.machine.borrow_mut();
        let Some(machine) = machine.as_mut() else {
            return Ok((packets, Instant::MAX));
        };
        while let Some(output) = machine.poll_transmit() {
            packets.push(match output {
                pip::Output::ToVnp { vnp, message } => {
                    let names = self.scenario.vnps.iter().map(|(name, ..)| name);
                    let to = place_of("VNP", names, &vnp)?;
                    (self.one_of_vnp(to), Packet::FromPip(pip, message))
                }
                pip::Output::ToAgent { message, .. } if self.is_left_out(pip, &message) => continue,
                pip::Output::ToAgent { host, message } => {
                    let Some(place) = self.places.get(&host) else {
                        return Err(Broken(format!(
                            "a message is for host {host}, which is not there"
                        )));
                    };
                    (Who::Host(*place), Packet::ToHost(message))
                }
            });
        }
        match machine.excess().into_iter().next() {
            Some(what) => Err(Broken(what)),
            None => Ok((packets, machine.poll_timeout())),
        }
    }

    /// Whether a mutant suppresses this order.
    fn is_left_out(&self, pip: usize, message: &ToAgent) -> bool {
        let ToAgent::Remove { vnet, .. } = message else {
            return false;
        };
        let key = format!("pip/{}/made/{vnet}", self.scenario.pips[pip].0);
        self.scenario.shares.mutant == Some(Mutant::StraysStay)
            && !self.pip_stores[pip].borrow().has(&key)
    }

    fn sent_by_vnp(&mut self, number: usize, process: usize) -> Result<Sent, Broken> {
        let mut packets = Vec::new();
        let now = self.now();
        let is_calm = now > self.scenario.trouble_ends + SETTLES;
        let slot = Rc::clone(&self.vnps[number][process]);
        let mut machine = slot.machine.borrow_mut();
        let Some(machine) = machine.as_mut() else {
            return Ok((packets, Instant::MAX));
        };
        while let Some(output) = machine.poll_transmit() {
            packets.push(match output {
                vnp::Output::ToPip { pip, message } => {
                    if let ToPip::Reserve { key, part } = &message {
                        for node_part in &part.nodes {
                            let node = (key.vnet, key.round, node_part.node.name.clone());
                            self.nics.insert(node, u64::from(node_part.nics));
                        }
                    }
                    let names = self.scenario.pips.iter().map(|(name, ..)| name);
                    let to = place_of("PIP", names, &pip)?;
                    let process = self.random.index(self.pips[to].len());
                    (Who::Pip(to, process), Packet::ToPip(number, message))
                }
                vnp::Output::ToVno { vno, message } => {
                    no_rest(&self.hosts, &message)?;
                    no_leak(&message)?;
                    no_gap(&message)?;
                    self.answered.check(now, &message, is_calm)?;
                    let names = self.operators.iter().map(|(name, _)| name);
                    let to = Who::Vno(place_of("VNO", names, &vno)?);
                    (to, Packet::FromVnp(message))
                }
            });
        }
        Ok((packets, machine.poll_timeout()))
    }

    fn sent_by_vno(&mut self, number: usize) -> Sent {
        let mut packets = Vec::new();
        let slot = Rc::clone(&self.vnos[number]);
        let mut machine = slot.machine.borrow_mut();
        let Some(machine) = machine.as_mut() else {
            return (packets, Instant::MAX);
        };
        while let Some(message) = machine.poll_transmit() {
            self.answered.asked(&message);
            let to = self.one_of_vnp(self.operators[number].1);
            packets.push((to, Packet::ToVnp(number, message)));
        }
        (packets, machine.poll_timeout())
    }

    /// A process of a VNP that handles a message to the VNP.
    fn one_of_vnp(&mut self, number: usize) -> Who {
        let processes = self.vnps[number].len();
        let process = if self.is_troubled() {
            self.random.index(processes)
        } else {
            0
        };
        Who::Vnp(number, process)
    }

    fn set_timer(&mut self, now: Instant, who: Who, at: Instant) {
        let slot = match who {
            Who::Pip(pip, process) => &self.pips[pip][process].timer_at,
            Who::Vnp(number, process) => &self.vnps[number][process].timer_at,
            Who::Vno(number) => &self.vnos[number].timer_at,
            Who::Host(_) => return,
        };
        // A timer that is due at once waits for a moment, as in a real process.
        let at = at.max(now + Duration::from_micros(100));
        if at < slot.get() && at < Instant::MAX {
            slot.set(at);
            self.queue.put(at.as_nanos(), Event::Timer(who));
        }
    }

    pub(super) fn send(&mut self, from: Who, to: Who, packet: Packet) {
        self.outcome.messages += 1;
        self.note(|| format!("-> {to:?} {packet:?}"));
        if self.is_cut(from, to) {
            self.note(|| "   cut".to_owned());
            return;
        }
        let is_troubled = self.is_troubled();
        if is_troubled && self.random.chance(self.scenario.lost) {
            self.note(|| "   lost".to_owned());
            return;
        }
        let is_doubled = is_troubled && self.random.chance(self.scenario.doubled);
        let double = is_doubled.then(|| packet.clone());
        for packet in double.into_iter().chain([packet]) {
            let mut delay =
                Duration::from_nanos(self.random.below(self.scenario.delay_max.as_nanos()));
            if is_troubled && self.random.chance(300) {
                delay = delay * 20;
            }
            let mut at = self.now() + delay;
            if let (false, Packet::FromHost(report)) = (is_troubled, &packet) {
                // Over an intact connection, messages arrive in the order of sending.
                let heard = self.heard_at.entry((to, report.host));
                let heard = heard.or_insert(at);
                at = at.max(*heard);
                *heard = at;
            }
            self.queue.put(at.as_nanos(), Event::Deliver(to, packet));
        }
    }
}

/// Time after the last fault in which networks may still become ready and then change again.
const SETTLES: Duration = Duration::from_secs(100);

/// Messages of a process, and the time at which it wants to be called again.
type Sent = (Vec<(Who, Packet)>, Instant);

fn place_of<'a>(
    what: &str,
    mut names: impl Iterator<Item = &'a String>,
    name: &str,
) -> Result<usize, Broken> {
    let place = names.position(|candidate| candidate == name);
    place.ok_or_else(|| {
        Broken(format!(
            "a message is for {what} {name}, which is not there"
        ))
    })
}

/// Checks that no host has a part of a network that is reported removed.
fn no_rest(hosts: &[PlayedHost], message: &FromVnp) -> Result<(), Broken> {
    let FromVnp::Removed { vnet } = message else {
        return Ok(());
    };
    let mut hosts = hosts.iter();
    match hosts.find(|host| host.parts.contains_key(vnet)) {
        Some(host) => Err(Broken(format!(
            "{vnet} is said to be removed, and {} has it",
            host.name
        ))),
        None => Ok(()),
    }
}

/// Checks that a network that is reported ready fulfils all conditions.
fn no_gap(message: &FromVnp) -> Result<(), Broken> {
    let FromVnp::Standing { standing, .. } = message else {
        return Ok(());
    };
    if standing.is_ready() && standing.holds.len() < CONDITIONS {
        Err(Broken(format!("ready without the rest: {standing:?}")))
    } else {
        Ok(())
    }
}

/// Number of variants of [`carina_vnet::message::Condition`].
const CONDITIONS: usize = 6;

/// Checks that an answer to an operator contains no name of the substrate.
fn no_leak(message: &FromVnp) -> Result<(), Broken> {
    let text = serde_json::to_string(message).map_err(|error| Broken(error.to_string()))?;
    match [MARK, "172."].iter().find(|mark| text.contains(**mark)) {
        Some(mark) => Err(Broken(format!("an operator reads `{mark}`: {text}"))),
        None => Ok(()),
    }
}
