//! The simulated world of virtual networks: roles, messages between them, and faults.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use carina_random::{Random, mix};
use carina_time::{Duration, Instant};
use carina_vnet::document::Document;
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::message::ToAgent;
use carina_vnet::pip::{Pip, round_of};
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::vno::Vno;
use carina_vnet::vnp::Vnp;

use super::host::{CONSOLE, Death, PlayedHost, Temper};
use super::packet::Packet;
use super::process::{Machine, Process, Work};
use super::scenario::{START, Scenario, Wish};
use super::unsteady_store::UnsteadyStore;
use super::{Mutant, Outcome, Violation, timing};
use crate::event_queue::EventQueue;

use self::answered::Answered;
use self::drains::Drains;
use self::reports::Report;
use self::turns::store_access;

mod answered;
mod cuts;
mod deaths;
mod drains;
mod ending;
mod meddling;
mod moves;
mod reports;
mod sending;
mod turns;
mod wishes;

/// A process of a role, or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// Process of a provider: number of the provider, number of the process.
    Pip(usize, usize),
    Vnp(usize, usize),
    Vno(usize),
    Host(usize),
}

#[derive(Debug)]
enum Event {
    Deliver(Who, Packet),
    Timer(Who),
    /// A process handles the next message or timer in its inbox.
    Turn(Who),
    /// A host sends its report: the regular one of each second (true), or one because of a change
    /// (false).
    Report(usize, bool),
    Wish(Wish),
    Death,
    Move,
    /// A connection is cut.
    Cut,
    /// A store stops answering for a while.
    StoreAway,
    /// A random host is drained.
    Drain,
    /// A provider has to record that a host is drained, or no longer drained; repeated until it
    /// succeeds.
    SetDrained(usize, bool),
    /// Nodes leave the drained host of this number.
    Leave(usize),
    Restart(Who),
    Meddle,
    /// The host of this number returns with an old part that its provider does not know.
    Stray(usize),
    RemoveAll,
}

type PipProcess = Rc<Process<Pip<UnsteadyStore>>>;
type VnpProcess = Rc<Process<Vnp<UnsteadyStore>>>;

pub(super) struct World<'a> {
    scenario: Scenario,
    seed: u64,
    queue: EventQueue<Event>,
    /// Stores: one for each provider, each VNP and each VNO.
    pip_stores: Vec<Rc<RefCell<MemoryStore>>>,
    vnp_stores: Vec<Rc<RefCell<MemoryStore>>>,
    vno_stores: Vec<Rc<RefCell<MemoryStore>>>,
    pips: Vec<Vec<PipProcess>>,
    vnps: Vec<Vec<VnpProcess>>,
    vnos: Vec<Rc<Process<Vno<UnsteadyStore>>>>,
    /// The current second of the run, and the number of events in it.
    pace: (u64, u32),
    /// Time at which the last report of each host arrives at each process.
    heard_at: BTreeMap<(Who, usize), Instant>,
    /// Times until which processes are busy with other work.
    busy_until: BTreeMap<Who, Instant>,
    /// Name of each operator, and number of its VNP.
    operators: Vec<(String, usize)>,
    hosts: Vec<PlayedHost>,
    /// Number of each host, by name.
    places: BTreeMap<String, usize>,
    /// Number of the provider of each host.
    host_of: Vec<usize>,
    down_until: Vec<Instant>,
    /// Last report of each host, and a counter of changes that affect its report.
    reports: Vec<Option<Report>>,
    changes: Vec<u64>,
    /// For each network, the hosts that have or had a part of it.
    parts_at: BTreeMap<VnetId, BTreeSet<usize>>,
    /// Networks that operators want, by operator and name: time of the request, and document.
    wanted: BTreeMap<(usize, String), (Instant, Document)>,
    /// Number of network cards of each node, for each generation of each network.
    nics: BTreeMap<(VnetId, u64, String), u64>,
    /// What hosts have reported about each network, and what operators requested.
    answered: Answered,
    /// The parts on all hosts at the time when parties sent requests about networks of others.
    before_meddling: Vec<(usize, VnetId, u64)>,
    /// Networks that operators have requested, by operator and name.
    asked: BTreeSet<(usize, String)>,
    /// Cut connections, each with the time at which it is repaired.
    cuts: BTreeMap<[Who; 2], Instant>,
    drains: Drains,
    random: Random,
    /// Random numbers for events that plain runs do not have, so that plain runs stay the same.
    upsets: Random,
    outcome: Outcome,
    trace: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        mut scenario: Scenario,
        seed: u64,
        mutant: Option<Mutant>,
        trace: Option<&'a mut dyn FnMut(&str)>,
    ) -> World<'a> {
        let random = scenario.random.fork();
        scenario.shares.mutant = mutant;
        let store = || Rc::new(RefCell::new(MemoryStore::new(64 << 20)));
        let mut hosts = Vec::new();
        let mut host_of = Vec::new();
        for (number, (_, inventory, _)) in scenario.pips.iter().enumerate() {
            for host in &inventory.hosts {
                let mut played = PlayedHost::new(host, inventory);
                let limits = scenario.limits.as_ref();
                if let Some(limits) = limits.and_then(|limit| limit.get(hosts.len())) {
                    played.limit(limits.clone(), Temper::new(seed, hosts.len()));
                }
                hosts.push(played);
                host_of.push(number);
            }
        }
        let names = hosts.iter().map(|host| host.name.clone());
        let places = names.zip(0..).collect();
        let operators = scenario.vnps.iter().enumerate();
        let operators = operators
            .flat_map(|(number, (_, vnos, _))| vnos.iter().map(move |vno| (vno.clone(), number)));
        let mut world = World {
            queue: EventQueue::new(START.as_nanos()),
            pip_stores: scenario.pips.iter().map(|_| store()).collect(),
            vnp_stores: scenario.vnps.iter().map(|_| store()).collect(),
            vno_stores: operators.clone().map(|_| store()).collect(),
            operators: operators.collect(),
            pips: Vec::new(),
            vnps: Vec::new(),
            vnos: Vec::new(),
            pace: (0, 0),
            busy_until: BTreeMap::new(),
            heard_at: BTreeMap::new(),
            down_until: vec![Instant::ZERO; hosts.len()],
            reports: hosts.iter().map(|_| None).collect(),
            changes: vec![0; hosts.len()],
            parts_at: BTreeMap::new(),
            hosts,
            places,
            host_of,
            wanted: BTreeMap::new(),
            nics: BTreeMap::new(),
            answered: Answered::default(),
            before_meddling: Vec::new(),
            asked: BTreeSet::new(),
            cuts: BTreeMap::new(),
            drains: Drains::default(),
            random,
            upsets: Random::new(mix(seed, UPSETS)),
            outcome: Outcome::default(),
            seed,
            scenario,
            trace,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for number in 0..self.scenario.pips.len() {
            let count = self.scenario.pips[number].2;
            let processes = (0..count).map(|_| self.process()).collect();
            self.pips.push(processes);
            for process in 0..count {
                self.start(Who::Pip(number, process));
            }
        }
        for number in 0..self.scenario.vnps.len() {
            let count = self.scenario.vnps[number].2;
            let processes = (0..count).map(|_| self.process()).collect();
            self.vnps.push(processes);
            for process in 0..count {
                self.start(Who::Vnp(number, process));
            }
        }
        for number in 0..self.operators.len() {
            let process = self.process();
            self.vnos.push(process);
            self.start(Who::Vno(number));
        }
        for number in 0..self.hosts.len() {
            if self.random.chance(NEVER_REPORT) {
                self.down_until[number] = Instant::MAX;
            }
            let at = START + Duration::from_millis(self.random.below(1000));
            self.queue.put(at.as_nanos(), Event::Report(number, true));
        }
        for (at, wish) in self.scenario.wishes.clone() {
            self.queue.put(at.as_nanos(), Event::Wish(wish));
        }
        self.queue.put(START.as_nanos(), Event::Death);
        self.queue.put(START.as_nanos(), Event::Move);
        if self.scenario.upsets.is_some() {
            for event in [Event::Cut, Event::StoreAway, Event::Drain] {
                self.queue.put(START.as_nanos(), event);
            }
        }
        let meddling = self.scenario.meddling;
        self.queue.put(meddling.as_nanos(), Event::Meddle);
        if let Some((at, host)) = self.scenario.stray {
            self.queue.put(at.as_nanos(), Event::Stray(host));
        }
        let removal = self.scenario.removal;
        self.queue.put(removal.as_nanos(), Event::RemoveAll);
    }

    fn process<M: Machine>(&mut self) -> Rc<Process<M>> {
        Process::new(self.scenario.shares, self.random.fork())
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.queue.now())
    }

    fn is_troubled(&self) -> bool {
        self.now() < self.scenario.trouble_ends
    }

    /// Starts a process with the content of its store.
    fn start(&mut self, who: Who) {
        let now = self.now();
        let random = self.random.fork();
        match who {
            Who::Pip(pip, process) => {
                let store = store_access(&self.pip_stores[pip], &self.pips[pip], process);
                let (name, inventory, _) = &self.scenario.pips[pip];
                let timing = timing(self.scenario.shares.mutant);
                let machine = Pip::new(name, inventory.clone(), store, timing);
                let machine = machine.expect("the scenario's inventory is sound");
                self.pips[pip][process].start(machine);
            }
            Who::Vnp(number, process) => {
                let store = store_access(&self.vnp_stores[number], &self.vnps[number], process);
                let pips = self.scenario.pips.iter().map(|(name, ..)| name.clone());
                let name = &self.scenario.vnps[number].0;
                let mut machine = Vnp::new(name, pips, store, timing(None), random);
                if let Some(share) = self.scenario.networks_per_vno {
                    machine = machine.with_networks_per_vno(share.into());
                }
                self.vnps[number][process].start(machine);
            }
            Who::Vno(number) => {
                let slot = std::slice::from_ref(&self.vnos[number]);
                let store = store_access(&self.vno_stores[number], slot, 0);
                let name = &self.operators[number].0;
                let mut machine = Vno::new(name, store, timing(None), random);
                // If reading the store fails here, the process reads it with its next message or
                // timer.
                let _ = machine.refresh(now);
                self.vnos[number].start(machine);
            }
            Who::Host(_) => {}
        }
        self.busy_until.remove(&who);
        self.queue.put(now.as_nanos(), Event::Timer(who));
    }

    /// Runs until the end of the scenario.
    pub(super) fn run(mut self) -> Result<Outcome, Violation> {
        let end = self.scenario.end.as_nanos();
        let mut is_calm = false;
        while let Some(event) = self.queue.take(end) {
            if !is_calm && !self.is_troubled() {
                is_calm = true;
                self.calm();
            }
            let done = self.check_pace(&event).and_then(|()| self.step(event));
            done.map_err(|what| self.violation(what))?;
        }
        self.check_nothing_left()
            .map_err(|what| self.violation(what))?;
        Ok(self.outcome)
    }

    /// Fails if there are too many events within one second.
    fn check_pace(&mut self, event: &Event) -> Result<(), Broken> {
        let second = self.now().since(START).as_secs();
        if self.pace.0 != second {
            self.pace = (second, 0);
        }
        self.pace.1 += 1;
        if self.pace.1 > EVENTS_MAX {
            Err(Broken(format!(
                "{EVENTS_MAX} events within a second; the next would be {event:?}"
            )))
        } else {
            Ok(())
        }
    }

    fn violation(&self, what: Broken) -> Violation {
        Violation {
            seed: self.seed,
            at: self.now().since(START).to_string(),
            what: what.0,
        }
    }

    fn step(&mut self, event: Event) -> Result<(), Broken> {
        let now = self.now();
        match event {
            Event::Deliver(who, packet) => self.deliver(now, who, packet),
            Event::Timer(who) => self.give(now, who, Work::Timer),
            Event::Turn(who) => self.turn(now, who),
            Event::Report(host, is_regular) => self.report(now, host, is_regular),
            Event::Wish(wish) => {
                self.wish(now, wish);
                Ok(())
            }
            Event::Death => {
                self.kill_one(now);
                Ok(())
            }
            Event::Move => self.move_one(now),
            Event::Cut => {
                self.cut_one(now);
                Ok(())
            }
            Event::StoreAway => {
                self.store_away(now);
                Ok(())
            }
            Event::Drain => {
                self.drain_one(now);
                Ok(())
            }
            Event::SetDrained(host, is_drained) => self.set_drained(now, host, is_drained),
            Event::Leave(host) => self.leave(now, host),
            Event::Restart(who) if self.is_lost(who) => Ok(()),
            Event::Restart(who) => {
                self.note(|| format!("{who:?} starts again"));
                self.start(who);
                Ok(())
            }
            Event::Meddle => {
                self.meddle();
                Ok(())
            }
            Event::Stray(host) => {
                self.stray(now, host);
                Ok(())
            }
            Event::RemoveAll => self.remove_all(now),
        }
    }

    fn deliver(&mut self, now: Instant, who: Who, packet: Packet) -> Result<(), Broken> {
        let from = match (who, packet) {
            (Who::Host(host), Packet::ToHost(message)) => {
                return self.tell_host(now, host, message);
            }
            (Who::Host(host), Packet::Guest(number, guest)) => {
                self.take_guest(now, host, number, guest);
                return Ok(());
            }
            (Who::Host(_), packet) => {
                return Err(Broken(format!("{who:?} was sent {packet:?}")));
            }
            (_, packet) => packet,
        };
        let name = match &from {
            Packet::ToPip(from, _) => self.scenario.vnps[*from].0.clone(),
            Packet::FromPip(from, _) => self.scenario.pips[*from].0.clone(),
            Packet::ToVnp(from, _) => self.operators[*from].0.clone(),
            Packet::FromHost(_) | Packet::FromVnp(_) | Packet::ToHost(_) | Packet::Guest(..) => {
                String::new()
            }
        };
        self.give(now, who, Work::Take(name, from))
    }

    fn tell_host(&mut self, now: Instant, host: usize, message: ToAgent) -> Result<(), Broken> {
        if now < self.down_until[host] {
            return Ok(());
        }
        let boot = Duration::from_millis(self.random.within(50, 3000));
        let death = self.hosts[host].dies_at_order.take();
        let vnet = vnet_of(&message);
        if death != Some(Death::Before) {
            let before = self.hosts[host].came;
            self.hosts[host].handle(now, message, boot);
            self.outcome.moved += self.hosts[host].came - before;
            self.send_guests(host);
            self.note_change(host, vnet);
        }
        self.check_guests(vnet)?;
        let nics = |part: &HostPart, node: &str| {
            let key = (part.vnet, round_of(part.generation), node.to_owned());
            self.nics.get(&key).copied().unwrap_or_default()
        };
        let excess = self.hosts[host].excess(nics);
        let excess = excess.or_else(|| self.hosts[host].beyond_limits());
        excess.map_or(Ok(()), |what| Err(Broken(what)))?;
        if death.is_some() {
            self.agent_dies(now, host);
            return Ok(());
        }
        self.tell_pips(now, host);
        let up = now + boot;
        for at in [up, up + CONSOLE] {
            self.queue.put(at.as_nanos(), Event::Report(host, false));
        }
        Ok(())
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at = Instant::from_nanos(self.queue.now()).since(START);
        if let Some(trace) = &mut self.trace {
            trace(&format!("{at} {}", line()));
        }
    }
}

/// The network that an order concerns.
fn vnet_of(message: &ToAgent) -> VnetId {
    match message {
        ToAgent::Set(part) => part.vnet,
        ToAgent::Receive(order) => order.part.vnet,
        ToAgent::Send(order) => order.vnet,
        ToAgent::Remove { vnet, .. } | ToAgent::EndMove { vnet, .. } => *vnet,
    }
}
/// Largest plausible number of events in a second.
const EVENTS_MAX: u32 = 1_000_000;

/// Number that is mixed into the seed for events that plain runs do not have.
const UPSETS: u64 = 1;

/// Share of hosts, in 1/10000, that never send a report.
const NEVER_REPORT: u32 = 400;

/// Description of a requirement that the run violated.
struct Broken(String);
