//! A node that is a virtual machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use carina_lab::{Guest, namespace_file};
use carina_vm::{Backend, Machine, Model, Nic, NicId, Running, Templates};
use carina_vnet::document;
use carina_vnet::host_part::{HostPart, InterfacePart, NodePart};

use crate::directory::VnetDir;
use crate::error::{Attempt, Error, Result};
use crate::names::{port_of, ports_namespace};
use crate::node::Output;
use crate::node::images::{Images, unplugged};
use crate::probe::round_trip_in;

/// A machine and the way into it.
#[derive(Debug)]
pub struct MachineNode {
    name: String,
    machines: PathBuf,
    access: Access,
}

/// QEMU serves the port for commands to one client at a time.
#[derive(Debug)]
enum Access {
    /// This agent has started it, with cards of these addresses.
    Started(Box<Running>, Mutex<BTreeMap<[u8; 6], NicId>>),
    /// An earlier agent has.
    Found(Guest),
}

impl MachineNode {
    /// Boots or clones a machine whose cards are the ports of its links, or takes up the one that
    /// runs, and waits until it takes commands.
    pub fn make(
        whole: &HostPart,
        part: &NodePart,
        dir: &VnetDir,
        images: &Images,
    ) -> Result<(MachineNode, UnixStream)> {
        let machines = dir.machines();
        let running = carina_vm::list(&machines).attempt("listing machines")?;
        let (access, console) = match running.into_iter().find(|it| it.name == part.name) {
            Some(record) => {
                let guest = Guest::reach_machine(&machines, &part.name, Some(BOOT))?;
                (Access::Found(guest), record.console)
            }
            None => {
                let running = boot(whole, part, &machines, images)?;
                let console = running.record().console.clone();
                let macs = part.interfaces.iter().map(|interface| interface.mac.0);
                let cards = macs.zip((0..).map(NicId)).collect();
                (
                    Access::Started(Box::new(running), Mutex::new(cards)),
                    console,
                )
            }
        };
        let what = format!("connecting the console of VM {}", part.name);
        let console = carina_sys::connect_stream(&console, CONNECT).attempt(what)?;
        let node = MachineNode {
            name: part.name.clone(),
            machines,
            access,
        };
        Ok((node, console))
    }

    /// Plugs in the cards of links that have come, and pulls out those of links that have gone;
    /// the ports of `fresh` links are other ones than before.
    pub fn rewire(&self, whole: &HostPart, part: &NodePart, fresh: &[u32]) -> Result<()> {
        let Access::Started(running, cards) = &self.access else {
            return Err(Error::Unsupported {
                what: format!("changing the cards of VM {}", self.name),
                instead: "it was started by an earlier agent",
            });
        };
        let what = || format!("changing the cards of VM {}", self.name);
        let mut cards = cards
            .lock()
            .map_err(|_| Error::Ended("a change of cards"))?;
        let stays = |mac: &[u8; 6]| {
            let mut wanted = part.interfaces.iter();
            wanted.any(|it| it.mac.0 == *mac && !fresh.contains(&it.link))
        };
        let gone: Vec<[u8; 6]> = cards.keys().filter(|mac| !stays(mac)).copied().collect();
        for mac in gone {
            if let Some(id) = cards.remove(&mac) {
                running.remove_nic(id, PLUG).attempt(what())?;
            }
        }
        for interface in &part.interfaces {
            let mac = interface.mac.0;
            if cards.contains_key(&mac) {
                continue;
            }
            let id = running
                .add_nic(&card(whole, part, interface))
                .attempt(what())?;
            cards.insert(mac, id);
            running.interface_of(mac, PLUG).attempt(what())?;
        }
        Ok(())
    }

    /// Runs a shell command in it.
    pub fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        match &self.access {
            Access::Found(guest) => Ok(guest.run(command, limit)?),
            Access::Started(running, _) => running
                .run_within(command, limit)
                .attempt(format!("running a command in VM {}", self.name)),
        }
    }

    pub fn echo(&self, own: Ipv4Addr, peer: Ipv4Addr, limit: Duration) -> Result<Duration> {
        let tries = limit.as_secs().max(1);
        let command = format!("carina_echo \"$1\" {own} {peer} {tries}");
        let output = self.run(&command, limit + ANSWER)?;
        let text = output.text();
        let round_trip = round_trip_in(&text).filter(|_| output.is_success());
        round_trip.ok_or_else(|| Error::Timeout {
            what: format!("{peer} has not answered {own}"),
            limit,
        })
    }

    /// Whether it was cloned just now, with its interfaces and routes.
    pub fn is_clone(&self) -> bool {
        match &self.access {
            Access::Started(running, _) => running.times().is_some(),
            Access::Found(_) => false,
        }
    }

    pub fn is_alive(&self) -> bool {
        match &self.access {
            Access::Started(running, _) => running.is_running(),
            Access::Found(_) => carina_vm::list(&self.machines)
                .is_ok_and(|all| all.iter().any(|record| record.name == self.name)),
        }
    }

    pub fn remove(&self) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        carina_vm::stop(&self.machines, &self.name, Duration::ZERO)
            .attempt(format!("stopping VM {}", self.name))
    }

    pub fn leave(self) {
        if let Access::Started(running, _) = self.access {
            running.detach();
        }
    }
}

fn boot(whole: &HostPart, part: &NodePart, machines: &Path, images: &Images) -> Result<Running> {
    let what = || format!("starting VM {}", part.name);
    let (cache, boot) = images.obtain(&part.image)?;
    let memory = u32::try_from(part.memory_mib).unwrap_or(u32::MAX);
    let mut machine = Machine::new(&part.name, machines)
        .attempt(what())?
        .boot(boot)
        .memory_mib(memory)
        .cpus(part.cpus)
        // The taps are in the namespace of the ports.
        .network_namespace(namespace_file(&ports_namespace(whole.vnet)));
    for interface in &part.interfaces {
        machine = machine.nic(card(whole, part, interface));
    }
    if part.boot == document::Boot::Pool
        && let Some(spare) = images.spare_cards(part)
    {
        for _ in 0..spare {
            machine = machine.nic(unplugged());
        }
        let machine = machine.ports(PORTS_FREE as u8);
        let machine = machine.when_cloned(&configuration(part));
        return images.take(machine).attempt(what());
    }
    let free = PORTS_MAX
        .saturating_sub(part.interfaces.len())
        .min(PORTS_FREE);
    machine = machine.ports(u8::try_from(free).unwrap_or_default());
    match part.boot {
        document::Boot::Cold => {
            let running = machine.start(&cache).attempt(what())?;
            running.wait_ready(BOOT).attempt(what())?;
            Ok(running)
        }
        document::Boot::Clone | document::Boot::Pool => {
            let templates = Templates::default_location().attempt("opening the templates")?;
            let machine = machine.when_cloned(&configuration(part));
            machine.start_clone(&cache, &templates).attempt(what())
        }
    }
}

/// The card that is an interface of a node.
fn card(whole: &HostPart, part: &NodePart, interface: &InterfacePart) -> Nic {
    Nic {
        model: Model::VirtioNet,
        backend: Backend::Tap(port_of(whole, &part.name, interface)),
        mac: Some(interface.mac.0),
    }
}

/// A script for the guest's agent that gives the interfaces, which are found by their MAC
/// addresses, their names and addresses, and the routes.
pub fn configuration(part: &NodePart) -> String {
    let mut script = String::new();
    for interface in &part.interfaces {
        let (mac, name, mtu) = (interface.mac, &interface.name, interface.mtu);
        let address = interface.address;
        let _ = writeln!(script, "carina_link {mac} {name} {address} {mtu}||exit 1");
    }
    let mut ways: BTreeMap<Ipv4Addr, String> = BTreeMap::new();
    for route in &part.routes {
        let _ = write!(ways.entry(route.via).or_default(), " {}", route.to);
    }
    for (via, prefixes) in ways {
        let _ = writeln!(script, "carina_via {via}{prefixes}||exit 1");
    }
    script
}

/// How long a guest may take to boot; under translation it is slow.
const BOOT: Duration = Duration::from_secs(180);
/// How long a guest may take to see a card, or to let go of it.
const PLUG: Duration = Duration::from_secs(60);
/// Cards that a machine has at most, and how many of them are left for links to come.
const PORTS_MAX: usize = 16;
pub(super) const PORTS_FREE: usize = 4;
const CONNECT: Duration = Duration::from_secs(5);
/// How much later than its own limit a command in a guest may answer.
const ANSWER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn configuration_names_interfaces_by_their_addresses() {
        let part = part(&["a b", "b c"]);
        let script = configuration(part.node("b").unwrap());
        let macs = part.node("b").unwrap().interfaces.iter().map(|it| it.mac);
        let lines: Vec<&str> = script.lines().collect();
        for (number, mac) in macs.enumerate() {
            let address = ["10.0.0.2/30", "10.0.0.5/30"][number];
            let line = format!("carina_link {mac} eth{number} {address} 1480||exit 1");
            assert_eq!(lines[number], line);
        }
        let script = configuration(part.node("a").unwrap());
        let way = "carina_via 10.0.0.2 10.0.0.4/30||exit 1";
        assert_eq!(script.lines().last(), Some(way));
    }
}
