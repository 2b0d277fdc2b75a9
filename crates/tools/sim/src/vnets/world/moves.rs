//! Moves of nodes between hosts of a provider.

use std::rc::Rc;

use carina_time::{Duration, Instant};
use carina_vnet::document::Kind;
use carina_vnet::host_part::VnetId;

use super::super::host::Sent;
use super::{Broken, Event, Packet, Who, World};

impl World<'_> {
    /// Lets a provider move a random node to a random host of its own.
    pub(super) fn move_one(&mut self, now: Instant) -> Result<(), Broken> {
        if !self.is_troubled() {
            return Ok(());
        }
        let [min, max] = self.scenario.move_every.map(Duration::as_millis);
        let next = now + Duration::from_millis(self.random.within(min, max));
        self.queue.put(next.as_nanos(), Event::Move);
        let count = self.machines().count();
        if count == 0 {
            return Ok(());
        }
        let picked = self.random.index(count);
        let Some((host, vnet, node)) = self.machines().nth(picked) else {
            return Ok(());
        };
        let node = node.to_owned();
        let pip = self.host_of[host];
        let hosts = (0..self.hosts.len()).filter(|candidate| self.host_of[*candidate] == pip);
        let hosts: Vec<usize> = hosts.collect();
        let to = self.hosts[*self.random.pick(&hosts)].name.clone();
        let number = self.random.next_u64();
        let process = self.random.index(self.pips[pip].len());
        let limit = Duration::from_secs(self.random.within(1, 20));
        let begun = {
            let process = Rc::clone(&self.pips[pip][process]);
            let mut machine = process.machine.borrow_mut();
            let Some(machine) = machine.as_mut() else {
                return Ok(());
            };
            machine.begin_move(now, [&vnet.to_string(), &node, &to], number, limit)
        };
        self.note(|| format!("node {node} of {vnet} to {to}: {begun:?}"));
        self.flush(now, Who::Pip(pip, process))
    }

    /// All nodes that are virtual machines, by the parts on hosts: host, network and name.
    fn machines(&self) -> impl Iterator<Item = (usize, VnetId, &str)> {
        let hosts = self.hosts.iter().enumerate();
        hosts.flat_map(|(number, host)| {
            let parts = host.parts.values().map(|(part, _)| part);
            let nodes = parts.flat_map(|part| part.nodes.iter().map(|node| (part.vnet, node)));
            let machines = nodes.filter(|(_, node)| node.kind == Kind::Vm);
            machines.map(move |(vnet, node)| (number, vnet, node.name.as_str()))
        })
    }

    /// Sends the guests of a host that are on the move.
    pub(super) fn send_guests(&mut self, host: usize) {
        for Sent { to, number, guest } in self.hosts[host].take_sent() {
            self.changes.iter_mut().for_each(|change| *change += 1);
            if let Some(to) = self.hosts.iter().position(|host| host.name == to) {
                self.send(Who::Host(host), Who::Host(to), Packet::Guest(number, guest));
            }
        }
    }

    /// Delivers a guest that moves to a host. The guest is lost while the host is down.
    pub(super) fn take_guest(&mut self, now: Instant, host: usize, number: u64, guest: String) {
        if now < self.down_until[host] {
            return;
        }
        self.hosts[host].take_guest(number, guest);
        self.changes.iter_mut().for_each(|change| *change += 1);
        self.tell_pips(now, host);
    }

    /// Checks that no guest runs on two hosts.
    pub(super) fn check_guests(&self, vnet: VnetId) -> Result<(), Broken> {
        let hosts = self.parts_at.get(&vnet).into_iter().flatten();
        let running = hosts.flat_map(|host| self.hosts[*host].running(vnet));
        let mut running: Vec<&String> = running.collect();
        running.sort_unstable();
        match running.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Broken(format!("guest {} runs at two hosts", pair[0]))),
            None => Ok(()),
        }
    }
}
