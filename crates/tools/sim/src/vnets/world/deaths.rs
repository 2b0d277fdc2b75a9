//! Faults of processes and hosts, and the end of all faults.

use carina_time::{Duration, Instant};
use carina_vnet::host_part::{HostPart, VnetId};

use super::super::host::Death;
use super::{Event, Who, World};

impl World<'_> {
    /// Ends all faults.
    pub(super) fn calm(&mut self) {
        self.note(|| "all is calm from now on".to_owned());
        let pips = self.pips.iter().flatten().map(|pip| &pip.trouble);
        let vnps = self.vnps.iter().flatten().map(|vnp| &vnp.trouble);
        let vnos = self.vnos.iter().map(|vno| &vno.trouble);
        for trouble in pips.chain(vnps).chain(vnos) {
            trouble.borrow_mut().end();
        }
        for host in &mut self.hosts {
            host.dies_at_order = None;
        }
        if let Some(lost) = self.scenario.lost_vnp {
            self.note(|| format!("VNP {lost} is lost"));
        }
        for (number, processes) in self.vnps.iter().enumerate() {
            for (process, it) in processes.iter().enumerate() {
                if self.is_lost(Who::Vnp(number, process)) {
                    it.end();
                }
            }
        }
    }

    /// Whether a process does not restart: all processes of a lost VNP, and any other than the
    /// first process of a VNP.
    pub(super) fn is_lost(&self, who: Who) -> bool {
        match who {
            _ if self.is_troubled() => false,
            Who::Vnp(number, process) => process > 0 || self.is_vnp_lost(number),
            _ => false,
        }
    }

    /// Whether a VNP is lost, with its store.
    pub(super) fn is_vnp_lost(&self, number: usize) -> bool {
        !self.is_troubled() && self.scenario.lost_vnp == Some(number)
    }

    /// Kills a random process, machine or host: at once, at one of its next writes, or at its next
    /// order.
    pub(super) fn kill_one(&mut self, now: Instant) {
        if !self.is_troubled() {
            return;
        }
        let every = self.scenario.death_every.as_nanos();
        let next = now + Duration::from_nanos(self.random.within(every / 2, every * 2));
        self.queue.put(next.as_nanos(), Event::Death);
        let pips = self.pips.iter().enumerate();
        let pips =
            pips.flat_map(|(pip, all)| (0..all.len()).map(move |index| Who::Pip(pip, index)));
        let mut all: Vec<Who> = pips.collect();
        let vnps = self.vnps.iter().enumerate();
        let vnps =
            vnps.flat_map(|(vnp, all)| (0..all.len()).map(move |index| Who::Vnp(vnp, index)));
        all.extend(vnps);
        all.extend((0..self.vnos.len()).map(Who::Vno));
        all.extend((0..self.hosts.len()).map(Who::Host));
        let who = *self.random.pick(&all);
        let at_a_write = self.random.chance(7000);
        match (self.trouble_of(who), who) {
            (Some(trouble), _) if at_a_write => {
                trouble.borrow_mut().die_soon();
            }
            (None, Who::Host(host)) if at_a_write => self.harm(now, host),
            _ => self.die(now, who),
        }
    }

    /// Makes the agent of a host die at its next order, or a machine of the host die at once.
    fn harm(&mut self, now: Instant, host: usize) {
        let deaths = [Death::Before, Death::After];
        if self.random.chance(5000) {
            self.hosts[host].dies_at_order = Some(*self.random.pick(&deaths))
        } else {
            self.outcome.deaths += 1;
            self.note(|| format!("a machine of host {host} ends"));
            let again = now + Duration::from_millis(self.random.within(100, 10_000));
            let random = &mut self.random;
            self.hosts[host].end_machine(again, |count| random.index(count));
            self.changes[host] += 1;
            self.queue.put(now.as_nanos(), Event::Report(host, false));
            self.queue.put(again.as_nanos(), Event::Report(host, false));
        }
    }

    /// Gives a host a part of an old network that its provider does not know. Does nothing while
    /// the host is down.
    pub(super) fn stray(&mut self, now: Instant, host: usize) {
        if now < self.down_until[host] {
            return;
        }
        let part = HostPart {
            vnet: STRAY,
            name: "stray".to_owned(),
            generation: 1,
            nodes: Vec::new(),
            links: Vec::new(),
        };
        self.note(|| format!("host {host} has a stray"));
        self.hosts[host].parts.insert(STRAY, (part, now));
        self.note_change(host, STRAY);
    }

    /// Kills the agent of a host. The nodes and guests on the host continue to run.
    pub(super) fn agent_dies(&mut self, now: Instant, host: usize) {
        let back = self.back(now, Who::Host(host));
        self.down_until[host] = back.max(self.down_until[host]);
        self.hosts[host].forget_awaited();
    }

    /// Time at which a process that dies now restarts.
    fn back(&mut self, now: Instant, who: Who) -> Instant {
        self.outcome.deaths += 1;
        self.note(|| format!("{who:?} dies"));
        let back = now + Duration::from_millis(self.random.within(1, 15_000));
        let soon = now + Duration::from_millis(1);
        back.min(self.scenario.trouble_ends.max(soon))
    }

    pub(super) fn die(&mut self, now: Instant, who: Who) {
        let back = self.back(now, who);
        match who {
            Who::Pip(pip, process) => self.pips[pip][process].end(),
            Who::Vnp(number, process) => self.vnps[number][process].end(),
            Who::Vno(number) => self.vnos[number].end(),
            Who::Host(host) => {
                self.down_until[host] = back.max(self.down_until[host]);
                self.hosts[host].forget_awaited();
                if self.random.chance(5000) {
                    // The host itself dies, and with it everything that ran on it.
                    let lost: Vec<VnetId> = self.hosts[host].parts.keys().copied().collect();
                    self.hosts[host].lose_all();
                    lost.iter().for_each(|vnet| self.note_change(host, *vnet));
                }
                return;
            }
        }
        self.queue.put(back.as_nanos(), Event::Restart(who));
    }
}

/// Number of a network that no operator has.
const STRAY: VnetId = VnetId::new(1);
