//! Simulates virtual networks on a virtual clock: operators, providers and hosts that crash and
//! restart, and messages that are lost, delayed or duplicated.
//!
//! Everything comes from the seed: the resources of providers, the requests of operators, the write
//! to a store at which a process crashes, the connections that are cut, the hosts that are drained.
//! While faults happen, these must hold at any time: no host and no link carries more than it has,
//! no moving guest runs on two hosts, a drained host gets no node, and no operator reads a name of
//! the substrate. When there have been no faults for a while, each network must be ready, or
//! refused with a reason, or have been withdrawn or have expired. When all networks are removed,
//! nothing may be left.
//!
//! The protocol machines of `carina_vnet` are those of the product. Hosts are simulated: a node is
//! up after a time, and a link is up when both its ends name each other.

use std::fmt;
use std::ops::AddAssign;

use carina_time::Duration;
use carina_vnet::timing::Timing;

use self::scenario::Scenario;
use self::world::World;

pub use self::mutant::Mutant;

mod asked;
pub mod host;
mod interrupt;
mod mutant;
mod packet;
mod process;
mod scenario;
mod unsteady_store;
mod world;

/// How many providers, hosts and networks are simulated, and which kinds of faults. What is `None`
/// is drawn from the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Number of providers; `None` to draw 1 to 4 from the seed.
    pub pips: Option<u8>,
    /// Number of hosts of each provider; `None` to draw 1 to 7 from the seed.
    pub hosts: Option<u8>,
    /// Number of requested networks; `None` to draw 1 to 12 from the seed.
    pub networks: Option<u16>,
    /// Number of networks that a VNP allows each operator at a time; `None` for the default of a
    /// real VNP.
    pub networks_per_vno: Option<u16>,
    /// Whether networks compete for resources. There are then two VNPs, all roles except operators
    /// have two processes on one store, the networks are requested at once, and a VNP is lost
    /// meanwhile.
    pub contends: bool,
    /// Whether no host is drained, no connection is cut and no store is unavailable. Seeds that
    /// were found before these faults existed then still give the same runs.
    pub is_plain: bool,
    /// Whether hosts have no limits and never refuse a node, also in plain runs. Seeds that were
    /// found before hosts had limits then still give the same runs.
    pub is_able: bool,
}

impl Size {
    /// 1,000 networks over 10 providers with 100 hosts each.
    pub const LARGE: Size = Size {
        pips: Some(10),
        hosts: Some(100),
        networks: Some(1000),
        networks_per_vno: None,
        contends: false,
        is_plain: false,
        is_able: false,
    };

    /// 16 networks that compete for two providers with three hosts each.
    pub const CONTENDED: Size = Size {
        pips: Some(2),
        hosts: Some(3),
        networks: Some(16),
        networks_per_vno: None,
        contends: true,
        is_plain: false,
        is_able: false,
    };
}

/// How networks ended in a run, and how many faults and messages there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Networks that operators requested. Each of them is in one of the five counts that follow.
    pub wanted: u64,
    /// Networks that were ready some time after the last fault.
    pub ready: u64,
    /// Networks that were refused. Each refusal states a reason: one without is a [`Violation`].
    pub refused: u64,
    /// Networks that their operators had removed before the end of the run.
    pub withdrawn: u64,
    /// Networks whose leases had expired before the end of the run.
    pub expired: u64,
    /// Networks of operators whose VNP was lost.
    pub lost: u64,
    /// Nodes that moved to another host.
    pub moved: u64,
    /// Number of times that a host was drained.
    pub drained: u64,
    /// Times that a process, agent, host or machine died and restarted.
    pub deaths: u64,
    /// Times that the connection of two parties was cut for a while.
    pub cuts: u64,
    /// Times that a store did not answer for a while.
    pub stores_away: u64,
    /// Messages that parties and agents have sent to each other.
    pub messages: u64,
}

/// A requirement that a run has violated, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Seed of the run.
    pub seed: u64,
    /// Time in the run, in seconds.
    pub at: String,
    /// The requirement, and how the run violated it.
    pub what: String,
}

/// Runs the scenario of a seed. `trace` receives a line for each event.
///
/// # Errors
/// The first requirement that does not hold.
pub fn run(
    seed: u64,
    size: Size,
    trace: Option<&mut dyn FnMut(&str)>,
) -> Result<Outcome, Violation> {
    let scenario = Scenario::new(seed, size);
    World::new(scenario, seed, None, trace).run()
}

/// Like [`run`], with roles that lack a safeguard.
///
/// # Errors
/// The first requirement that does not hold: with this seed, the simulation detects that the
/// safeguard is missing.
pub fn run_without(seed: u64, size: Size, mutant: Mutant) -> Result<Outcome, Violation> {
    let scenario = Scenario::new(seed, size);
    World::new(scenario, seed, Some(mutant), None).run()
}

/// Time limits of the roles in runs. Leases are short enough to end during a run.
fn timing(mutant: Option<Mutant>) -> Timing {
    let lease = match mutant {
        Some(Mutant::PartsNeverEnd) => FOR_EVER,
        _ => Duration::from_secs(90),
    };
    Timing {
        lease,
        ..Timing::default()
    }
}

/// A time longer than any run.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

impl AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.wanted += other.wanted;
        self.ready += other.ready;
        self.refused += other.refused;
        self.withdrawn += other.withdrawn;
        self.expired += other.expired;
        self.lost += other.lost;
        self.moved += other.moved;
        self.drained += other.drained;
        self.deaths += other.deaths;
        self.cuts += other.cuts;
        self.stores_away += other.stores_away;
        self.messages += other.messages;
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: at {}: {}", self.seed, self.at, self.what)
    }
}

impl std::error::Error for Violation {}
