//! Compares one DIF of many members with the same systems in small DIFs: what each arrangement
//! costs to build, to keep, and to repair.

use std::fmt;

use carina_ipcp::DifConfig;

use crate::layout::{Ground, flat, ground, regional};
use crate::link::Profile;
use crate::member::MemberFactory;
use crate::model::SlotId;
use crate::rib::RibError;
use crate::world::World;

/// How large the simulated network is, and the seed from which it is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Number of simulated systems, all regions together.
    pub systems: usize,
    /// Number of regions among which the systems are divided.
    pub regions: usize,
    /// Number of systems in each region that talk to other regions, the border system included.
    pub above: usize,
    /// Seed of the simulation.
    pub seed: u64,
}

/// How DIFs are laid over the simulated systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One DIF has all systems as members.
    Flat,
    /// Each region has a DIF, the border systems of all regions have one, and one more DIF runs
    /// over these DIFs.
    Recursive,
}

/// What a layout costs: PDUs until convergence, state of each system, and PDUs when idle and after
/// a cut.
#[derive(Clone, Debug)]
pub struct Report {
    /// Total number of IPCPs.
    pub ipcps: usize,
    /// Number of DIFs.
    pub difs: usize,
    /// Virtual time from the first start until every member of every DIF has a route to every
    /// other of its DIF, in ns.
    pub converged_ns: u64,
    /// Number of PDUs that all IPCPs put on cables until convergence.
    pub messages: u64,
    /// Total bytes of the PDUs that `messages` counts.
    pub bytes: u64,
    /// RIB objects of all IPCPs of each system, sorted.
    pub objects: Vec<u64>,
    /// Forwarding entries of all IPCPs of each system, sorted.
    pub routes: Vec<u64>,
    /// PDUs on cables in a minute without any events.
    pub idle_messages: u64,
    /// PDUs on cables in the minute after a cable of a region is cut, minus those of a minute
    /// without events.
    pub cut_messages: u64,
}

/// What the measurement reports to its caller while it runs, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An intermediate step; there are many of these.
    Step(String),
    /// A part of the measurement is complete.
    Milestone(String),
}

/// Why the measurement of a layout fails.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ScaleError {
    /// The first failure of the simulation.
    Failed(String),
    /// A member's RIB cannot be read.
    Rib(RibError),
    /// The time limit passed before each member knew all others.
    NoConvergence,
    /// A region has only one system, so no cable of it can be cut.
    NoCables,
}

impl std::error::Error for ScaleError {}

impl fmt::Display for ScaleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => f.write_str(failure),
            Self::Rib(error) => error.fmt(f),
            Self::NoConvergence => write!(f, "no convergence in {} s", LIMIT_NS / SECOND),
            Self::NoCables => f.write_str("a region without cables"),
        }
    }
}

impl From<RibError> for ScaleError {
    fn from(error: RibError) -> Self {
        Self::Rib(error)
    }
}

/// Builds a network with this layout, waits in virtual time until it converges, and measures what
/// it costs.
///
/// # Errors
/// The layout does not converge, or a member knows something that is not true.
pub fn measure(
    layout: Layout,
    size: Size,
    member_factory: MemberFactory,
    mut progress: impl FnMut(Progress),
) -> Result<Report, ScaleError> {
    let mut world = World::new(size.seed, member_factory);
    let profile = Profile {
        delay_ns: 2_000_000,
        ..Profile::clean()
    };
    let config = DifConfig::default();
    let ground = ground(&mut world, size.regions, size.systems, profile);
    let difs: Vec<Vec<SlotId>> = match layout {
        Layout::Flat => vec![flat(&mut world, &ground, &config, RAMP_NS).concat()],
        Layout::Recursive => {
            let [regions, mut backbone, above] =
                regional(&mut world, &ground, &config, size.above, RAMP_NS);
            let mut difs = regions;
            difs.append(&mut backbone);
            difs.push(above.concat());
            difs
        }
    };
    let begin = world.now();
    converge(&mut world, &difs, begin, &mut progress)?;
    let converged_ns = world.now() - begin;
    let built = world.tallies();
    progress(Progress::Milestone(format!(
        "{layout:?}: converged after {:.1} s",
        converged_ns as f64 / 1e9
    )));
    // Before the RIBs are counted, the last reports of links arrive, and alternative routes of
    // equal cost.
    world.run_for(REST_NS);
    let (objects, routes) = burdens(&mut world, &ground)?;
    for dif in &difs {
        let name = world.dif(dif[0]).to_owned();
        world.check_dif(&name);
        progress(Progress::Step(format!("members of {name} agree")));
    }
    progress(Progress::Milestone(format!(
        "{layout:?}: all members know what is so; a quiet minute, and one after a cut"
    )));
    let before = world.tallies().wire_pdus;
    world.run_for(MINUTE_NS);
    let idle_messages = world.tallies().wire_pdus - before;
    let before = world.tallies().wire_pdus;
    let spare = ground.inner[0].last().ok_or(ScaleError::NoCables)?.1;
    world.cut(spare);
    world.run_for(MINUTE_NS);
    let after_cut = world.tallies().wire_pdus - before;
    if let Some(failure) = world.failures().first() {
        return Err(ScaleError::Failed(failure.clone()));
    }
    Ok(Report {
        ipcps: difs.iter().map(Vec::len).sum(),
        difs: difs.len(),
        converged_ns,
        messages: built.wire_pdus,
        bytes: built.wire_bytes,
        objects,
        routes,
        idle_messages,
        cut_messages: after_cut.saturating_sub(idle_messages),
    })
}

fn converge(
    world: &mut World,
    difs: &[Vec<SlotId>],
    begin: u64,
    progress: &mut impl FnMut(Progress),
) -> Result<(), ScaleError> {
    loop {
        world.run_for(STEP_NS);
        if let Some(failure) = world.failures().first() {
            return Err(ScaleError::Failed(failure.clone()));
        }
        let now = world.now();
        if world.is_joined() && knows_all(world, difs)? {
            return Ok(());
        }
        let members: usize = difs.iter().map(|dif| world.members(dif)).sum();
        progress(Progress::Step(format!(
            "{:>5.1} s: {members} members, {} PDUs on cables",
            (now - begin) as f64 / 1e9,
            world.tallies().wire_pdus
        )));
        if now - begin > LIMIT_NS {
            return Err(ScaleError::NoConvergence);
        }
    }
}

/// Whether every member has a route to every other member of its DIF.
fn knows_all(world: &mut World, difs: &[Vec<SlotId>]) -> Result<bool, ScaleError> {
    for dif in difs {
        for slot in dif {
            let routes = world.read_rib(*slot, "/routing/table", 1)?;
            let below = routes
                .iter()
                .filter(|object| object.path != "/routing/table");
            if below.count() + 1 < dif.len() {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn burdens(world: &mut World, ground: &Ground) -> Result<(Vec<u64>, Vec<u64>), ScaleError> {
    let (mut objects, mut routes) = (Vec::new(), Vec::new());
    for system in ground.regions.concat() {
        let (mut held, mut known) = (0, 0);
        for slot in world.slots_on(system) {
            let burden = world.burden(slot)?;
            held += burden.objects as u64;
            known += burden.routes as u64;
        }
        objects.push(held);
        routes.push(known);
    }
    objects.sort_unstable();
    routes.sort_unstable();
    Ok((objects, routes))
}

const SECOND: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND;

/// Systems start at random times within this time.
const RAMP_NS: u64 = 10 * SECOND;

/// Interval at which convergence is checked.
const STEP_NS: u64 = SECOND / 2;

/// Time for the last acknowledgements before the minute without events.
const REST_NS: u64 = 10 * SECOND;

const LIMIT_NS: u64 = 600 * SECOND;
