//! The simulated world: systems, cables between them, IPCPs on them, and the main loop.

mod dispatch;

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::RibObject;
use carina_ipcp::{Command, Config, Reason};
use carina_wire::dif::Address;

use crate::dialect::FlowEnds;
use crate::event_queue::EventQueue;
use crate::link::{Pipe, Profile, Tally};
use crate::member::MemberFactory;
use crate::model::{
    Attachment, Cable, CableId, Instance, IpcpSlot, Scheduled, SlotId, System, SystemId, Tallies,
};
use crate::session::Session;
use crate::trace::Trace;
use carina_random::Random;

/// The simulated systems, cables, IPCPs and applications on a virtual clock, with the queue of what
/// happens next.
pub struct World {
    pub(crate) queue: EventQueue<Scheduled>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) systems: Vec<System>,
    pub(crate) cables: Vec<Cable>,
    pub(crate) slots: Vec<IpcpSlot>,
    pub(crate) names: BTreeMap<String, SlotId>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) answers: BTreeMap<u64, Result<Vec<RibObject>, Reason>>,
    pub(crate) tallies: Tallies,
    /// What members report about the ends of flows.
    pub(crate) flow_ends: FlowEnds,
    /// Time in ns since when no PDU is lost; `None` while there are faults.
    pub(crate) peace_since: Option<u64>,
    /// Slots whose IPCP has something to do at this moment.
    dirty: BTreeSet<usize>,
    failures: Vec<String>,
    member_factory: MemberFactory,
    seed: u64,
    pub(crate) next_answer: u64,
}

impl World {
    /// A world without systems, whose clock shows 1 s and whose random numbers depend on `seed`.
    #[must_use]
    pub fn new(seed: u64, member_factory: MemberFactory) -> World {
        World {
            queue: EventQueue::new(1_000_000_000),
            random: Random::new(seed),
            trace: Trace::new(),
            systems: Vec::new(),
            cables: Vec::new(),
            slots: Vec::new(),
            names: BTreeMap::new(),
            sessions: Vec::new(),
            answers: BTreeMap::new(),
            tallies: Tallies::default(),
            flow_ends: FlowEnds::default(),
            peace_since: None,
            dirty: BTreeSet::new(),
            failures: Vec::new(),
            member_factory,
            seed,
            next_answer: 0,
        }
    }

    /// Adds a system without IPCPs, which runs.
    pub fn add_system(&mut self, name: &str) -> SystemId {
        self.systems.push(System {
            name: name.to_owned(),
            is_up: true,
            slots: Vec::new(),
        });
        SystemId(self.systems.len() - 1)
    }

    /// Adds a cable. `detection_ns` is the time after which its ends detect that the cable or the
    /// other system is dead; `None` if they never do.
    pub fn add_cable(
        &mut self,
        ends: [SystemId; 2],
        profile: Profile,
        detection_ns: Option<u64>,
    ) -> CableId {
        let number = self.cables.len();
        let random = self.random.fork();
        let [a, b] = ends.map(|end| self.systems[end.0].name.clone());
        self.cables.push(Cable {
            name: format!("wire{number}-{a}-{b}"),
            ends,
            profile,
            is_up: true,
            epoch: 0,
            detection_ns,
            pipes: Default::default(),
            flows: BTreeMap::new(),
            next_flow: 0,
            random,
        });
        CableId(number)
    }

    /// Adds an IPCP to a system. It starts at `at` ns; with `founds` it then becomes the first
    /// member of its DIF.
    pub fn add_slot(&mut self, system: SystemId, config: Config, founds: bool, at: u64) -> SlotId {
        let id = SlotId(self.slots.len());
        self.systems[system.0].slots.push(id);
        self.names.insert(config.name.clone(), id);
        self.slots.push(IpcpSlot {
            system,
            config,
            founds,
            is_wanted: true,
            attachments: Vec::new(),
            apps: Vec::new(),
            incarnation: 0,
            instance: None,
        });
        self.queue.put(at, Scheduled::Start(id));
        id
    }

    /// Adds an N-1 flow that an IPCP is meant to have; the world allocates it when the IPCP runs.
    /// Only allowed before the IPCP starts.
    pub fn attach(&mut self, slot: SlotId, attachment: Attachment) {
        self.slots[slot.0].attachments.push(attachment);
    }

    /// Makes an application of this system reachable through the slot's DIF, whenever its IPCP
    /// runs.
    pub fn add_app(&mut self, slot: SlotId, name: &str) {
        self.slots[slot.0].apps.push(name.to_owned());
        if self.address(slot).is_some() {
            let name = name.to_owned();
            self.command(slot, Command::Register { name });
        }
    }

    /// Processes all events up to virtual time `end`, in ns. Returns earlier if there is a failure.
    pub fn run_until(&mut self, end: u64) {
        self.process_pending();
        while self.failures.is_empty() {
            let Some(what) = self.queue.take(end) else {
                return;
            };
            self.dispatch(what);
            // Events of the same moment are handled as one burst, as far as they are known by now.
            if self.queue.next_at() != Some(self.now()) {
                self.process_pending();
            }
        }
    }

    /// Processes all events of the next `ns` nanoseconds of virtual time. Returns earlier if there
    /// is a failure.
    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now() + ns);
    }

    /// Runs until `goes_on` returns false; checks it every `step` ns of virtual time. Returns true
    /// then; false if virtual time reaches `end` (in ns) first, or if there is a failure.
    pub fn run_while(
        &mut self,
        end: u64,
        step: u64,
        mut goes_on: impl FnMut(&World) -> bool,
    ) -> bool {
        while goes_on(self) {
            if self.now() >= end || !self.failures.is_empty() {
                return false;
            }
            self.run_until((self.now() + step).min(end));
        }
        true
    }

    /// The virtual time in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.queue.now()
    }

    /// The seed of the world.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The trace of all events.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Totals of the simulation from its start until now.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// Counts of both directions of each cable.
    pub fn cable_tallies(&self) -> impl Iterator<Item = Tally> + '_ {
        self.cables
            .iter()
            .flat_map(|cable| cable.pipes.iter().map(Pipe::tally))
    }

    /// The failures so far.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Removes and returns the failures so far, so that the world can continue.
    pub fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }

    /// The address of a slot's IPCP in its DIF; `None` if the IPCP does not run or is not a member.
    #[must_use]
    pub fn address(&self, slot: SlotId) -> Option<Address> {
        self.slots[slot.0].instance.as_ref()?.address
    }

    /// All slots of a DIF.
    pub fn slots_of<'a>(&'a self, dif: &'a str) -> impl Iterator<Item = SlotId> + 'a {
        let is_in = move |(_, slot): &(usize, &IpcpSlot)| slot.config.dif == dif;
        let slots = self.slots.iter().enumerate().filter(is_in);
        slots.map(|(index, _)| SlotId(index))
    }

    /// Name of a slot's IPCP.
    #[must_use]
    pub fn name(&self, slot: SlotId) -> &str {
        &self.slots[slot.0].config.name
    }

    /// Name of a slot's DIF.
    #[must_use]
    pub fn dif(&self, slot: SlotId) -> &str {
        &self.slots[slot.0].config.dif
    }

    /// Name of a system.
    #[must_use]
    pub fn system_name(&self, system: SystemId) -> &str {
        &self.systems[system.0].name
    }

    /// The slots on a system.
    #[must_use]
    pub fn slots_on(&self, system: SystemId) -> Vec<SlotId> {
        self.systems[system.0].slots.clone()
    }

    /// The number of these slots whose IPCPs are members.
    #[must_use]
    pub fn members(&self, slots: &[SlotId]) -> usize {
        let members = slots.iter().filter(|slot| self.address(**slot).is_some());
        members.count()
    }

    /// Gives a command to an IPCP, if it runs, and handles the resulting events.
    pub fn command(&mut self, slot: SlotId, command: Command) {
        let now = self.now();
        if let Some(instance) = &mut self.slots[slot.0].instance {
            instance.member.handle(now, command);
            self.touch(slot);
        }
    }

    pub(crate) fn fail(&mut self, text: String) {
        let now = self.now();
        self.trace.note(now, 0, "FAIL", &[], &text);
        self.failures
            .push(format!("at {:.6} s: {text}", now as f64 / 1e9));
    }

    pub(crate) fn touch(&mut self, slot: SlotId) {
        self.dirty.insert(slot.0);
    }

    pub(crate) fn instance(&mut self, slot: SlotId) -> Option<&mut Instance> {
        self.slots[slot.0].instance.as_mut()
    }

    /// The IPCP of a slot, if it has not been replaced since `incarnation`.
    pub(crate) fn same_instance(
        &mut self,
        slot: SlotId,
        incarnation: u32,
    ) -> Option<&mut Instance> {
        let slot = &mut self.slots[slot.0];
        slot.instance
            .as_mut()
            .filter(|_| slot.incarnation == incarnation)
    }
}
