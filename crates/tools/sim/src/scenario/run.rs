//! Runs a scenario, one part after another.

use carina_ipcp::Config;
use carina_wire::FlowSpec;

use super::drawing::draw_spec;
use super::{Fault, SECOND, Scenario};
use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::{Attachment, Below, CableId, SlotId, SystemId};
use crate::session::{Ending, FlowRequest, Reader};
use crate::stream::Lengths;
use crate::world::World;
use carina_random::{Random, mix};

/// A scenario that is being run.
pub(super) struct Run<'a> {
    scenario: &'a Scenario,
    terms: Terms,
    pub(super) world: World,
    random: Random,
    systems: Vec<SystemId>,
    slots: Vec<SlotId>,
    /// The cable of each edge; `None` if a member at one of its ends is left out.
    cables: Vec<Option<CableId>>,
    /// The members that are not left out.
    members: Vec<usize>,
    /// Time in ns at which all members had joined.
    begin: u64,
}

impl<'a> Run<'a> {
    pub(super) fn new(scenario: &'a Scenario, member_factory: MemberFactory) -> Run<'a> {
        let terms = Terms::of(scenario.dialect);
        let mut world = World::new(scenario.seed, member_factory);
        world.flow_ends = terms.flow_ends(&scenario.config, scenario.loses_management());
        let mut random = Random::new(mix(scenario.seed, 0xdec1de));
        let systems: Vec<SystemId> = (0..scenario.members)
            .map(|at| world.add_system(&format!("s{at}")))
            .collect();
        let start = world.now();
        let members: Vec<usize> = scenario.kept.members.0.iter().copied().collect();
        let founder = random.index(scenario.members);
        let founder = if scenario.kept.members.has(founder) {
            founder
        } else {
            members[0]
        };
        let slots: Vec<SlotId> = (0..scenario.members)
            .map(|at| {
                let config = Config {
                    name: format!("m{at}"),
                    dif: DIF.to_owned(),
                    dialect: scenario.dialect,
                    dif_config: Some(scenario.config.clone()),
                };
                let born = start + random.below(3 * SECOND);
                world.add_slot(systems[at], config, at == founder, born)
            })
            .collect();
        let mut cables = Vec::new();
        for (edge, ends) in scenario.edges.iter().enumerate() {
            let pair = ends.map(|end| systems[end]);
            let cable = world.add_cable(pair, scenario.profile, scenario.detection_ns);
            let initiator = random.index(2);
            if !scenario.has_edge(edge) {
                cables.push(None);
                continue;
            }
            for side in 0..2 {
                let attachment = Attachment {
                    below: Below::Cable(cable),
                    remote: format!("m{}", ends[1 - side]),
                    is_initiator: side == initiator,
                    is_reliable: false,
                };
                world.attach(slots[ends[side]], attachment);
            }
            cables.push(Some(cable));
        }
        for (at, slot) in slots.iter().enumerate() {
            world.add_app(*slot, &format!("app{at}"));
            if !scenario.kept.members.has(at) {
                // This member never starts: its system is dead from the beginning.
                world.crash(systems[at]);
            }
        }
        Run {
            scenario,
            terms,
            world,
            random,
            systems,
            slots,
            cables,
            members,
            begin: start,
        }
    }

    pub(super) fn live(&mut self) {
        self.join();
        self.work();
        self.heal();
        self.wait_until_stable();
        self.part();
    }

    fn is_broken(&self) -> bool {
        !self.world.failures().is_empty()
    }

    fn join(&mut self) {
        let patience = self.terms.join_ns(self.scenario.members as u64);
        let end = self.begin + patience;
        if !self
            .world
            .run_while(end, SECOND / 4, |world| !world.is_joined())
        {
            let state = self.world.describe();
            self.fail(format!(
                "not all members have joined after {} s\n{state}",
                patience / SECOND
            ));
        }
        self.begin = self.world.now();
    }

    /// Makes calls at random times, between the faults.
    fn work(&mut self) {
        let heal = self.scenario.heal_ns;
        let mut plan: Vec<(u64, Option<&Fault>)> = (0..self.scenario.calls)
            .map(|_| (self.random.below(heal), None))
            .collect();
        let faults = self.scenario.faults.iter().enumerate();
        let kept = faults.filter(|(number, _)| self.scenario.kept.faults.has(*number));
        plan.extend(kept.map(|(_, (at, fault))| (*at, Some(fault))));
        plan.sort_by_key(|(at, _)| *at);
        let mut calls = 0;
        for (at, fault) in plan {
            self.world.run_until(self.begin + at);
            if self.is_broken() {
                return;
            }
            match fault {
                None => {
                    self.call(calls);
                    calls += 1;
                }
                Some(fault) => self.inflict(fault),
            }
        }
        self.world.run_until(self.begin + heal);
    }

    /// Applies a fault, as far as it concerns members that are not left out.
    fn inflict(&mut self, fault: &Fault) {
        let world = &mut self.world;
        let is_kept = |at: &usize| self.scenario.kept.members.has(*at);
        let cables = |edges: &[usize]| -> Vec<CableId> {
            edges.iter().filter_map(|at| self.cables[*at]).collect()
        };
        match fault {
            Fault::Crash(at) | Fault::Restart(at) | Fault::Leave(at) | Fault::ComeBack(at)
                if !is_kept(at) => {}
            Fault::Crash(at) => world.crash(self.systems[*at]),
            Fault::Restart(at) => world.restart(self.systems[*at]),
            Fault::Cut(edges) => cables(edges).into_iter().for_each(|cable| world.cut(cable)),
            Fault::Mend(edges) => cables(edges)
                .into_iter()
                .for_each(|cable| world.mend(cable)),
            Fault::Storm(edge) => {
                let calm = self.scenario.profile;
                let storm = Profile {
                    loss: 2_500,
                    duplication: 500,
                    reorder: 1_000,
                    jitter_ns: calm.jitter_ns + 20_000_000,
                    ..calm
                };
                if let Some(cable) = self.cables[*edge] {
                    world.set_profile(cable, storm);
                }
            }
            Fault::Calm(edge) => {
                if let Some(cable) = self.cables[*edge] {
                    world.set_profile(cable, self.scenario.profile);
                }
            }
            Fault::Leave(at) => world.leave(self.slots[*at]),
            Fault::ComeBack(at) => world.come_back(self.slots[*at]),
        }
    }

    /// How cables treat PDUs after everything is repaired.
    fn peace(&self) -> Profile {
        self.terms.peace(self.scenario.profile)
    }

    fn heal(&mut self) {
        for cable in self.cables.iter().flatten() {
            self.world.mend(*cable);
            self.world.set_profile(*cable, self.peace());
        }
        for at in &self.members {
            self.world.restart(self.systems[*at]);
        }
        for at in &self.members {
            let slot = self.slots[*at];
            if !self.world.is_wanted(slot) {
                self.world.come_back(slot);
            }
        }
    }

    /// Makes the call with this number, unless it or one of its ends is left out. It is drawn in
    /// any case, so that the other calls stay the same.
    fn call(&mut self, number: usize) {
        let from = self.random.index(self.slots.len());
        let to = self.random.index(self.slots.len());
        let kept = &self.scenario.kept;
        let has_ends = [from, to].iter().all(|at| kept.members.has(*at));
        let is_kept = kept.calls.has(number) && has_ends;
        let from = self.slots[from];
        let spec = draw_spec(&mut self.random);
        let small = self.scenario.profile.rate_bps > 0 || self.scenario.profile.loss > 50;
        let sdus_max = if small { 30 } else { 120 };
        let reader = |random: &mut Random| match random.below(4) {
            0 => Reader {
                capacity: 128 * 1024,
                stops_every: random.within(1, 60_000),
                stops_ns: random.within(1_000_000, 5 * SECOND),
            },
            _ => Reader::eager(),
        };
        let ending = *self.random.pick(&[
            Ending::WhenDone,
            Ending::WhenDone,
            Ending::WhenWritten,
            Ending::Never,
        ]);
        let request = FlowRequest {
            from,
            to: format!("app{to}"),
            spec,
            sdus: [self.random.below(sdus_max), self.random.below(sdus_max)],
            lengths: self.lengths(),
            pause_ns: *self.random.pick(&[0, 1_000_000, 300_000_000]),
            readers: [reader(&mut self.random), reader(&mut self.random)],
            ending,
            is_refused: self.random.chance(500),
        };
        if is_kept {
            self.world.call(request);
        }
    }

    fn lengths(&mut self) -> Lengths {
        let sdu_max = self.sdu_max();
        match self.random.below(4) {
            0 => Lengths::Fixed(sdu_max.min(self.random.below(3_000) as usize)),
            1 => Lengths::Mixed(sdu_max.min(100_000)),
            _ => Lengths::Mixed(sdu_max.min(10_000)),
        }
    }

    /// Longest SDU of the calls, in bytes.
    fn sdu_max(&self) -> usize {
        let Scenario {
            config, profile, ..
        } = self.scenario;
        self.terms.sdu_max(config, profile)
    }

    /// Waits until the DIF must have recovered, and checks it. Probes show that the DIF works.
    fn wait_until_stable(&mut self) {
        if self.is_broken() {
            return;
        }
        let end = self.world.now() + self.terms.settle_ns;
        if !self
            .world
            .run_while(end, SECOND, |world| !world.is_joined())
        {
            let state = self.world.describe();
            return self.fail(format!(
                "not all members are back {} s after the last fault\n{state}",
                self.terms.settle_ns / SECOND
            ));
        }
        if !self.peace().drops() {
            // A PDU may find no route until a member's neighbours have repeated what they know.
            self.world.peace_since = Some(self.world.now() + self.terms.refresh_ns);
        }
        self.world.run_until(end);
        // On cables with much loss, a request may fail once.
        let rounds = if self.is_lossy() { 3 } else { 1 };
        for round in 1..=rounds {
            let wrong = self.probe();
            match wrong {
                Some(wrong) if round == rounds => return self.fail(wrong),
                Some(_) => {}
                None => break,
            }
        }
        self.await_slow_flows();
        if !self.is_broken() {
            self.world.check_sessions();
        }
        if !self.is_broken() {
            self.world.check_dif(DIF);
        }
    }

    /// Waits for slow flows, so that each is judged after it has ended or stopped. A connection
    /// that gets nothing through within the R of its cube fails, and both ends learn that.
    fn await_slow_flows(&mut self) {
        let cubes = self.scenario.config.cubes.iter();
        let r_ms = cubes.map(|cube| u64::from(cube.retransmit_ms)).max();
        let stall = r_ms.map_or(60 * SECOND, |ms| ms * 1_000_000);
        let end = self.world.now() + SLOW_MAX;
        self.world
            .run_while(end, SECOND, |world| world.has_slow_flow(stall));
    }

    /// Makes new flows between random members. Returns what is wrong with one of them, or `None`.
    fn probe(&mut self) -> Option<String> {
        let mut probes = Vec::new();
        for _ in 0..PROBES {
            let from = self.slots[*self.random.pick(&self.members)];
            let to = *self.random.pick(&self.members);
            let request = FlowRequest {
                from,
                to: format!("app{to}"),
                spec: FlowSpec::reliable(),
                sdus: [10, 10],
                lengths: Lengths::Mixed(self.sdu_max().min(10_000)),
                pause_ns: 0,
                readers: [Reader::eager(); 2],
                ending: Ending::WhenDone,
                is_refused: false,
            };
            match self.world.call(request) {
                Some(number) => probes.push(number),
                None => {
                    return Some(format!(
                        "no probe from {} to app{to}",
                        self.world.name(from)
                    ));
                }
            }
        }
        let is_lossy = self.is_lossy();
        self.world
            .run_for(if is_lossy { 4 * PROBE_NS } else { PROBE_NS });
        let failed = |number: &usize| {
            let wrong = self.world.probe_failed(*number)?;
            Some(format!("probe {number}: {wrong}"))
        };
        let mut wrong: Vec<String> = probes.iter().filter_map(failed).collect();
        // Over many hops with much loss, some flows may fail if both their ends know it, but not
        // all flows.
        let is_fine = is_lossy && wrong.len() < probes.len();
        if is_fine { None } else { wrong.pop() }
    }

    fn is_lossy(&self) -> bool {
        let peace = self.peace();
        if self.terms.repeats_management {
            // A damaged PDU counts as lost.
            peace.loss + peace.corruption >= 50
        } else {
            // Even one lost PDU makes the cable lossy.
            peace.drops()
        }
    }

    /// Ends all flows, and checks that no state is left.
    fn part(&mut self) {
        if self.is_broken() {
            return;
        }
        self.world.close_all();
        self.world.run_for(self.terms.part_ns);
        if !self.is_broken() {
            self.world.check_leaks();
        }
    }

    fn fail(&mut self, text: String) {
        if !self.is_broken() {
            self.world.fail(text);
        }
    }
}

const DIF: &str = "net";

/// Time limit of a probe.
const PROBE_NS: u64 = 30 * SECOND;

/// Longest time that a slow flow may take after everything is repaired.
const SLOW_MAX: u64 = 3_600 * SECOND;

const PROBES: usize = 4;
