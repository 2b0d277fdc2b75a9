//! Simulates two systems with the same name, in a DIF that may meanwhile be split into two parts.
//!
//! ```text
//!   join      the members of both halves join, and the first of the two systems
//!   trouble   the halves may be split; the second one joins; systems may crash and restart
//!   heal      all cables are repaired
//!   settle    exactly one of the two is a member, no dispute is left, all members agree
//! ```
//!
//! Both systems try to join about once a second, whatever was refused before.

use carina_ipcp::policy::component;
use carina_ipcp::{Config, DifConfig, PolicySpec};
use carina_wire::dif::Dialect;

use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::{Attachment, Below, CableId, SlotId, SystemId};
use crate::run_error::RunError;
use crate::topology::Shape;
use crate::world::World;
use carina_random::{Random, mix};

/// When the second of the two systems joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// The second joins while the first is a member and can be reached.
    Later,
    /// Both join at the same moment.
    AtOnce,
    /// The network is split, and the second joins in the half without the first.
    Parted,
}

/// Two systems with the same name: seed, when the second one joins, and whether systems crash.
#[derive(Clone, Copy, Debug)]
pub struct NameConflict {
    /// Seed of the simulation.
    pub seed: u64,
    /// When the second system joins.
    pub when: When,
    /// Whether systems crash and restart meanwhile.
    pub has_crashes: bool,
}

/// Which of the two systems with the same name remains a member, and how often each became one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Index of the system that is a member in the end, 0 or 1.
    pub winner: usize,
    /// Number of times that each of the two systems became a member.
    pub enrollments: [u32; 2],
}

struct Run {
    world: World,
    random: Random,
    systems: Vec<SystemId>,
    slots: Vec<SlotId>,
    /// Cables between the halves.
    bridges: Vec<CableId>,
    pair: [SlotId; 2],
    enrollments: [u32; 2],
    was_member: [bool; 2],
}

impl NameConflict {
    /// Lets both systems join, repairs all cables, and returns which of the two remained a member.
    ///
    /// # Errors
    /// A check has failed; the error lists all failures.
    pub fn run(&self, member_factory: MemberFactory) -> Result<Found, RunError> {
        let mut run = Run::new(self, member_factory);
        run.live(self);
        let failures = run.world.take_failures();
        if !failures.is_empty() {
            let state = run.world.describe() + &run.world.describe_views();
            return Err(RunError { failures, state });
        }
        Ok(Found {
            winner: usize::from(run.world.address(run.pair[0]).is_none()),
            enrollments: run.enrollments,
        })
    }
}

impl Run {
    fn new(of: &NameConflict, member_factory: MemberFactory) -> Run {
        let mut world = World::new(of.seed, member_factory);
        let mut random = Random::new(mix(of.seed, 0x2a3e));
        // When an answer is lost, the second system is admitted, and stays a member until it finds
        // the first.
        let is_strict = of.when == When::Later && !of.has_crashes;
        let drawn = *random.pick(&[0, 0, 100, 300]);
        let loss = if is_strict { 0 } else { drawn };
        let profile = Profile {
            delay_ns: random.within(MS / 10, 20 * MS),
            jitter_ns: random.below(5 * MS),
            loss,
            ..Profile::clean()
        };
        let half = random.within(1, 6) as usize;
        let start = world.now();
        let (mut systems, mut slots) = (Vec::new(), Vec::new());
        for at in 0..2 * half + 2 {
            let is_ordinary = at < 2 * half;
            let name = if is_ordinary {
                format!("m{at}")
            } else {
                NAME.to_owned()
            };
            let config = Config {
                name,
                dif: DIF.to_owned(),
                dialect: Dialect::Native,
                dif_config: Some(config(random.within(500, 2_000) as u32)),
            };
            let born = match (is_ordinary, of.when) {
                (true, _) => start + random.below(3 * SECOND),
                (false, When::AtOnce) => start + JOIN_NS,
                (false, _) if at == 2 * half => start + JOIN_NS / 2,
                (false, _) => start + JOIN_NS + SECOND * random.within(1, 40),
            };
            systems.push(world.add_system(&format!("s{at}")));
            slots.push(world.add_slot(systems[at], config, at == 0, born));
            world.add_app(slots[at], &format!("app{at}"));
        }
        let pair = [slots[2 * half], slots[2 * half + 1]];
        let mut run = Run {
            world,
            random,
            systems,
            slots,
            bridges: Vec::new(),
            pair,
            enrollments: [0; 2],
            was_member: [false; 2],
        };
        run.lay_cables(half, profile);
        run
    }

    /// Connects the members of each half, which includes one of the two systems; bridges lead from
    /// one half to the other.
    fn lay_cables(&mut self, half: usize, profile: Profile) {
        for which in 0..2 {
            let shape = *self.random.pick(&Shape::ALL);
            for edge in shape.edges(half, &mut self.random) {
                self.lay(edge.map(|at| which * half + at), profile);
            }
            for _ in 0..self.random.within(1, 2) {
                let near = which * half + self.random.index(half);
                self.lay([2 * half + which, near], profile);
            }
        }
        for _ in 0..self.random.within(1, 2) {
            let ends = [self.random.index(half), half + self.random.index(half)];
            let cable = self.lay(ends, profile);
            self.bridges.push(cable);
        }
        if self.random.chance(2_000) {
            let cable = self.lay([2 * half, 2 * half + 1], profile);
            self.bridges.push(cable);
        }
    }

    /// Adds a cable. The first of its ends is the initiator.
    fn lay(&mut self, ends: [usize; 2], profile: Profile) -> CableId {
        let pair = ends.map(|at| self.systems[at]);
        let cable = self.world.add_cable(pair, profile, Some(SECOND));
        for side in 0..2 {
            let remote = self.world.name(self.slots[ends[1 - side]]).to_owned();
            let attachment = Attachment {
                below: Below::Cable(cable),
                remote,
                is_initiator: side == 0,
                is_reliable: false,
            };
            self.world.attach(self.slots[ends[side]], attachment);
        }
        cable
    }

    fn live(&mut self, of: &NameConflict) {
        self.run_for(JOIN_NS - SECOND);
        let ordinary = self.slots.len() - 2;
        if self.world.members(&self.slots[..ordinary]) != ordinary {
            return self.world.fail("not all members have joined".to_owned());
        }
        let bridges = self.bridges.clone();
        if of.when == When::Parted {
            bridges.iter().for_each(|at| self.world.cut(*at));
        }
        self.trouble(of);
        bridges.iter().for_each(|at| self.world.mend(*at));
        self.run_for(SETTLE_NS);
        let before = (self.disputes(), self.enrollments);
        self.run_for(30 * SECOND);
        let members = self.pair.map(|slot| self.world.address(slot).is_some());
        if members[0] == members[1] {
            let text = format!("members of the two of one name: {members:?}");
            return self.world.fail(text);
        }
        let after = (self.disputes(), self.enrollments);
        if after != before {
            let text = format!("the two contend for ever: {before:?}, then {after:?}");
            return self.world.fail(text);
        }
        // If the losing system crashes, members may not notice: no member has it as a neighbour.
        let loser = usize::from(members[0]);
        self.world.crash(self.systems[ordinary + loser]);
        self.run_for(SETTLE_NS);
        self.world.check_dif(DIF);
    }

    /// The time in which the second system joins.
    fn trouble(&mut self, of: &NameConflict) {
        let end = self.world.now() + TROUBLE_NS;
        while of.has_crashes && self.world.now() + 20 * SECOND < end {
            let pause = self.random.within(1, 10 * SECOND);
            self.run_for(pause);
            // The first member is never crashed, so that the DIF continues to exist.
            let at = 1 + self.random.index(self.systems.len() - 1);
            let is_one = self.random.chance(6_000);
            let at = if is_one {
                self.systems.len() - 1 - at % 2
            } else {
                at
            };
            self.world.crash(self.systems[at]);
            let dead = *self.random.pick(&[SECOND / 10, SECOND, 8 * SECOND]);
            self.run_for(dead);
            self.world.restart(self.systems[at]);
        }
        self.run_for(end.saturating_sub(self.world.now()));
    }

    fn run_for(&mut self, ns: u64) {
        let end = self.world.now() + ns;
        while self.world.now() < end && self.world.failures().is_empty() {
            self.world
                .run_until(end.min(self.world.now() + SECOND / 10));
            for (at, slot) in self.pair.iter().enumerate() {
                let is_member = self.world.address(*slot).is_some();
                let was_member = std::mem::replace(&mut self.was_member[at], is_member);
                self.enrollments[at] += u32::from(is_member && !was_member);
            }
        }
    }

    /// Total number of entries that members had to announce again because of a dispute.
    fn disputes(&mut self) -> u64 {
        let slots = self.slots.clone();
        let counted = |slot| self.world.counted(slot, "entries-disputed");
        slots.into_iter().map(counted).sum()
    }
}

/// A configuration in which reports of a system that is gone soon expire.
fn config(keepalive_ms: u32) -> DifConfig {
    let params = [("max_age_s", "60"), ("refresh_s", "20")];
    let params = params.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let routing = PolicySpec {
        params: params.into(),
        ..PolicySpec::default()
    };
    DifConfig {
        keepalive_ms,
        policies: [(component::ROUTING.to_owned(), routing)].into(),
        ..DifConfig::default()
    }
}

const DIF: &str = "net";

const NAME: &str = "same";

const MS: u64 = 1_000_000;

const SECOND: u64 = 1_000 * MS;

/// Time for the members to join.
const JOIN_NS: u64 = 60 * SECOND;

const TROUBLE_NS: u64 = 90 * SECOND;

/// Time without faults, after which no effect of them may remain.
const SETTLE_NS: u64 = 100 * SECOND;
