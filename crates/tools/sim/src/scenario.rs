//! The whole life of a DIF, made from a seed: it grows, works, suffers faults, heals, and must then
//! be well.
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
    /// What of all this is played: everything, unless [`Scenario::keep`] says otherwise.
    pub kept: Selection,
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
    pub tallies: crate::model::Tallies,
    /// State of the members when something went wrong.
    pub state: String,
}

/// The choices that a person may make instead of the seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Overrides {
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

    /// Something may keep a management PDU from its receiver before all is healed.
    fn loses_management(&self) -> bool {
        !self.faults.is_empty() || self.profile.drops()
    }

    /// Runs it with IPCPs that `member_factory` makes; `sink` gets a line per event.
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

    /// Runs it and gives the world as it is then, for a closer look.
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
