//! The world: systems, cables between them, IPCPs on them, and the loop that moves time.

use std::collections::{BTreeMap, BTreeSet};

use carina_ipcp::api::RibObject;
use carina_ipcp::{Command, Config};
use carina_wire::dif::{Address, Dialect};

use crate::agenda::Agenda;
use crate::link::{Pipe, Profile, Tally};
use crate::member::Birth;
use crate::parts::{
    Attachment, Cable, CableId, Happening, Life, Link, Seat, SeatId, System, SystemId, Tallies,
};
use crate::trace::Trace;
use crate::traffic::Session;
use carina_random::{Random, mix};

/// Everything.
pub struct World {
    pub(crate) agenda: Agenda<Happening>,
    pub(crate) random: Random,
    pub(crate) trace: Trace,
    pub(crate) systems: Vec<System>,
    pub(crate) cables: Vec<Cable>,
    pub(crate) seats: Vec<Seat>,
    pub(crate) names: BTreeMap<String, SeatId>,
    pub(crate) sessions: Vec<Session>,
    pub(crate) answers: BTreeMap<u64, Result<Vec<RibObject>, String>>,
    pub(crate) tallies: Tallies,
    /// Members say once that a flow is over, and PDUs may be lost: an end may not hear of it.
    pub(crate) are_ends_told_once: bool,
    /// Since when no PDU is lost any more.
    pub(crate) peace_since: Option<u64>,
    /// Seats with something to do at this instant.
    dirty: BTreeSet<usize>,
    failures: Vec<String>,
    birth: Birth,
    seed: u64,
    next_answer: u64,
}

impl World {
    /// An empty world.
    #[must_use]
    pub fn new(seed: u64, birth: Birth) -> World {
        World {
            agenda: Agenda::new(1_000_000_000),
            random: Random::new(seed),
            trace: Trace::new(),
            systems: Vec::new(),
            cables: Vec::new(),
            seats: Vec::new(),
            names: BTreeMap::new(),
            sessions: Vec::new(),
            answers: BTreeMap::new(),
            tallies: Tallies::default(),
            are_ends_told_once: false,
            peace_since: None,
            dirty: BTreeSet::new(),
            failures: Vec::new(),
            birth,
            seed,
            next_answer: 0,
        }
    }

    /// Adds a system.
    pub fn add_system(&mut self, name: &str) -> SystemId {
        self.systems.push(System {
            name: name.to_owned(),
            is_up: true,
            seats: Vec::new(),
        });
        SystemId(self.systems.len() - 1)
    }

    /// Lays a cable. `detection_ns` is how long its ends need to find out that the cable or the
    /// other system is dead; `None` when they never do.
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

    /// Puts an IPCP on a system; it is born at `at`. `founds` makes it the first member then.
    pub fn add_seat(&mut self, system: SystemId, config: Config, founds: bool, at: u64) -> SeatId {
        let id = SeatId(self.seats.len());
        self.systems[system.0].seats.push(id);
        self.names.insert(config.name.clone(), id);
        self.seats.push(Seat {
            system,
            config,
            founds,
            is_wanted: true,
            attachments: Vec::new(),
            apps: Vec::new(),
            incarnation: 0,
            life: None,
        });
        self.agenda.put(at, Happening::Start(id));
        id
    }

    /// Gives an IPCP an N-1 flow that it is meant to have. Only before it is born.
    pub fn attach(&mut self, seat: SeatId, attachment: Attachment) {
        self.seats[seat.0].attachments.push(attachment);
    }

    /// Lets an application of this system be reached through the seat's DIF, whenever the IPCP
    /// lives.
    pub fn add_app(&mut self, seat: SeatId, name: &str) {
        self.seats[seat.0].apps.push(name.to_owned());
        if self.address(seat).is_some() {
            let name = name.to_owned();
            self.command(seat, Command::Register { name });
        }
    }

    /// Lets time pass until `end` ns; stops early when something is wrong.
    pub fn run_until(&mut self, end: u64) {
        self.settle();
        while self.failures.is_empty() {
            let Some(what) = self.agenda.take(end) else {
                return;
            };
            self.happen(what);
            // What happens at the same instant is one burst, as far as it is known by now.
            if self.agenda.next_at() != Some(self.now()) {
                self.settle();
            }
        }
    }

    /// Lets `ns` pass.
    pub fn run_for(&mut self, ns: u64) {
        self.run_until(self.now() + ns);
    }

    /// Lets time pass until a condition holds, looking every `step` ns; false when it does not
    /// by `end`.
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

    /// The time in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.agenda.now()
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What happened.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// What moved.
    #[must_use]
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// What both directions of all cables did.
    pub fn cable_tallies(&self) -> impl Iterator<Item = Tally> + '_ {
        self.cables
            .iter()
            .flat_map(|cable| cable.pipes.iter().map(Pipe::tally))
    }

    /// What went wrong.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// What went wrong; from here on the world can be asked again.
    pub fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }

    /// The address of a seat's IPCP, when it lives and is a member.
    #[must_use]
    pub fn address(&self, seat: SeatId) -> Option<Address> {
        self.seats[seat.0].life.as_ref()?.address
    }

    /// All seats of a DIF.
    pub fn seats_of<'a>(&'a self, dif: &'a str) -> impl Iterator<Item = SeatId> + 'a {
        let is_in = move |(_, seat): &(usize, &Seat)| seat.config.dif == dif;
        let seats = self.seats.iter().enumerate().filter(is_in);
        seats.map(|(index, _)| SeatId(index))
    }

    /// Name of a seat's IPCP.
    #[must_use]
    pub fn name(&self, seat: SeatId) -> &str {
        &self.seats[seat.0].config.name
    }

    /// Name of a seat's DIF.
    #[must_use]
    pub fn dif(&self, seat: SeatId) -> &str {
        &self.seats[seat.0].config.dif
    }

    /// Name of a system.
    #[must_use]
    pub fn system_name(&self, system: SystemId) -> &str {
        &self.systems[system.0].name
    }

    /// The seats on a system.
    #[must_use]
    pub fn seats_on(&self, system: SystemId) -> Vec<SeatId> {
        self.systems[system.0].seats.clone()
    }

    /// How many of these are members.
    #[must_use]
    pub fn members(&self, seats: &[SeatId]) -> usize {
        let members = seats.iter().filter(|seat| self.address(**seat).is_some());
        members.count()
    }

    /// Reads a member's RIB, at once.
    ///
    /// # Errors
    /// The IPCP is dead, gives no answer or an error.
    pub fn read_rib(
        &mut self,
        seat: SeatId,
        path: &str,
        scope: u32,
    ) -> Result<Vec<RibObject>, String> {
        let id = self.next_answer;
        self.next_answer += 1;
        let op = carina_ipcp::api::RibOp::Read {
            path: path.to_owned(),
            scope,
            filter: String::new(),
        };
        self.command(
            seat,
            Command::Rib {
                id,
                member: None,
                op,
            },
        );
        self.settle();
        let answer = self.answers.remove(&id);
        answer.unwrap_or_else(|| Err(format!("{} does not answer", self.name(seat))))
    }

    /// Gives an order to an IPCP, if it lives.
    pub fn command(&mut self, seat: SeatId, command: Command) {
        let now = self.now();
        if let Some(life) = &mut self.seats[seat.0].life {
            life.member.handle(now, command);
            self.touch(seat);
        }
    }

    pub(crate) fn fail(&mut self, text: String) {
        let now = self.now();
        self.trace.note(now, 0, "FAIL", &[], &text);
        self.failures
            .push(format!("at {:.6} s: {text}", now as f64 / 1e9));
    }

    pub(crate) fn touch(&mut self, seat: SeatId) {
        self.dirty.insert(seat.0);
    }

    pub(crate) fn life(&mut self, seat: SeatId) -> Option<&mut Life> {
        self.seats[seat.0].life.as_mut()
    }

    /// The IPCP, if it is still the one that was meant.
    pub(crate) fn same_life(&mut self, seat: SeatId, incarnation: u32) -> Option<&mut Life> {
        let seat = &mut self.seats[seat.0];
        seat.life
            .as_mut()
            .filter(|_| seat.incarnation == incarnation)
    }

    /// Lets every IPCP that has something to do breathe, until none has.
    pub(crate) fn settle(&mut self) {
        while let Some(index) = self.dirty.pop_first() {
            if !self.failures.is_empty() {
                self.dirty.clear();
                return;
            }
            self.breathe(SeatId(index));
        }
    }

    fn happen(&mut self, what: Happening) {
        let now = self.now();
        match what {
            Happening::Start(seat) => self.start(seat),
            Happening::Tend(seat, incarnation) => {
                // A visit that was put forward does not come a second time.
                if let Some(life) = self.same_life(seat, incarnation)
                    && life.tends_at == Some(now)
                {
                    life.tends_at = None;
                    self.tend(seat);
                }
            }
            Happening::Timer(seat, incarnation) => self.timer(seat, incarnation),
            Happening::Asked {
                cable,
                side,
                asker,
                incarnation,
                attachment,
            } => self.asked(cable, side, (asker, incarnation, attachment)),
            Happening::Answered {
                cable,
                asker,
                incarnation,
                attachment,
                flow,
            } => self.answered(cable, (asker, incarnation, attachment), flow),
            Happening::Arrive {
                cable,
                side,
                flow,
                pdu,
            } => self.arrive(cable, side, flow, pdu),
            Happening::Ended { cable, side, flow } => self.ended(cable, side, flow),
            Happening::Detected { cable, epoch } => self.detected(cable, epoch),
            Happening::Unblock(user) => {
                if let Some(life) = self.same_life(user.seat, user.incarnation) {
                    life.member.unblock_n1(user.n1);
                    self.touch(user.seat);
                }
            }
            Happening::Write(session, side) => self.write(session, side),
            Happening::Resume(session, side) => self.resume(session, side),
            Happening::Respond(session, incarnation) => self.respond(session, incarnation),
            Happening::Close(session, side) => self.close(session, side),
        }
        debug_assert_eq!(now, self.now(), "time moves in the agenda only");
    }

    /// Brings the IPCP of a seat to life.
    pub(crate) fn start(&mut self, id: SeatId) {
        let now = self.now();
        let seat = &mut self.seats[id.0];
        if seat.life.is_some() || !self.systems[seat.system.0].is_up {
            return;
        }
        seat.incarnation += 1;
        let founds = seat.founds && seat.incarnation == 1;
        let mut config = seat.config.clone();
        if !founds && config.dialect != Dialect::Irati {
            config.dif_config = None;
        }
        let seed = mix(mix(self.seed, id.0 as u64), u64::from(seat.incarnation));
        let member = match (self.birth)(config, seed) {
            Ok(member) => member,
            Err(reason) => {
                let text = format!("{} is not born: {reason}", self.name(id));
                return self.fail(text);
            }
        };
        let name = &seat.config.name;
        self.trace.note(now, id.0 as u64, "birth", &[], name);
        seat.life = Some(Life {
            member,
            n1s: Vec::new(),
            links: vec![Link::Idle; seat.attachments.len()],
            flows: BTreeMap::new(),
            gone: BTreeSet::new(),
            address: None,
            armed: None,
            tends_at: None,
            busy: (0, 0),
        });
        if founds {
            self.command(id, Command::Bootstrap);
        }
        self.register_below(id);
        self.tend_at(id, now);
        self.touch(id);
    }

    fn timer(&mut self, id: SeatId, incarnation: u32) {
        let now = self.now();
        let Some(life) = self.same_life(id, incarnation) else {
            return;
        };
        if life.armed != Some(now) {
            return;
        }
        life.armed = None;
        if life.member.poll_timeout().is_some_and(|at| at <= now) {
            life.member.handle_timeout(now);
            self.trace.note(now, id.0 as u64, "timer", &[], id.0);
        }
        self.touch(id);
    }

    /// Lets one IPCP do all it has to do at this instant.
    fn breathe(&mut self, id: SeatId) {
        let now = self.now();
        let Some(life) = self.life(id) else {
            return;
        };
        life.busy = match life.busy {
            (at, count) if at == now => (now, count + 1),
            _ => (now, 0),
        };
        if life.busy.1 > BREATHS_MAX {
            let text = format!(
                "{} finds no rest: {BREATHS_MAX} breaths at one instant",
                self.name(id)
            );
            return self.fail(text);
        }
        life.member.end_of_burst(now);
        // The end of a flow is told once its reader has taken everything, hence round and round.
        while self.poll_all(id) {}
        self.arm(id);
    }

    /// Polls everything that an IPCP may have to give; true when it gave something.
    fn poll_all(&mut self, id: SeatId) -> bool {
        let mut gave = false;
        while let Some(event) = self.life(id).and_then(|life| life.member.poll_event()) {
            gave = true;
            self.tell(id, event);
        }
        while let Some(delivery) = self.life(id).and_then(|life| life.member.poll_deliver()) {
            gave = true;
            self.deliver(id, delivery);
        }
        while let Some(key) = self.life(id).and_then(|life| life.member.poll_room()) {
            gave = true;
            self.room_grew(id, key);
        }
        while let Some(n1) = self.life(id).and_then(|life| life.member.poll_n1()) {
            gave = true;
            if !self.transmit(id, n1) {
                break;
            }
        }
        gave && self.failures.is_empty()
    }

    fn arm(&mut self, id: SeatId) {
        let now = self.now();
        let Seat {
            life: Some(life),
            incarnation,
            ..
        } = &mut self.seats[id.0]
        else {
            return;
        };
        let Some(at) = life.member.poll_timeout() else {
            return;
        };
        let at = at.max(now);
        if life.armed.is_none_or(|armed| at < armed || armed < now) {
            life.armed = Some(at);
            self.agenda.put(at, Happening::Timer(id, *incarnation));
        }
    }
}

/// Breaths of one IPCP at one instant that cannot be honest work.
const BREATHS_MAX: u32 = 20_000;
