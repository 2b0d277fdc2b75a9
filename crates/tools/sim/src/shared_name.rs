//! Simulates a name that several members register. Every member must know the name as long as one
//! of them holds it.
//!
//! A seed draws a ring of members with chords, and the delays of its cables. Members register the
//! name and unregister it, one at a time. Soon after each change every directory has to be right,
//! not only when everything is disseminated again.

use carina_ipcp::{Command, Config, DifConfig};
use carina_random::{Random, mix};
use carina_wire::dif::Dialect;

use crate::dialect::Terms;
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::{Attachment, Below, SlotId};
use crate::run_error::RunError;
use crate::world::World;

/// A name that several members register: seed and dialect of the simulation.
#[derive(Clone, Copy, Debug)]
pub struct SharedName {
    /// Seed of the simulation.
    pub seed: u64,
    /// Dialect of the members.
    pub dialect: Dialect,
}

struct Run {
    world: World,
    slots: Vec<SlotId>,
    random: Random,
}

impl SharedName {
    /// Lets members register and unregister the name, and checks all directories after each change.
    ///
    /// # Errors
    /// A directory contains the name although no application holds it, or lacks the name although
    /// an application holds it.
    pub fn run(&self, member_factory: MemberFactory) -> Result<(), RunError> {
        let mut run = Run::new(self, member_factory);
        run.live(Terms::of(self.dialect));
        let failures = run.world.take_failures();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(RunError {
                failures,
                state: run.world.describe(),
            })
        }
    }
}

impl Run {
    fn new(of: &SharedName, member_factory: MemberFactory) -> Run {
        let terms = Terms::of(of.dialect);
        let mut random = Random::new(mix(of.seed, 0x5a3e));
        let count = random.within(3, 7) as usize;
        let mut profile = || Profile {
            delay_ns: random.within(MS / 10, 40 * MS),
            ..Profile::clean()
        };
        let mut cables: Vec<([usize; 2], Profile)> = (0..count)
            .map(|at| ([(at + 1) % count, at], profile()))
            .collect();
        cables.push(([count - 1, count / 2 - 1], profile()));
        let config = terms.config(of.seed, count, &cables[0].1, DifConfig::default());
        let mut world = World::new(of.seed, member_factory);
        let systems: Vec<_> = (0..count)
            .map(|at| world.add_system(&format!("s{at}")))
            .collect();
        let mut slots = Vec::new();
        for (at, system) in systems.iter().enumerate() {
            let config = Config {
                name: format!("m{at}"),
                dif: "net".to_owned(),
                dialect: of.dialect,
                dif_config: Some(config.clone()),
            };
            let born = world.now() + at as u64 * 1_000 * MS;
            slots.push(world.add_slot(*system, config, at == 0, born));
        }
        for (ends, profile) in cables {
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
        Run {
            world,
            slots,
            random,
        }
    }

    fn live(&mut self, terms: Terms) {
        let end = self.world.now() + terms.join_ns(self.slots.len() as u64);
        let is_joined = |world: &World| world.is_joined();
        if !self
            .world
            .run_while(end, 1_000 * MS, |world| !is_joined(world))
        {
            return self.world.fail("not all members have joined".to_owned());
        }
        self.world.run_for(60_000 * MS);
        let mut holds = vec![false; self.slots.len()];
        for _ in 0..CHANGES {
            let at = self.random.index(holds.len());
            holds[at] = !holds[at];
            let name = NAME.to_owned();
            let change = if holds[at] {
                Command::Register { name }
            } else {
                Command::Unregister { name }
            };
            self.world.command(self.slots[at], change);
            self.world.run_for(SOON_NS + self.random.below(20_000 * MS));
            self.check(&holds);
            if !self.world.failures().is_empty() {
                return;
            }
        }
    }

    fn check(&mut self, holds: &[bool]) {
        let is_held = holds.contains(&true);
        for slot in self.slots.clone() {
            let known = match self.world.view(slot) {
                Ok(view) => view.directory.contains(NAME),
                Err(error) => return self.world.fail(error.to_string()),
            };
            if known != is_held {
                let text = format!(
                    "{} {} the name, which members hold as {holds:?}",
                    self.world.name(slot),
                    if known { "has" } else { "lacks" },
                );
                self.world.fail(text);
            }
        }
    }
}

const MS: u64 = 1_000_000;
const NAME: &str = "both";
const CHANGES: usize = 24;

/// Time in which directories must be right. It is far shorter than the interval at which members of
/// any dialect repeat all entries.
const SOON_NS: u64 = 3_000 * MS;
