//! Simulates applications that have one flow after another. Each requests its next flow as soon as
//! its own end of the last one has ended. At that time the other end, or reports about the last
//! flow, may still be on their way.
//!
//! Flow identifiers are reused as soon as the dialect allows it, over cables that reorder PDUs. So
//! the end of one flow and the start of the next meet in every order.

use carina_ipcp::{Command, Config, DifConfig};
use carina_wire::FlowSpec;
use carina_wire::dif::Dialect;

use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::{Attachment, Below, SlotId};
use crate::run_error::RunError;
use crate::session::{Ending, FlowRequest, Reader, State};
use crate::stream::Lengths;
use crate::world::World;
use carina_random::{Random, mix};

/// Applications with one flow after another: seed, dialect, and number of flows.
#[derive(Clone, Copy, Debug)]
pub struct Churn {
    /// Seed of the simulation.
    pub seed: u64,
    /// Dialect of the members.
    pub dialect: Dialect,
    /// Number of flows that each caller has, one after another.
    pub rounds: usize,
}

/// An application that requests flows.
struct Client {
    from: SlotId,
    to: usize,
    rounds: usize,
    /// Number of its current session, and how the session will end.
    current: Option<(usize, Parting)>,
}

/// Which side ends a flow, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// The calling side, before it has an answer, after this number of steps.
    Unanswered(u64),
    /// The side with this number ends the flow when it has written everything.
    Written(usize),
    /// Each side ends the flow when it has written everything.
    Both,
}

/// A simulation under way, of three members in a row.
struct Run {
    world: World,
    random: Random,
    callers: Vec<Client>,
    flows: u64,
}

impl Churn {
    /// Runs all flows, and returns how many were requested.
    ///
    /// # Errors
    /// A flow or a check has failed; the error lists all failures.
    pub fn run(&self, member_factory: MemberFactory) -> Result<u64, RunError> {
        let terms = Terms::of(self.dialect);
        let mut run = Run::new(self, member_factory);
        run.live(terms);
        let failures = run.world.take_failures();
        if failures.is_empty() {
            Ok(run.flows)
        } else {
            Err(RunError {
                failures,
                state: run.world.describe(),
            })
        }
    }
}

impl Run {
    fn new(churn: &Churn, member_factory: MemberFactory) -> Run {
        let terms = Terms::of(churn.dialect);
        let mut random = Random::new(mix(churn.seed, 0xc407));
        // Where requests are not repeated, the cables lose none.
        let (loss, duplication) = if terms.repeats_management {
            (200, 1_000)
        } else {
            (0, 0)
        };
        let profile = Profile {
            delay_ns: random.within(MS / 10, 20 * MS),
            jitter_ns: random.below(10 * MS),
            reorder: 2_000,
            loss,
            duplication,
            ..Profile::clean()
        };
        let config = terms.config(churn.seed, MEMBERS, &profile, DifConfig::default());
        let mut world = World::new(churn.seed, member_factory);
        let systems: Vec<_> = (0..MEMBERS)
            .map(|at| world.add_system(&format!("s{at}")))
            .collect();
        let mut slots = Vec::new();
        for (at, system) in systems.iter().enumerate() {
            let config = Config {
                name: format!("m{at}"),
                dif: "net".to_owned(),
                dialect: churn.dialect,
                dif_config: Some(config.clone()),
            };
            let born = world.now() + at as u64 * 1_000 * MS;
            slots.push(world.add_slot(*system, config, at == 0, born));
            world.add_app(slots[at], &format!("app{at}"));
        }
        for at in 1..MEMBERS {
            let ends = [at, at - 1];
            let cable = world.add_cable(ends.map(|end| systems[end]), profile, None);
            for side in 0..2 {
                let attachment = Attachment {
                    below: Below::Cable(cable),
                    remote: format!("m{}", ends[1 - side]),
                    is_initiator: side == 0,
                    is_reliable: false,
                };
                world.attach(slots[ends[side]], attachment);
            }
        }
        let pairs = (0..MEMBERS).flat_map(|from| (0..MEMBERS).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| from != to);
        let callers = pairs.flat_map(|pair| [pair; CALLERS_PER_PAIR]);
        let caller = |(from, to): (usize, usize)| Client {
            from: slots[from],
            to,
            rounds: churn.rounds,
            current: None,
        };
        let callers = callers.map(caller).collect();
        Run {
            world,
            random,
            callers,
            flows: 0,
        }
    }

    fn live(&mut self, terms: Terms) {
        let end = self.world.now() + terms.join_ns(MEMBERS as u64);
        let has_joined = |world: &World| world.is_joined();
        if !self
            .world
            .run_while(end, 1_000 * MS, |world| !has_joined(world))
        {
            return self.world.fail("not all members have joined".to_owned());
        }
        // Time in which every member learns of every application.
        self.world.run_for(60_000 * MS);
        let end = self.world.now() + LIMIT_NS;
        while self.goes_on() {
            self.world.run_for(STEP_NS);
            if self.world.now() > end {
                return self.world.fail("some flows never end".to_owned());
            }
            for at in 0..self.callers.len() {
                self.turn(at);
            }
        }
        if self.world.failures().is_empty() {
            self.world.run_for(terms.part_ns);
            self.world.check_sessions();
        }
        if self.world.failures().is_empty() {
            self.world.check_leaks();
        }
    }

    fn goes_on(&self) -> bool {
        let is_busy = |caller: &Client| caller.rounds > 0 || caller.current.is_some();
        self.world.failures().is_empty() && self.callers.iter().any(is_busy)
    }

    /// Performs the next action of a caller.
    fn turn(&mut self, at: usize) {
        let Some((number, parting)) = self.callers[at].current else {
            return self.call(at);
        };
        let [caller, _] = &self.world.sessions[number].ends;
        match caller.as_ref().map(|end| end.state.clone()) {
            Some(State::Requesting) => {
                if let Parting::Unanswered(steps) = parting {
                    match steps.checked_sub(1) {
                        Some(left) => {
                            let parting = Parting::Unanswered(left);
                            self.callers[at].current = Some((number, parting));
                        }
                        None => self.give_up(number),
                    }
                }
            }
            Some(State::Open) => self.part(number, parting),
            Some(State::Denied(reason)) => {
                let text = format!("session {number} is refused: {reason}");
                self.world.fail(text);
            }
            // The other end may not have heard of the end yet.
            _ => {
                self.callers[at].current = None;
                self.call(at);
            }
        }
    }

    fn call(&mut self, at: usize) {
        let caller = &mut self.callers[at];
        let Some(left) = caller.rounds.checked_sub(1) else {
            return;
        };
        caller.rounds = left;
        let spec = *self
            .random
            .pick(&[FlowSpec::reliable(), FlowSpec::unreliable()]);
        let parting = match self.random.below(8) {
            0 => Parting::Unanswered(self.random.below(40)),
            1..4 => Parting::Written(0),
            4..6 => Parting::Written(1),
            _ => Parting::Both,
        };
        let request = FlowRequest {
            from: caller.from,
            to: format!("app{}", caller.to),
            spec,
            sdus: [self.random.below(6), self.random.below(6)],
            lengths: Lengths::Mixed(400),
            pause_ns: 0,
            readers: [Reader::eager(); 2],
            ending: Ending::Never,
            is_refused: false,
        };
        match self.world.call(request) {
            Some(number) => {
                self.flows += 1;
                self.callers[at].current = Some((number, parting));
            }
            None => {
                let (from, to) = (self.callers[at].from, self.callers[at].to);
                let name = self.world.name(from).to_owned();
                self.world.fail(format!("{name} cannot call app{to}"));
            }
        }
    }

    /// Ends a session if the time for it has come.
    fn part(&mut self, number: usize, parting: Parting) {
        let sides: &[usize] = match parting {
            Parting::Written(0) => &[0],
            Parting::Written(_) => &[1],
            Parting::Both | Parting::Unanswered(_) => &[0, 1],
        };
        for side in sides {
            if self.world.sessions[number].streams[*side].is_written() {
                self.world.close(number, *side);
            }
        }
    }

    /// The calling application gives its request up without waiting for the answer.
    fn give_up(&mut self, number: usize) {
        let Some(end) = &mut self.world.sessions[number].ends[0] else {
            return;
        };
        end.state = State::Ended;
        let (slot, flow) = (end.slot, end.key);
        if let Some(instance) = self.world.instance(slot) {
            instance.let_go(flow);
        }
        let reason = String::new();
        self.world
            .command(slot, Command::Deallocate { flow, reason });
    }
}

const MEMBERS: usize = 3;

const CALLERS_PER_PAIR: usize = 2;

const MS: u64 = 1_000_000;

/// Interval between two actions of a caller.
const STEP_NS: u64 = 2 * MS;

/// Time limit for all flows.
const LIMIT_NS: u64 = 3_000_000 * MS;
