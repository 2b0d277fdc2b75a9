//! Nodes that are virtual machines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use carina_vm::Guest;
use carina_vm::{NicId, Running, Sink, Templates};
use carina_vnet::document;
use carina_vnet::host_part::NodePart;

use crate::confinement::{Confinement, user_of_process};
use crate::error::{Attempt, Error, Result};
use crate::node::bare::{BOOT, CONNECT, Cards, PORTS_FREE, bare, card};
use crate::node::command::status_of;
use crate::node::images::unplugged;
use crate::node::resuming::{go_on, restored};
use crate::node::sending::is_away;
use crate::node::{CommandLimits, Output, Site};
use crate::probe::{Asks, round_trip_in};
use crate::saved::Saved;

/// A running machine, and how commands are executed in it.
#[derive(Debug)]
pub(crate) struct MachineNode {
    name: String,
    pub(super) machines: PathBuf,
    /// Locked for writing while the machine moves to another QEMU; no command is executed then.
    pub(super) access: RwLock<Access>,
}

/// Access to the machine. QEMU's port for commands accepts one client at a time.
#[derive(Debug)]
pub(super) enum Access {
    /// A machine that this agent has started.
    Started(Started),
    /// A machine that an earlier agent has started.
    Found(Guest),
    /// A machine with an image of the store, in which no agent executes commands.
    Foreign(Option<Confinement>),
}

/// A machine that this agent has started.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) running: Box<Running>,
    /// The machine's cards, by MAC address.
    pub(super) cards: Mutex<Cards>,
    pub(super) confinement: Confinement,
}

impl MachineNode {
    /// Boots, clones or restores a machine with its cards connected to the ports of its links, or
    /// adopts the running one, and waits until it executes commands. The last result says whether
    /// the interfaces are already configured.
    pub(crate) fn make(
        site: &Site<'_>,
        part: &NodePart,
        saved: Option<&Saved>,
    ) -> Result<(MachineNode, UnixStream, bool)> {
        let machines = site.dir.machines();
        let running = carina_vm::list(&machines).attempt("listing machines")?;
        let mut is_configured = false;
        let mut found = running
            .into_iter()
            .find(|candidate| candidate.name == part.name);
        // An agent was killed while it made this machine.
        if found.take_if(|note| note.is_partial).is_some() {
            let what = format!("stopping VM {}", part.name);
            carina_vm::kill(&machines, &part.name).attempt(what)?;
        }
        let (access, console) = match found {
            Some(record) if record.from_disk => (Access::Foreign(None), record.console),
            Some(record) => {
                // A machine that was sent to another host stays paused until the provider has
                // decided where it runs. Any other paused machine was being saved when an agent was
                // killed, and is resumed.
                let limit = if is_away(site.dir, &part.name) {
                    AWAY
                } else {
                    go_on(&record)?;
                    BOOT
                };
                let guest = Guest::reach(&machines, &part.name, Some(limit))?;
                (Access::Found(guest), record.console)
            }
            None => {
                let (started, cards) = match saved.and_then(|saved| saved.node(&part.name)) {
                    Some((saved, file)) => restored(site, part, saved, &file)?,
                    None => {
                        let macs = part.interfaces.iter().map(|interface| interface.mac.0);
                        let cards = macs.zip((0..).map(NicId)).collect();
                        (boot(site, part)?, cards)
                    }
                };
                let (running, confinement) = started;
                is_configured = running.times().is_some() || saved.is_some();
                let console = running.record().console.clone();
                let access = if running.record().from_disk {
                    running.detach();
                    Access::Foreign(Some(confinement))
                } else {
                    Access::Started(Started {
                        running: Box::new(running),
                        cards: Mutex::new(cards),
                        confinement,
                    })
                };
                (access, console)
            }
        };
        let what = format!("connecting the console of VM {}", part.name);
        let console = carina_sys::connect_stream(&console, CONNECT).attempt(what)?;
        let node = MachineNode {
            name: part.name.clone(),
            machines,
            access: RwLock::new(access),
        };
        Ok((node, console, is_configured))
    }

    /// A machine that has arrived from another host and runs.
    pub(super) fn arrived(name: &str, machines: PathBuf, access: Access) -> MachineNode {
        MachineNode {
            name: name.to_owned(),
            machines,
            access: RwLock::new(access),
        }
    }

    /// Plugs in cards for new links, and unplugs those of removed links. `fresh` are links whose
    /// ports were made again.
    pub(crate) fn rewire(&self, site: &Site<'_>, part: &NodePart, fresh: &[u32]) -> Result<()> {
        let access = self.access();
        let Access::Started(Started { running, cards, .. }) = &*access else {
            return Err(Error::Unsupported {
                what: format!("changing the cards of VM {}", self.name),
                instead: match *access {
                    Access::Foreign(_) => "its image detects cards only when it starts",
                    _ => "an earlier agent started it",
                },
            });
        };
        let what = || format!("changing the cards of VM {}", self.name);
        let mut cards = cards
            .lock()
            .map_err(|_| Error::Ended("a change of cards"))?;
        let is_kept = |mac: &[u8; 6]| {
            let mut wanted = part.interfaces.iter();
            wanted.any(|candidate| candidate.mac.0 == *mac && !fresh.contains(&candidate.link))
        };
        let gone: Vec<[u8; 6]> = cards.keys().filter(|mac| !is_kept(mac)).copied().collect();
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
                .add_nic(&card(site, part, interface))
                .attempt(what())?;
            cards.insert(mac, id);
            running.interface_of(mac, PLUG).attempt(what())?;
        }
        Ok(())
    }

    /// Sets the carrier that the guest sees at the card with this MAC address; does nothing if an
    /// earlier agent started the machine.
    pub(crate) fn set_carrier(&self, mac: [u8; 6], is_up: bool) -> Result<()> {
        let access = self.access();
        let Access::Started(Started { running, cards, .. }) = &*access else {
            return Ok(());
        };
        let id = {
            let cards = cards
                .lock()
                .map_err(|_| Error::Ended("a change of cards"))?;
            cards.get(&mac).copied()
        };
        let what = format!("changing the carrier of a card of VM {}", self.name);
        id.map_or(Ok(()), |id| running.set_link(id, is_up).attempt(what))
    }

    /// Runs a shell command in the guest, and returns its output when it has ended.
    pub(crate) fn run(&self, command: &str, limit: Duration) -> Result<Output> {
        match &*self.access() {
            Access::Found(guest) => Ok(guest.run(command, limit)?),
            Access::Foreign(_) => Err(self.takes_no_commands()),
            Access::Started(started) => started
                .running
                .run_within(command, limit)
                .attempt(format!("running a command in VM {}", self.name)),
        }
    }

    /// Like [`MachineNode::run`], but hands the output to `sink` while the command runs, and
    /// returns the exit status.
    pub(crate) fn stream(
        &self,
        command: &str,
        until: CommandLimits<'_>,
        sink: &mut dyn Sink,
    ) -> Result<i32> {
        let what = || format!("running a command in VM {}", self.name);
        let finish = match &*self.access() {
            Access::Found(guest) => guest.stream(command, until, sink)?,
            Access::Foreign(_) => return Err(self.takes_no_commands()),
            Access::Started(started) => {
                let finish = started.running.stream(command, until, sink);
                finish.attempt(what())?
            }
        };
        status_of(finish, &format!("`{command}`"), until.limit)
    }

    fn takes_no_commands(&self) -> Error {
        Error::Unsupported {
            what: format!("running a command in VM {}", self.name),
            instead: "its image has no program that runs commands for Carina; try its console",
        }
    }

    pub(crate) fn echo(
        &self,
        own: Ipv4Addr,
        peer: Ipv4Addr,
        limit: Duration,
        asks: Asks,
    ) -> Result<Duration> {
        let seconds = limit.as_secs().max(1);
        let command = format!("carina_echo {own} {peer} {seconds}");
        let again = || self.run(&command, limit + ANSWER);
        let output = match asks {
            Asks::Again => again()?,
            Asks::Once => {
                let output = self.run(&format!("{command} once"), limit + ANSWER)?;
                // A guest that an earlier version of Carina started does not know the argument
                // `once`.
                if output.error_text().starts_with("not understood") {
                    again()?
                } else {
                    output
                }
            }
        };
        let text = output.text();
        let round_trip = round_trip_in(&text).filter(|_| output.is_success());
        round_trip.ok_or_else(|| Error::Timeout {
            what: format!("{peer} did not answer an echo from {own}"),
            limit,
        })
    }

    /// The confinement of the machine; `None` if an earlier agent has started it.
    pub(crate) fn confinement(&self) -> Option<Confinement> {
        match &*self.access() {
            Access::Started(started) => Some(started.confinement.clone()),
            Access::Foreign(confinement) => confinement.clone(),
            Access::Found(_) => None,
        }
    }

    /// Whether the machine has an image of the store, in which no agent executes commands.
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(*self.access(), Access::Foreign(_))
    }

    pub(crate) fn is_alive(&self) -> bool {
        // A node that is being sent to another host is not waited for: that may take minutes.
        if let Ok(access) = self.access.try_read()
            && let Access::Started(started) = &*access
        {
            return started.running.is_running();
        }
        carina_vm::list(&self.machines)
            .is_ok_and(|all| all.iter().any(|record| record.name == self.name))
    }

    /// The ID of the machine's process.
    pub(crate) fn incarnation(&self) -> Result<String> {
        let all = carina_vm::list(&self.machines).attempt("listing machines")?;
        let own = all.iter().find(|record| record.name == self.name);
        Ok(format!("machine {}", own.map_or(0, |record| record.pid)))
    }

    pub(crate) fn remove(&self) -> Result<()> {
        if !self.is_alive() {
            return Ok(());
        }
        carina_vm::stop(&self.machines, &self.name, Duration::ZERO)
            .map(drop)
            .attempt(format!("stopping VM {}", self.name))
    }

    pub(crate) fn leave(self) {
        let access = self.access.into_inner();
        if let Access::Started(started) = access.unwrap_or_else(PoisonError::into_inner) {
            started.running.detach();
        }
    }

    fn access(&self) -> RwLockReadGuard<'_, Access> {
        // The lock's holder has left the value consistent, even after a panic.
        self.access.read().unwrap_or_else(PoisonError::into_inner)
    }
}

fn boot(site: &Site<'_>, part: &NodePart) -> Result<(Running, Confinement)> {
    let what = || format!("starting VM {}", part.name);
    let images = site.images;
    let (mut machine, mut bare) = bare(site, part, &site.dir.machines())?;
    for interface in &part.interfaces {
        machine = machine.nic(card(site, part, interface));
    }
    if part.boot == document::Boot::Pool
        && let Some(spare) = images.spare_cards(part)
    {
        for _ in 0..spare {
            machine = machine.nic(unplugged());
        }
        let machine = machine.ports(PORTS_FREE as u8);
        let machine = machine.when_cloned(&configuration(part));
        let running = images.take(machine).attempt(what())?;
        // A machine of the pool has the user ID of its place in the pool.
        bare.confinement.user = user_of_process(running.pid());
        return Ok(bare.hold(site, part, running));
    }
    let free = PORTS_MAX
        .saturating_sub(part.interfaces.len())
        .min(PORTS_FREE);
    machine = machine.ports(u8::try_from(free).unwrap_or_default());
    match part.boot {
        _ if bare.disk.is_some() => {
            let running = machine.start(&bare.cache).attempt(what())?;
            let held = bare.hold(site, part, running);
            held.0.wait_started(PLUG).attempt(what())?;
            Ok(held)
        }
        document::Boot::Cold => {
            let running = machine.start(&bare.cache).attempt(what())?;
            let held = bare.hold(site, part, running);
            held.0.wait_ready(BOOT).attempt(what())?;
            Ok(held)
        }
        document::Boot::Clone | document::Boot::Pool => {
            let templates = Templates::default_location().attempt("opening the templates")?;
            let machine = machine.when_cloned(&configuration(part));
            let running = machine.start_clone(&bare.cache, &templates);
            Ok(bare.hold(site, part, running.attempt(what())?))
        }
    }
}

/// A script for the agent in the guest: it finds interfaces by their MAC addresses and sets their
/// names, addresses and routes.
pub(super) fn configuration(part: &NodePart) -> String {
    let mut script = String::new();
    for interface in &part.interfaces {
        let (mac, name, mtu) = (interface.mac, &interface.name, interface.mtu);
        let address = interface.address;
        let _ = writeln!(script, "carina_link {mac} {name} {address} {mtu}");
    }
    let mut ways: BTreeMap<Ipv4Addr, String> = BTreeMap::new();
    for route in &part.routes {
        let _ = write!(ways.entry(route.via).or_default(), " {}", route.to);
    }
    for (via, prefixes) in ways {
        let _ = writeln!(script, "carina_via {via}{prefixes}");
    }
    script.push_str(&configuration6(part));
    script
}

/// The lines of [`configuration`] for IPv6, which a shell in the guest executes up to the first
/// that fails.
fn configuration6(part: &NodePart) -> String {
    let mut script = String::new();
    if !part.has_ipv6() {
        return script;
    }
    let _ = writeln!(
        script,
        "set -e\necho 1 >/proc/sys/net/ipv6/conf/all/forwarding"
    );
    for interface in &part.interfaces {
        let name = &interface.name;
        let _ = writeln!(script, "ip -6 address flush dev {name} scope global");
        if let Some(address) = interface.address6 {
            // The other end is known: detection of duplicates would only delay the first packets.
            let _ = writeln!(
                script,
                "echo 0 >/proc/sys/net/ipv6/conf/{name}/accept_dad\n\
                 ip -6 address add {address} dev {name}"
            );
        }
    }
    for route in &part.routes6 {
        let _ = writeln!(script, "ip -6 route replace {} via {}", route.to, route.via);
    }
    script
}

/// Longest time for a guest to notice a new card or release one.
const PLUG: Duration = Duration::from_secs(60);
/// Largest number of cards of a machine, and how many slots are kept free for later links.
pub const PORTS_MAX: usize = 16;
/// How much longer than its own limit a command in a guest may take to answer.
const ANSWER: Duration = Duration::from_secs(30);
/// Longest time for reaching a machine that may be paused.
const AWAY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::tests::part;

    #[test]
    fn configuration_names_interfaces_by_their_addresses() {
        let part = part(&["a b", "b c"]);
        let script = configuration(part.node("b").unwrap());
        let macs = part
            .node("b")
            .unwrap()
            .interfaces
            .iter()
            .map(|interface| interface.mac);
        let lines: Vec<&str> = script.lines().collect();
        for (number, mac) in macs.enumerate() {
            let address = ["10.0.0.2/30", "10.0.0.5/30"][number];
            let line = format!("carina_link {mac} eth{number} {address} 1480");
            assert_eq!(lines[number], line);
        }
        let mut part6 = part.clone();
        part6.nodes[0].interfaces[0].address6 = "2001:db8::1/64".parse().ok();
        let script = configuration(&part6.nodes[0]);
        let line = "ip -6 address add 2001:db8::1/64 dev eth0";
        assert!(
            script.lines().any(|candidate| candidate == line),
            "{script}"
        );
        let script = configuration(part.node("a").unwrap());
        let command = "carina_via 10.0.0.2 10.0.0.4/30";
        assert_eq!(script.lines().last(), Some(command));
    }
}
