//! A whole life of a DIF, made from a seed: it grows, works, suffers, heals, and must be well then.
//!
//! ```text
//!   join        systems start one after another and enroll; everybody must be a member
//!   work        applications call one another, all the time from here on
//!   suffer      crashes, cuts, partitions, storms of loss, members that leave
//!   heal        everything is repaired, except systems that stay dead
//!   settle      no fault; probes between random members must succeed
//!   check       every view agrees with the truth, ways are shortest, flows kept their promises
//!   part        all flows are closed; nothing is left over
//! ```

use std::fmt;

use carina_ipcp::{Config, DifConfig, PolicySpec};
use carina_wire::FlowSpec;
use carina_wire::dif::Dialect;

use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::Birth;
use crate::parts::{Attachment, Below, CableId, SeatId, SystemId};
use crate::random::{Random, mix};
use crate::stream::Lengths;
use crate::topology::Shape;
use crate::trace::Sink;
use crate::traffic::{Ending, Reader, Wish};
use crate::world::World;

/// A scenario, not yet run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed that it was made from.
    pub seed: u64,
    /// What the members speak; [`Terms`] says what is other than in a native DIF.
    pub dialect: Dialect,
    /// Members of the DIF, one a system.
    pub members: usize,
    /// The graph.
    pub shape: Shape,
    /// Its edges.
    pub edges: Vec<[usize; 2]>,
    /// Every cable.
    pub profile: Profile,
    /// How soon a dead link is noticed below; `None`: never.
    pub detection_ns: Option<u64>,
    /// The DIF's configuration.
    pub config: DifConfig,
    /// What goes wrong, when; in ns after everybody has joined.
    pub faults: Vec<(u64, Fault)>,
    /// When everything is repaired, in ns after everybody has joined.
    pub heal_ns: u64,
    /// Calls during work and trouble.
    pub calls: usize,
}

/// Something that goes wrong, or well again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A system dies.
    Crash(usize),
    /// It starts again.
    Restart(usize),
    /// Cables are cut, by number of the edge.
    Cut(Vec<usize>),
    /// They are mended.
    Mend(Vec<usize>),
    /// A cable loses, doubles, reorders far more than it should.
    Storm(usize),
    /// It is as before.
    Calm(usize),
    /// A member leaves in order.
    Leave(usize),
    /// It joins again.
    ComeBack(usize),
}

/// What came out.
#[derive(Debug)]
pub struct Outcome {
    /// What went wrong; empty when all is well.
    pub failures: Vec<String>,
    /// The run as a number.
    pub hash: u64,
    /// How many events were folded into it.
    pub events: u64,
    /// Virtual time that passed, in ns.
    pub virtual_ns: u64,
    /// What moved.
    pub tallies: crate::parts::Tallies,
    /// State of the members when something went wrong.
    pub state: String,
}

/// The choices that a person may make instead of the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wanted {
    /// Number of members.
    pub members: Option<usize>,
    /// No faults.
    pub is_calm: bool,
    /// What the members speak.
    pub dialect: Dialect,
}

impl Scenario {
    /// The scenario of a seed.
    #[must_use]
    pub fn new(seed: u64, wanted: Wanted) -> Scenario {
        let mut random = Random::new(mix(seed, 0x5ce_7a10));
        let drawn = draw_members(&mut random);
        let members = wanted.members.unwrap_or(drawn).max(2);
        let shape = *random.pick(&Shape::ALL);
        let edges = shape.edges(members, &mut random);
        let terms = Terms::of(wanted.dialect);
        let drawn = draw_profile(&mut random);
        let profile = terms.cable(drawn);
        let detection_ns = match random.below(3) {
            0 => None,
            1 => Some(10_000_000),
            _ => Some(random.within(100_000_000, 1_500_000_000)),
        };
        let config = draw_config(&mut random, &drawn);
        let config = terms.config(seed, members, &profile, config);
        let calls = random.within(3, 12) as usize;
        let mut scenario = Scenario {
            seed,
            dialect: wanted.dialect,
            members,
            shape,
            edges,
            profile,
            detection_ns,
            config,
            faults: Vec::new(),
            heal_ns: SECOND * random.within(20, 60) * terms.slowness,
            calls,
        };
        if !wanted.is_calm {
            scenario.draw_faults(&mut random);
        }
        scenario
    }

    /// Something may keep a management PDU from its receiver before all is healed.
    fn loses_management(&self) -> bool {
        !self.faults.is_empty() || self.profile.drops()
    }

    fn draw_faults(&mut self, random: &mut Random) {
        // One member lives through everything, so that the DIF does.
        let anchor = random.index(self.members);
        let count = random.within(0, 2 + self.members as u64 / 4);
        for _ in 0..count {
            let start = SECOND * random.within(1, self.heal_ns / SECOND - 2) + random.below(SECOND);
            let end = start + random.within(SECOND / 10, self.heal_ns - start);
            let system = random.index(self.members);
            let edge = random.index(self.edges.len());
            let (bad, good) = match random.below(10) {
                0..4 if system != anchor => (Fault::Crash(system), Fault::Restart(system)),
                4..6 => {
                    let cut = self.draw_cut(random);
                    (Fault::Cut(cut.clone()), Fault::Mend(cut))
                }
                6..8 => (Fault::Storm(edge), Fault::Calm(edge)),
                8 if system != anchor => (Fault::Leave(system), Fault::ComeBack(system)),
                _ => (Fault::Cut(vec![edge]), Fault::Mend(vec![edge])),
            };
            self.faults.push((start, bad));
            self.faults.push((end, good));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// The edges between a random half and the other.
    fn draw_cut(&self, random: &mut Random) -> Vec<usize> {
        let half: Vec<bool> = (0..self.members).map(|_| random.chance(5_000)).collect();
        let crosses = |edge: &usize| {
            let [a, b] = self.edges[*edge];
            half[a] != half[b]
        };
        (0..self.edges.len()).filter(crosses).collect()
    }

    /// Runs it with IPCPs that `birth` makes; `sink` gets a line per event.
    pub fn run(&self, birth: Birth, sink: Option<Sink>) -> Outcome {
        let mut world = self.play(birth, sink);
        let failures = world.take_failures();
        let state = match failures.is_empty() {
            true => String::new(),
            false => world.describe() + &world.describe_views(),
        };
        Outcome {
            failures,
            hash: world.trace().hash(),
            events: world.trace().events(),
            virtual_ns: world.now(),
            tallies: world.tallies(),
            state,
        }
    }

    /// Runs it and gives the world as it is then, for a closer look.
    pub fn play(&self, birth: Birth, sink: Option<Sink>) -> World {
        let mut run = Run::new(self, birth);
        if let Some(sink) = sink {
            run.world.trace().show(sink);
        }
        run.live();
        run.world
    }
}

/// Mostly small: what is wrong with many is mostly wrong with few.
fn draw_members(random: &mut Random) -> usize {
    let members = match random.below(100) {
        0..60 => random.within(2, 8),
        60..90 => random.within(9, 16),
        90..98 => random.within(17, 30),
        _ => random.within(31, 60),
    };
    members as usize
}

fn draw_profile(random: &mut Random) -> Profile {
    let mut profile = Profile {
        delay_ns: random.within(10_000, 30_000_000),
        mtu: *random.pick(&[1_500, 1_500, 1_480, 9_000, 600, 65_535]),
        ..Profile::clean()
    };
    if random.chance(5_000) {
        profile.jitter_ns = random.below(profile.delay_ns);
    }
    if random.chance(4_000) {
        profile.rate_bps = random.within(5_000_000, 1_000_000_000);
        profile.queue_bytes = random.within(20_000, 200_000);
        profile.is_blocking = random.chance(5_000);
    }
    if random.chance(5_000) {
        profile.loss = *random.pick(&[1, 10, 100, 300]);
    }
    if random.chance(2_000) {
        profile.duplication = random.within(1, 300) as u32;
    }
    if random.chance(2_000) {
        profile.reorder = random.within(1, 500) as u32;
    }
    if random.chance(2_000) {
        profile.corruption = random.within(1, 200) as u32;
    }
    profile
}

fn draw_config(random: &mut Random, profile: &Profile) -> DifConfig {
    let mut config = DifConfig {
        keepalive_ms: random.within(500, 2_000) as u32,
        max_pdu_lifetime_ms: random.within(500, 2_000) as u32,
        concatenation: random.chance(5_000),
        ..DifConfig::default()
    };
    if random.chance(2_000) {
        config.widths.address = 4;
        config.widths.cep = 4;
        config.widths.seq = 8;
    }
    let mut choose = |component: &str, names: &[&str]| {
        let name = random.pick(names);
        if !name.is_empty() {
            let spec = PolicySpec {
                name: (*name).to_owned(),
                ..PolicySpec::default()
            };
            config.policies.insert(component.to_owned(), spec);
        }
    };
    choose("rmt-scheduling", &["", "", "fifo", "weighted-fair"]);
    choose("rmt-queue", &["", "", "tail-drop", "red"]);
    choose("qos-selection", &["", "best-fit"]);
    if profile.corruption > 0 {
        choose("sdu-protection", &["crc32"]);
    }
    config
}

struct Run<'a> {
    scenario: &'a Scenario,
    terms: Terms,
    world: World,
    random: Random,
    systems: Vec<SystemId>,
    seats: Vec<SeatId>,
    cables: Vec<CableId>,
    /// When everybody had joined.
    begin: u64,
}

impl<'a> Run<'a> {
    fn new(scenario: &'a Scenario, birth: Birth) -> Run<'a> {
        let terms = Terms::of(scenario.dialect);
        let mut world = World::new(scenario.seed, birth);
        world.are_ends_told_once = !terms.repeats_management && scenario.loses_management();
        let mut random = Random::new(mix(scenario.seed, 0xdec1de));
        let systems: Vec<SystemId> = (0..scenario.members)
            .map(|at| world.add_system(&format!("s{at}")))
            .collect();
        let start = world.now();
        let founder = random.index(scenario.members);
        let seats: Vec<SeatId> = (0..scenario.members)
            .map(|at| {
                let config = Config {
                    name: format!("m{at}"),
                    dif: DIF.to_owned(),
                    dialect: scenario.dialect,
                    dif_config: Some(scenario.config.clone()),
                };
                let born = start + random.below(3 * SECOND);
                world.add_seat(systems[at], config, at == founder, born)
            })
            .collect();
        let mut cables = Vec::new();
        for ends in &scenario.edges {
            let pair = ends.map(|end| systems[end]);
            let cable = world.add_cable(pair, scenario.profile, scenario.detection_ns);
            let asker = random.index(2);
            for side in 0..2 {
                let attachment = Attachment {
                    below: Below::Cable(cable),
                    remote: format!("m{}", ends[1 - side]),
                    asks: side == asker,
                    is_reliable: false,
                };
                world.attach(seats[ends[side]], attachment);
            }
            cables.push(cable);
        }
        for (at, seat) in seats.iter().enumerate() {
            world.add_app(*seat, &format!("app{at}"));
        }
        Run {
            scenario,
            terms,
            world,
            random,
            systems,
            seats,
            cables,
            begin: start,
        }
    }

    fn live(&mut self) {
        self.join();
        self.work();
        self.heal();
        self.settle();
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
                "not everybody has joined after {} s\n{state}",
                patience / SECOND
            ));
        }
        self.begin = self.world.now();
    }

    /// Calls at random times, between the faults.
    fn work(&mut self) {
        let heal = self.scenario.heal_ns;
        let mut plan: Vec<(u64, Option<&Fault>)> = (0..self.scenario.calls)
            .map(|_| (self.random.below(heal), None))
            .collect();
        plan.extend(
            self.scenario
                .faults
                .iter()
                .map(|(at, fault)| (*at, Some(fault))),
        );
        plan.sort_by_key(|(at, _)| *at);
        for (at, fault) in plan {
            self.world.run_until(self.begin + at);
            if self.is_broken() {
                return;
            }
            match fault {
                None => self.call(),
                Some(fault) => self.inflict(fault),
            }
        }
        self.world.run_until(self.begin + heal);
    }

    fn inflict(&mut self, fault: &Fault) {
        let world = &mut self.world;
        match fault {
            Fault::Crash(at) => world.crash(self.systems[*at]),
            Fault::Restart(at) => world.restart(self.systems[*at]),
            Fault::Cut(edges) => edges.iter().for_each(|at| world.cut(self.cables[*at])),
            Fault::Mend(edges) => edges.iter().for_each(|at| world.mend(self.cables[*at])),
            Fault::Storm(edge) => {
                let calm = self.scenario.profile;
                let storm = Profile {
                    loss: 2_500,
                    duplication: 500,
                    reorder: 1_000,
                    jitter_ns: calm.jitter_ns + 20_000_000,
                    ..calm
                };
                world.set_profile(self.cables[*edge], storm);
            }
            Fault::Calm(edge) => world.set_profile(self.cables[*edge], self.scenario.profile),
            Fault::Leave(at) => world.leave(self.seats[*at]),
            Fault::ComeBack(at) => world.come_back(self.seats[*at]),
        }
    }

    /// Cables after everything is repaired.
    fn peace(&self) -> Profile {
        self.terms.peace(self.scenario.profile)
    }

    fn heal(&mut self) {
        for cable in &self.cables {
            self.world.mend(*cable);
            self.world.set_profile(*cable, self.peace());
        }
        if !self.peace().drops() {
            self.world.peace_since = Some(self.world.now());
        }
        for system in &self.systems {
            self.world.restart(*system);
        }
        for seat in &self.seats {
            if !self.world.is_wanted(*seat) {
                self.world.come_back(*seat);
            }
        }
    }

    fn call(&mut self) {
        let from = *self.random.pick(&self.seats);
        let to = self.random.index(self.seats.len());
        let spec = draw_spec(&mut self.random);
        let small = self.scenario.profile.rate_bps > 0 || self.scenario.profile.loss > 50;
        let most = if small { 30 } else { 120 };
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
        let wish = Wish {
            from,
            to: format!("app{to}"),
            spec,
            sdus: [self.random.below(most), self.random.below(most)],
            lengths: self.lengths(),
            pause_ns: *self.random.pick(&[0, 1_000_000, 300_000_000]),
            readers: [reader(&mut self.random), reader(&mut self.random)],
            ending,
            is_refused: self.random.chance(500),
        };
        self.world.call(wish);
    }

    fn lengths(&mut self) -> Lengths {
        let most = self.sdu_max();
        match self.random.below(4) {
            0 => Lengths::Fixed(most.min(self.random.below(3_000) as usize)),
            1 => Lengths::Mixed(most.min(100_000)),
            _ => Lengths::Mixed(most.min(10_000)),
        }
    }

    /// Longest SDU in bytes.
    fn sdu_max(&self) -> usize {
        let Scenario {
            config, profile, ..
        } = self.scenario;
        self.terms.sdu_max(config, profile)
    }

    /// In peace, everything must come right; probes show that the DIF works.
    fn settle(&mut self) {
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
                "not everybody is back {} s after the last fault\n{state}",
                self.terms.settle_ns / SECOND
            ));
        }
        self.world.run_until(end);
        // Where cables lose much, a request may go unanswered for once.
        let rounds = if self.is_lossy() { 3 } else { 1 };
        for round in 1..=rounds {
            let wrong = self.probe();
            match wrong {
                Some(wrong) if round == rounds => return self.fail(wrong),
                Some(_) => {}
                None => break,
            }
        }
        if !self.is_broken() {
            self.world.check_sessions();
        }
        if !self.is_broken() {
            self.world.check_dif(DIF);
        }
    }

    /// New flows between random members; says what is wrong with one.
    fn probe(&mut self) -> Option<String> {
        let mut probes = Vec::new();
        for _ in 0..PROBES {
            let from = *self.random.pick(&self.seats);
            let to = self.random.index(self.seats.len());
            let wish = Wish {
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
            match self.world.call(wish) {
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
        // Over many hops that lose much a flow may fail, as long as both ends know; not all flows.
        let is_fine = is_lossy && wrong.len() < probes.len();
        if is_fine { None } else { wrong.pop() }
    }

    fn is_lossy(&self) -> bool {
        let peace = self.peace();
        match self.terms.repeats_management {
            // A damaged PDU is a lost one.
            true => peace.loss + peace.corruption >= 50,
            // One that is lost is one too many.
            false => peace.drops(),
        }
    }

    /// All flows end, and nothing stays behind.
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

fn draw_spec(random: &mut Random) -> FlowSpec {
    match random.below(10) {
        0..5 => FlowSpec::reliable(),
        5 => FlowSpec {
            msg_boundaries: false,
            ..FlowSpec::reliable()
        },
        6 => FlowSpec {
            in_order: false,
            ..FlowSpec::reliable()
        },
        7 => FlowSpec {
            in_order: true,
            ..FlowSpec::unreliable()
        },
        _ => FlowSpec::unreliable(),
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scenario {
            seed,
            dialect,
            members,
            shape,
            edges,
            profile,
            detection_ns,
            config,
            faults,
            heal_ns,
            calls,
        } = self;
        writeln!(
            f,
            "seed {seed}: {} members that speak {}, {shape:?}, {calls} calls, healed after {} s",
            members,
            dialect.name(),
            heal_ns / SECOND
        )?;
        writeln!(f, "  edges {edges:?}")?;
        writeln!(
            f,
            "  cables {profile:?}, dead ones noticed after {detection_ns:?} ns"
        )?;
        let policies: Vec<String> = config
            .policies
            .iter()
            .map(|(component, spec)| format!("{component}={}", spec.name))
            .collect();
        writeln!(
            f,
            "  keep-alive {} ms, MPL {} ms, concatenation {}, {policies:?}",
            config.keepalive_ms, config.max_pdu_lifetime_ms, config.concatenation
        )?;
        for restriction in Terms::of(*dialect).restrictions {
            writeln!(f, "  {}: {restriction}", dialect.name())?;
        }
        for (at, fault) in faults {
            writeln!(f, "  {:>10.3} s {fault:?}", *at as f64 / SECOND as f64)?;
        }
        Ok(())
    }
}

const DIF: &str = "net";
const SECOND: u64 = 1_000_000_000;

/// Time in which probes must be through.
const PROBE_NS: u64 = 30 * SECOND;

const PROBES: usize = 4;
