//! Virtual networks on a virtual clock: operators, providers and hosts that die and come back, over
//! messages that are lost, late or double.
//!
//! Everything comes from the seed: what providers own, what operators want, which process dies at
//! which write to its store, which connection is cut, which host is drained. While it goes wrong,
//! no host and no link may ever carry more than it has, no guest that moves may run at two hosts,
//! no host that is drained may get a node, and no operator may read a name of the substrate. When
//! things have gone right for a while, each network is ready or was refused with a reason, unless
//! it was withdrawn or its lease has ended; when all were removed, nothing is left.
//!
//! The machines of `carina_vnet` are those of the product. Hosts are played: a node comes up after
//! a time, a link is up when both its ends name each other.

use std::fmt;
use std::ops::AddAssign;

use carina_time::Duration;
use carina_vnet::timing::Timing;

use self::scenario::Scenario;
use self::world::World;

pub use self::mutant::Mutant;

mod asked;
pub mod host;
mod mutant;
mod process;
mod scenario;
mod unsteady_store;
mod world;

/// How much there is; what is not said is drawn by the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Providers; else 1 to 4.
    pub pips: Option<u8>,
    /// Hosts of each; else 1 to 7.
    pub hosts: Option<u8>,
    /// Networks that are wanted; else 1 to 12.
    pub networks: Option<u16>,
    /// Networks that a VNP gives each operator at a time; else as many as the product does.
    pub networks_per_vno: Option<u16>,
    /// Whether all get in one another's way: two VNPs, all roles but operators with two processes
    /// on a store, networks that come at once, and a VNP that is lost in the midst of it.
    pub contends: bool,
    /// Whether no host is drained, no connection is cut and no store is away: seeds that were found
    /// before these were there play as they did.
    pub is_plain: bool,
    /// Whether hosts have no limits and make every node, in plain runs as well: seeds that were
    /// found before hosts had limits play as they did.
    pub is_able: bool,
}

impl Size {
    /// 1,000 networks over 10 providers of 100 hosts each.
    pub const LARGE: Size = Size {
        pips: Some(10),
        hosts: Some(100),
        networks: Some(1000),
        networks_per_vno: None,
        contends: false,
        is_plain: false,
        is_able: false,
    };

    /// 16 networks that compete for two providers of three hosts.
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

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Networks that operators asked for; each is in one of the five counts that follow.
    pub wanted: u64,
    /// Networks that were ready when all was quiet.
    pub ready: u64,
    /// Networks that were refused, with a reason.
    pub refused: u64,
    /// Networks that their operators removed before.
    pub withdrawn: u64,
    /// Networks whose leases ended before.
    pub expired: u64,
    /// Networks of operators whose VNP was lost.
    pub lost: u64,
    /// Nodes that moved to another host.
    pub moved: u64,
    /// Hosts that were drained.
    pub drained: u64,
    /// Processes, agents, hosts and machines that died and came back.
    pub deaths: u64,
    /// Connections between two parties that were cut for a while.
    pub cuts: u64,
    /// Stores that did not answer for a while.
    pub stores_away: u64,
    /// Messages that were sent.
    pub messages: u64,
}

/// What did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// When, in seconds of the run.
    pub at: String,
    /// What.
    pub what: String,
}

/// Plays the scenario of a seed; `trace` takes a line for each event.
///
/// # Errors
/// What did not hold, first.
pub fn run(
    seed: u64,
    size: Size,
    trace: Option<&mut dyn FnMut(&str)>,
) -> Result<Outcome, Violation> {
    let scenario = Scenario::new(seed, size);
    World::new(scenario, seed, None, trace).run()
}

/// Plays the scenario of a seed without something that keeps networks right.
///
/// # Errors
/// What did not hold, first: it is found by this seed that something is missing.
pub fn run_without(seed: u64, size: Size, mutant: Mutant) -> Result<Outcome, Violation> {
    let scenario = Scenario::new(seed, size);
    World::new(scenario, seed, Some(mutant), None).run()
}

/// How long roles wait for one another in runs: leases short enough to end within one.
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

/// Longer than any run.
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
