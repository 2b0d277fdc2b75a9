//! The whole life of a DIF, drawn from a seed: it grows, carries traffic, suffers faults, and
//! recovers; then it is checked.
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

mod display;
mod drawing;
mod run;
mod selection;
mod shrink;

use carina_ipcp::DifConfig;
use carina_wire::dif::Dialect;

use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::topology::Shape;
use crate::trace::Sink;
use crate::world::World;
use carina_random::{Random, mix};
use drawing::{draw_config, draw_members, draw_profile};
use run::Run;
pub use selection::{Numbers, NumbersError, Selection, SelectionError};
pub use shrink::{Shrunk, shrink};

/// A scenario that has not been run yet.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed from which it is drawn.
    pub seed: u64,
    /// Dialect of the members; [`Terms`] describes the differences from a native DIF.
    pub dialect: Dialect,
    /// Number of members of the DIF, one on each system.
    pub members: usize,
    /// Kind of the graph whose nodes are the members and whose edges are the cables.
    pub shape: Shape,
    /// The edges of the graph, between members.
    pub edges: Vec<[usize; 2]>,
    /// How every cable treats PDUs.
    pub profile: Profile,
    /// Time after which a dead cable is detected, in ns; `None`: never.
    pub detection_ns: Option<u64>,
    /// Configuration of the DIF.
    pub config: DifConfig,
    /// The faults with their times, in ns after all members have joined.
    pub faults: Vec<(u64, Fault)>,
    /// Time at which everything is repaired, in ns after all members have joined.
    pub heal_ns: u64,
    /// Number of calls while faults happen.
    pub calls: usize,
    /// The part of the scenario that is run: all of it, unless [`Scenario::keep`] chooses less.
    pub kept: Selection,
}

/// A fault, or the repair of one. Numbers are those of systems or, for cables, of edges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The system of this number crashes.
    Crash(usize),
    /// The crashed system of this number restarts.
    Restart(usize),
    /// Cables are cut, given by the numbers of their edges.
    Cut(Vec<usize>),
    /// Cables are repaired, given by the numbers of their edges.
    Mend(Vec<usize>),
    /// The cable of this edge loses, duplicates and reorders far more PDUs than usual.
    Storm(usize),
    /// The cable of this edge behaves as before its [`Fault::Storm`].
    Calm(usize),
    /// The member on the system of this number leaves the DIF and announces it.
    Leave(usize),
    /// The member on the system of this number, which left, joins again.
    ComeBack(usize),
}

/// Whether a run has failed, its hash, and totals of its traffic.
#[derive(Debug)]
pub struct Outcome {
    /// The failures; empty if the run succeeded.
    pub failures: Vec<String>,
    /// Hash of all events of the run; equal for two runs with the same events.
    pub hash: u64,
    /// Number of events of the run, all of which `hash` covers.
    pub events: u64,
    /// Virtual time that the run took, in ns.
    pub virtual_ns: u64,
    /// Totals of PDUs, flows and SDUs.
    pub tallies: crate::model::Tallies,
    /// State of the members as text, if there are failures.
    pub state: String,
}

/// What a person has chosen in place of what the seed would draw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
    /// Number of members; `None` to draw it from the seed.
    pub members: Option<usize>,
    /// Whether to leave out all faults.
    pub is_calm: bool,
    /// Dialect of the members.
    pub dialect: Dialect,
}

impl Scenario {
    /// Draws the scenario of a seed.
    #[must_use]
    pub fn new(seed: u64, overrides: Overrides) -> Scenario {
        let mut random = Random::new(mix(seed, 0x5ce_7a10));
        let drawn = draw_members(&mut random);
        let members = overrides.members.unwrap_or(drawn).max(2);
        let shape = *random.pick(&Shape::ALL);
        let edges = shape.edges(members, &mut random);
        let terms = Terms::of(overrides.dialect);
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
            dialect: overrides.dialect,
            members,
            shape,
            edges,
            profile,
            detection_ns,
            config,
            faults: Vec::new(),
            heal_ns: SECOND * random.within(20, 60) * terms.slowness,
            calls,
            kept: Selection::all(members, 0, calls),
        };
        if !overrides.is_calm {
            scenario.draw_faults(&mut random);
        }
        scenario.kept = Selection::all(members, scenario.faults.len(), calls);
        scenario
    }

    /// Whether a management PDU may be lost before everything is repaired.
    fn loses_management(&self) -> bool {
        !self.faults.is_empty() || self.profile.drops()
    }

    /// Runs the scenario from its start to the last check, with IPCPs from `member_factory`. Writes
    /// a line for each event to `sink`.
    pub fn run(&self, member_factory: MemberFactory, sink: Option<Sink>) -> Outcome {
        let mut world = self.play(member_factory, sink);
        let failures = world.take_failures();
        let state = if failures.is_empty() {
            String::new()
        } else {
            world.describe() + &world.describe_views()
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

    /// Runs the scenario, and returns the world in its final state for inspection.
    pub fn play(&self, member_factory: MemberFactory, sink: Option<Sink>) -> World {
        let mut run = Run::new(self, member_factory);
        if let Some(sink) = sink {
            run.world.trace().show(sink);
        }
        run.live();
        run.world
    }
}

const SECOND: u64 = 1_000_000_000;
