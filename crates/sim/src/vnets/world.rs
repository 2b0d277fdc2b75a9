//! The roles, the messages between them, and what goes wrong.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use carina_random::Random;
use carina_time::{Duration, Instant};
use carina_vnet::document::Document;
use carina_vnet::host_part::{HostPart, VnetId};
use carina_vnet::message::{FromAgent, FromPip, FromVnp, ToAgent, ToPip, ToVnp};
use carina_vnet::pip::Pip;
use carina_vnet::store::memory::MemoryStore;
use carina_vnet::vno::{Vno, WishError};
use carina_vnet::vnp::Vnp;

use super::host::{CONSOLE, Death, PlayedHost, is_whole};
use super::scenario::{START, Scenario, Wish};
use super::unsteady_store::{Trouble, UnsteadyStore};
use super::{Outcome, Violation, timing};
use crate::event_queue::EventQueue;

use self::answered::Answered;

mod answered;
mod deaths;
mod ending;
mod meddling;
mod sending;

/// A process, or a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// A provider and which of its processes.
    Pip(usize, usize),
    Vnp(usize),
    Vno(usize),
    Host(usize),
}

#[derive(Clone, Debug)]
enum Packet {
    ToPip(usize, ToPip),
    FromPip(usize, FromPip),
    ToHost(ToAgent),
    FromHost(FromAgent),
    ToVnp(usize, ToVnp),
    FromVnp(FromVnp),
}

#[derive(Debug)]
enum Event {
    Deliver(Who, Packet),
    Timer(Who),
    /// A host tells of itself: once a second, or because something has changed.
    Report(usize, bool),
    Wish(Wish),
    Death,
    Restart(Who),
    Meddle,
    RemoveAll,
}

/// A process that may be dead, and its way to its store.
#[derive(Debug)]
struct Process<M> {
    machine: Option<M>,
    trouble: Rc<RefCell<Trouble>>,
    timer_at: Instant,
}

type PipProcess = Process<Pip<UnsteadyStore>>;

pub(super) struct World<'a> {
    scenario: Scenario,
    seed: u64,
    queue: EventQueue<Event>,
    /// A store for the processes of each provider, each VNP, each VNO.
    pip_stores: Vec<Rc<RefCell<MemoryStore>>>,
    vnp_stores: Vec<Rc<RefCell<MemoryStore>>>,
    vno_stores: Vec<Rc<RefCell<MemoryStore>>>,
    pips: Vec<Vec<PipProcess>>,
    vnps: Vec<Process<Vnp<UnsteadyStore>>>,
    vnos: Vec<Process<Vno<UnsteadyStore>>>,
    /// The names of operators and the VNP of each.
    operators: Vec<(String, usize)>,
    hosts: Vec<PlayedHost>,
    /// The provider of each host, and until when the host is down.
    host_of: Vec<usize>,
    down_until: Vec<Instant>,
    /// What operators want, by operator and name, since they were heard.
    wanted: BTreeMap<(usize, String), (Instant, Document)>,
    /// Cards that the nodes of each attempt are to have.
    nics: BTreeMap<(VnetId, u64, String), u64>,
    /// What has answered of each network, and what was asked for.
    answered: Answered,
    /// What hosts had when peers began to ask about networks of others.
    before_meddling: Vec<(usize, VnetId, u64)>,
    random: Random,
    outcome: Outcome,
    trace: Option<&'a mut dyn FnMut(&str)>,
}

impl<'a> World<'a> {
    pub(super) fn new(
        mut scenario: Scenario,
        seed: u64,
        trace: Option<&'a mut dyn FnMut(&str)>,
    ) -> World<'a> {
        let random = scenario.random.fork();
        let store = || Rc::new(RefCell::new(MemoryStore::new(64 << 20)));
        let mut hosts = Vec::new();
        let mut host_of = Vec::new();
        for (number, (_, inventory, _)) in scenario.pips.iter().enumerate() {
            for host in &inventory.hosts {
                hosts.push(PlayedHost::new(host, inventory));
                host_of.push(number);
            }
        }
        let operators = scenario.vnps.iter().enumerate();
        let operators = operators
            .flat_map(|(number, (_, vnos))| vnos.iter().map(move |vno| (vno.clone(), number)));
        let mut world = World {
            queue: EventQueue::new(START.as_nanos()),
            pip_stores: scenario.pips.iter().map(|_| store()).collect(),
            vnp_stores: scenario.vnps.iter().map(|_| store()).collect(),
            vno_stores: operators.clone().map(|_| store()).collect(),
            operators: operators.collect(),
            pips: Vec::new(),
            vnps: Vec::new(),
            vnos: Vec::new(),
            down_until: vec![Instant::ZERO; hosts.len()],
            hosts,
            host_of,
            wanted: BTreeMap::new(),
            nics: BTreeMap::new(),
            answered: Answered::default(),
            before_meddling: Vec::new(),
            random,
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
            let process = self.process();
            self.vnps.push(process);
            self.start(Who::Vnp(number));
        }
        for number in 0..self.operators.len() {
            let process = self.process();
            self.vnos.push(process);
            self.start(Who::Vno(number));
        }
        for number in 0..self.hosts.len() {
            if self.random.chance(NEVER_THERE) {
                self.down_until[number] = Instant::MAX;
            }
            let at = START + Duration::from_millis(self.random.below(1000));
            self.queue.put(at.as_nanos(), Event::Report(number, true));
        }
        for (at, wish) in self.scenario.wishes.clone() {
            self.queue.put(at.as_nanos(), Event::Wish(wish));
        }
        self.queue.put(START.as_nanos(), Event::Death);
        let meddling = self.scenario.meddling;
        self.queue.put(meddling.as_nanos(), Event::Meddle);
        let removal = self.scenario.removal;
        self.queue.put(removal.as_nanos(), Event::RemoveAll);
    }

    fn process<M>(&mut self) -> Process<M> {
        let trouble = Trouble {
            changes_left: None,
            is_dead: false,
            unanswered: self.scenario.unanswered,
            random: self.random.fork(),
        };
        Process {
            machine: None,
            trouble: Rc::new(RefCell::new(trouble)),
            timer_at: Instant::MAX,
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.queue.now())
    }

    fn is_troubled(&self) -> bool {
        self.now() < self.scenario.trouble_ends
    }

    /// Starts a process on what its store has.
    fn start(&mut self, who: Who) {
        let random = self.random.fork();
        let way = |store: &Rc<RefCell<MemoryStore>>, trouble: &Rc<RefCell<Trouble>>| {
            let mut it = trouble.borrow_mut();
            it.is_dead = false;
            it.changes_left = None;
            UnsteadyStore::new(Rc::clone(store), Rc::clone(trouble))
        };
        match who {
            Who::Pip(pip, process) => {
                let slot = &mut self.pips[pip][process];
                let store = way(&self.pip_stores[pip], &slot.trouble);
                let (name, inventory, _) = &self.scenario.pips[pip];
                let machine = Pip::new(name, inventory.clone(), store, timing());
                slot.machine = Some(machine.expect("the scenario's inventory is sound"));
            }
            Who::Vnp(number) => {
                let slot = &mut self.vnps[number];
                let store = way(&self.vnp_stores[number], &slot.trouble);
                let pips = self.scenario.pips.iter().map(|(name, ..)| name.clone());
                let name = &self.scenario.vnps[number].0;
                slot.machine = Some(Vnp::new(name, pips, store, timing(), random));
            }
            Who::Vno(number) => {
                let slot = &mut self.vnos[number];
                let store = way(&self.vno_stores[number], &slot.trouble);
                let name = &self.operators[number].0;
                let mut machine = Vno::new(name, store, timing(), random);
                // What breaks off here is read with the next message or timer.
                let _ = machine.refresh(Instant::from_nanos(self.queue.now()));
                slot.machine = Some(machine);
            }
            Who::Host(_) => {}
        }
        let now = self.queue.now();
        self.queue.put(now, Event::Timer(who));
    }

    /// Plays until the end.
    pub(super) fn run(mut self) -> Result<Outcome, Violation> {
        let end = self.scenario.end.as_nanos();
        let mut is_calm = false;
        while let Some(event) = self.queue.take(end) {
            if !is_calm && !self.is_troubled() {
                is_calm = true;
                self.calm();
            }
            self.step(event).map_err(|what| self.violation(what))?;
        }
        self.check_nothing_left()
            .map_err(|what| self.violation(what))?;
        Ok(self.outcome)
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
            Event::Timer(who) => self.timer(now, who),
            Event::Report(host, is_regular) => self.report(now, host, is_regular),
            Event::Wish(wish) => {
                self.wish(now, wish);
                Ok(())
            }
            Event::Death => {
                self.kill_one(now);
                Ok(())
            }
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
            Event::RemoveAll => self.remove_all(now),
        }
    }

    fn deliver(&mut self, now: Instant, who: Who, packet: Packet) -> Result<(), Broken> {
        match (who, packet) {
            (Who::Pip(pip, process), Packet::ToPip(from, message)) => {
                let name = self.scenario.vnps[from].0.clone();
                let machine = self.pips[pip][process].machine.as_mut();
                machine
                    .into_iter()
                    .for_each(|it| it.handle_vnp(now, &name, message.clone()));
            }
            (Who::Pip(pip, process), Packet::FromHost(message)) => {
                let machine = self.pips[pip][process].machine.as_mut();
                machine
                    .into_iter()
                    .for_each(|it| it.handle_agent(now, message.clone()));
            }
            (Who::Vnp(number), Packet::FromPip(from, message)) => {
                let name = self.scenario.pips[from].0.clone();
                let machine = self.vnps[number].machine.as_mut();
                machine
                    .into_iter()
                    .for_each(|it| it.handle_pip(now, &name, message.clone()));
            }
            (Who::Vnp(number), Packet::ToVnp(from, message)) => {
                let name = self.operators[from].0.clone();
                let machine = self.vnps[number].machine.as_mut();
                machine
                    .into_iter()
                    .for_each(|it| it.handle_vno(now, &name, message.clone()));
            }
            (Who::Vno(number), Packet::FromVnp(message)) => {
                let machine = self.vnos[number].machine.as_mut();
                machine
                    .into_iter()
                    .for_each(|it| it.handle_vnp(now, message.clone()));
            }
            (Who::Host(host), Packet::ToHost(message)) => {
                return self.tell_host(now, host, message);
            }
            (who, packet) => return Err(Broken(format!("{who:?} was sent {packet:?}"))),
        }
        self.flush(now, who)
    }

    fn tell_host(&mut self, now: Instant, host: usize, message: ToAgent) -> Result<(), Broken> {
        if now < self.down_until[host] {
            return Ok(());
        }
        let boot = Duration::from_millis(self.random.within(50, 3000));
        let death = self.hosts[host].dies_at_order.take();
        if death != Some(Death::Before) {
            self.hosts[host].handle(now, message, boot);
        }
        let nics = |part: &HostPart, node: &str| {
            let key = (part.vnet, part.generation, node.to_owned());
            self.nics.get(&key).copied().unwrap_or_default()
        };
        let excess = self.hosts[host].excess(nics);
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

    fn timer(&mut self, now: Instant, who: Who) -> Result<(), Broken> {
        match who {
            Who::Pip(pip, process) => {
                let slot = &mut self.pips[pip][process];
                slot.timer_at = Instant::MAX;
                slot.machine
                    .as_mut()
                    .into_iter()
                    .for_each(|it| it.handle_timeout(now));
            }
            Who::Vnp(number) => {
                let slot = &mut self.vnps[number];
                slot.timer_at = Instant::MAX;
                slot.machine
                    .as_mut()
                    .into_iter()
                    .for_each(|it| it.handle_timeout(now));
            }
            Who::Vno(number) => {
                let slot = &mut self.vnos[number];
                slot.timer_at = Instant::MAX;
                slot.machine
                    .as_mut()
                    .into_iter()
                    .for_each(|it| it.handle_timeout(now));
            }
            Who::Host(_) => {}
        }
        self.flush(now, who)
    }

    fn report(&mut self, now: Instant, host: usize, is_regular: bool) -> Result<(), Broken> {
        if now >= self.down_until[host] {
            self.hosts[host].tidy(now);
            self.tell_pips(now, host);
        }
        if is_regular {
            let next = now + Duration::from_secs(1);
            self.queue.put(next.as_nanos(), Event::Report(host, true));
        }
        Ok(())
    }

    fn tell_pips(&mut self, now: Instant, host: usize) {
        let hosts = &self.hosts;
        let here = &hosts[host];
        let said = here.report(now, |vnet, link| is_whole(hosts, &here.name, vnet, link));
        self.answered.note(&said);
        let pip = self.host_of[host];
        for process in 0..self.pips[pip].len() {
            self.send(Who::Pip(pip, process), Packet::FromHost(said.clone()));
        }
    }

    fn trouble_of(&self, who: Who) -> Option<&Rc<RefCell<Trouble>>> {
        match who {
            Who::Pip(pip, process) => Some(&self.pips[pip][process].trouble),
            Who::Vnp(number) => Some(&self.vnps[number].trouble),
            Who::Vno(number) => Some(&self.vnos[number].trouble),
            Who::Host(_) => None,
        }
    }

    fn wish(&mut self, now: Instant, wish: Wish) {
        let (Wish::Apply { vno, .. } | Wish::Remove { vno, .. }) = &wish;
        let number = self.operators.iter().position(|(name, _)| name == vno);
        let number = number.expect("wishes are of operators that are there");
        let machine = self.vnos[number].machine.as_mut();
        let is_heard = machine.is_some_and(|machine| match &wish {
            Wish::Apply { document, .. } => machine.apply(now, (**document).clone()).is_ok(),
            Wish::Remove { name, .. } => {
                let answer = machine.remove(now, name);
                matches!(answer, Ok(_) | Err(WishError::Unknown(_)))
            }
        });
        self.note(|| format!("wish {wish:?}: {is_heard}"));
        match (&wish, is_heard) {
            (Wish::Apply { document, .. }, true) => {
                let key = (number, document.vnet.name.clone());
                self.wanted.insert(key, (now, (**document).clone()));
            }
            (Wish::Remove { name, .. }, true) => {
                self.wanted.remove(&(number, name.clone()));
            }
            (_, false) => {}
        }
        if !is_heard && now < self.scenario.removal {
            let again = now + Duration::from_secs(2);
            self.queue.put(again.as_nanos(), Event::Wish(wish));
        }
        // It may have died of it; then it says nothing.
        let _ = self.flush(now, Who::Vno(number));
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at = Instant::from_nanos(self.queue.now()).since(START);
        if let Some(trace) = &mut self.trace {
            trace(&format!("{at} {}", line()));
        }
    }
}

/// The share of hosts, of 10,000, that never say anything.
const NEVER_THERE: u32 = 400;

/// What did not hold.
struct Broken(String);
