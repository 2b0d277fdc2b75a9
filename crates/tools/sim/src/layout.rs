//! Arrangements of DIFs over systems and cables: one flat DIF, a stack of DIFs, and DIFs by region.

use carina_ipcp::{Config, DifConfig};
use carina_wire::dif::Dialect;

use crate::link::Profile;
use crate::model::{Attachment, Below, CableId, SlotId, SystemId};
use crate::topology::Shape;
use crate::world::World;
use carina_random::Random;

/// A DIF that is being laid out, with the parameters of its members.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// Name of the DIF that forms the layer.
    pub dif: &'a str,
    /// Configuration of the DIF.
    pub config: &'a DifConfig,
    /// Systems of the DIF. The first one gets the first member.
    pub systems: &'a [SystemId],
    /// Whether N-1 flows over a lower DIF are requested as reliable.
    pub is_reliable: bool,
    /// Members start at random times within this many ns.
    pub ramp_ns: u64,
}

impl Layer<'_> {
    /// Creates a member on each of the systems.
    pub fn slots(&self, world: &mut World, random: &mut Random) -> Vec<SlotId> {
        let now = world.now();
        let mut slots = Vec::with_capacity(self.systems.len());
        for (at, system) in self.systems.iter().enumerate() {
            let config = Config {
                name: format!("{}.{}", self.dif, world.system_name(*system)),
                dif: self.dif.to_owned(),
                dialect: Dialect::Native,
                dif_config: Some(self.config.clone()),
            };
            let born = if at == 0 {
                0
            } else {
                random.below(self.ramp_ns + 1)
            };
            slots.push(world.add_slot(*system, config, at == 0, now + born));
        }
        slots
    }

    /// Connects two members over a cable; the second one is the initiator.
    pub fn over_cable(&self, world: &mut World, [a, b]: [SlotId; 2], cable: CableId) {
        self.connect(world, [a, b], [Below::Cable(cable); 2]);
    }

    /// Connects two members over members of a lower DIF on their systems. The second one is the
    /// initiator.
    pub fn over_slots(&self, world: &mut World, pair: [SlotId; 2], below: [SlotId; 2]) {
        self.connect(world, pair, below.map(Below::Ipcp));
    }

    fn connect(&self, world: &mut World, pair: [SlotId; 2], below: [Below; 2]) {
        for side in 0..2 {
            let remote = world.name(pair[1 - side]).to_owned();
            let attachment = Attachment {
                below: below[side],
                remote,
                is_initiator: side == 1,
                is_reliable: self.is_reliable,
            };
            world.attach(pair[side], attachment);
        }
    }
}

/// A line of systems with `depth` DIFs, each over the one below; every system is in every DIF.
/// Returns the world, and the slots by level, the lowest level first.
pub fn stack(
    mut world: World,
    depth: usize,
    systems: usize,
    profile: Profile,
) -> (World, Vec<Vec<SlotId>>) {
    let mut random = world.random.fork();
    let line: Vec<SystemId> = (0..systems)
        .map(|at| world.add_system(&format!("s{at}")))
        .collect();
    let cables: Vec<CableId> = (1..systems)
        .map(|at| world.add_cable([line[at - 1], line[at]], profile, Some(1_000_000_000)))
        .collect();
    let mut levels: Vec<Vec<SlotId>> = Vec::new();
    for level in 0..depth {
        let config = DifConfig {
            keepalive_ms: 1_000 + 500 * level as u32,
            ..DifConfig::default()
        };
        let layer = Layer {
            dif: &format!("level{level}"),
            config: &config,
            systems: &line,
            is_reliable: random.chance(5_000),
            ramp_ns: 0,
        };
        let slots = layer.slots(&mut world, &mut random);
        for at in 1..systems {
            let pair = [slots[at - 1], slots[at]];
            match levels.last() {
                None => layer.over_cable(&mut world, pair, cables[at - 1]),
                Some(below) => layer.over_slots(&mut world, pair, [below[at - 1], below[at]]),
            }
        }
        levels.push(slots);
    }
    (world, levels)
}

/// Regions of systems, each with a border system, and a backbone between the border systems.
#[derive(Clone, Debug)]
pub struct Ground {
    /// The systems of each region; the first one is the border system.
    pub regions: Vec<Vec<SystemId>>,
    /// The cables in each region, each with the indices of its two systems in the region.
    pub inner: Vec<Vec<([usize; 2], CableId)>>,
    /// The cables between border systems, each with its two regions.
    pub outer: Vec<([usize; 2], CableId)>,
}

/// Creates systems and cables. Each region is a tree with further edges, and so is the backbone.
pub fn ground(world: &mut World, regions: usize, systems: usize, profile: Profile) -> Ground {
    let mut random = world.random.fork();
    let detection = Some(100_000_000);
    let mut ground = Ground {
        regions: Vec::new(),
        inner: Vec::new(),
        outer: Vec::new(),
    };
    for region in 0..regions {
        let share = systems / regions + usize::from(region < systems % regions);
        let members: Vec<SystemId> = (0..share)
            .map(|at| world.add_system(&format!("r{region}s{at}")))
            .collect();
        let edges = Shape::Mesh.edges(share, &mut random);
        let lay = |pair: [usize; 2]| {
            let ends = pair.map(|at| members[at]);
            (pair, world.add_cable(ends, profile, detection))
        };
        ground.inner.push(edges.into_iter().map(lay).collect());
        ground.regions.push(members);
    }
    for pair in Shape::Mesh.edges(regions, &mut random) {
        let ends = pair.map(|region| ground.regions[region][0]);
        let cable = world.add_cable(ends, profile, detection);
        ground.outer.push((pair, cable));
    }
    ground
}

/// Creates one DIF over all cables. Returns its slots by region.
pub fn flat(
    world: &mut World,
    ground: &Ground,
    config: &DifConfig,
    ramp_ns: u64,
) -> Vec<Vec<SlotId>> {
    let mut random = world.random.fork();
    let systems: Vec<SystemId> = ground.regions.concat();
    let layer = Layer {
        dif: "flat",
        config,
        systems: &systems,
        is_reliable: false,
        ramp_ns,
    };
    let mut all = layer.slots(world, &mut random).into_iter();
    let slots: Vec<Vec<SlotId>> = ground
        .regions
        .iter()
        .map(|region| all.by_ref().take(region.len()).collect())
        .collect();
    for (region, cables) in ground.inner.iter().enumerate() {
        for (pair, cable) in cables {
            layer.over_cable(world, pair.map(|at| slots[region][at]), *cable);
        }
    }
    for (pair, cable) in &ground.outer {
        layer.over_cable(world, pair.map(|region| slots[region][0]), *cable);
    }
    slots
}

/// Creates a DIF in each region, a DIF over the border systems, and a DIF above both. The latter
/// has `above` systems of each region, the border system included, which talk to other regions.
/// Returns the slots of the regions, those of the backbone, and those of the upper DIF by region.
pub fn regional(
    world: &mut World,
    ground: &Ground,
    config: &DifConfig,
    above: usize,
    ramp_ns: u64,
) -> [Vec<Vec<SlotId>>; 3] {
    let mut random = world.random.fork();
    let layer = Layer {
        dif: "",
        config,
        systems: &[],
        is_reliable: false,
        ramp_ns,
    };
    let mut regions = Vec::new();
    for (index, systems) in ground.regions.iter().enumerate() {
        let dif = format!("region{index}");
        let layer = Layer {
            dif: &dif,
            systems,
            ..layer
        };
        let slots = layer.slots(world, &mut random);
        for (pair, cable) in &ground.inner[index] {
            layer.over_cable(world, pair.map(|at| slots[at]), *cable);
        }
        regions.push(slots);
    }
    let borders: Vec<SystemId> = ground.regions.iter().map(|region| region[0]).collect();
    let spine = Layer {
        dif: "backbone",
        systems: &borders,
        ..layer
    };
    let backbone = spine.slots(world, &mut random);
    for (pair, cable) in &ground.outer {
        spine.over_cable(world, pair.map(|region| backbone[region]), *cable);
    }
    let chosen: Vec<&[SystemId]> = ground
        .regions
        .iter()
        .map(|region| &region[..above.clamp(1, region.len())])
        .collect();
    let systems = chosen.concat();
    let top = Layer {
        dif: "above",
        systems: &systems,
        ..layer
    };
    let mut all = top.slots(world, &mut random).into_iter();
    let upper: Vec<Vec<SlotId>> = chosen
        .iter()
        .map(|region| all.by_ref().take(region.len()).collect())
        .collect();
    for (region, slots) in upper.iter().enumerate() {
        for at in 1..slots.len() {
            let below = [regions[region][0], regions[region][at]];
            top.over_slots(world, [slots[0], slots[at]], below);
        }
    }
    for (pair, _) in &ground.outer {
        let slots = pair.map(|region| upper[region][0]);
        top.over_slots(world, slots, pair.map(|region| backbone[region]));
    }
    [regions, vec![backbone], upper]
}
