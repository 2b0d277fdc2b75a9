//! Nodes that simulated hosts refuse to make: permanently, or for a while.
//!
//! A host has limits, which it reports to its provider. It also refuses nodes for other reasons,
//! which it reports only when it is ordered to make the node: some nodes it never makes, others it
//! makes later.

use carina_random::{Random, mix};
use carina_time::{Duration, Instant};
use carina_vnet::host_part::{Cause, HostLimits, HostPart, NodeState, RefusedChange, VnetId};

use super::PlayedHost;

/// Decides by a seed of its own which nodes a host refuses although they are within its limits.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    seed: u64,
}

/// Decision of a host about a node that it is ordered to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The host makes the node as soon as it is ordered to.
    Makes,
    /// The host's attempts to make the node fail until this time.
    Fails(Instant),
    /// The host never makes the node.
    Refuses,
}

impl Temper {
    /// The decisions of host number `host` in the run of a seed.
    #[must_use]
    pub fn new(seed: u64, host: usize) -> Temper {
        Temper {
            seed: mix(seed, host as u64),
        }
    }

    fn verdict(self, now: Instant, vnet: VnetId, node: &str) -> Verdict {
        let seed = node
            .bytes()
            .fold(mix(self.seed, vnet.number()), |seed, byte| {
                mix(seed, u64::from(byte))
            });
        let mut random = Random::new(seed);
        if random.chance(REFUSES) {
            return Verdict::Refuses;
        }
        if random.chance(FAILS) {
            Verdict::Fails(now + Duration::from_millis(random.within(100, FAILS_MS_MAX)))
        } else {
            Verdict::Makes
        }
    }
}

impl PlayedHost {
    /// Gives the host limits, which it reports to its provider, and a [`Temper`], which it does not
    /// report.
    pub fn limit(&mut self, limits: HostLimits, temper: Temper) {
        self.limits = Some(limits);
        self.temper = Some(temper);
    }

    /// Decides about the nodes of a part, and returns one that the host never makes, if there is
    /// one. Nodes that run here, or have arrived from another host, are accepted.
    pub(super) fn refused_node(&mut self, now: Instant, part: &HostPart) -> Option<String> {
        self.temper?;
        for node in &part.nodes {
            self.decide(now, part.vnet, &node.name);
        }
        let mut nodes = part.nodes.iter().map(|node| &node.name);
        let refused = nodes.find(|node| self.verdict(part.vnet, node) == Verdict::Refuses);
        refused.cloned()
    }

    /// Decides about a node, once: the decision is kept.
    pub(super) fn decide(&mut self, now: Instant, vnet: VnetId, node: &str) -> Verdict {
        let key = (vnet, node.to_owned());
        let runs = self.guests.contains_key(&key) || self.has_come(vnet, node);
        let temper = self.temper.filter(|_| !runs);
        let verdict = self.verdicts.entry(key);
        *verdict.or_insert_with(|| {
            temper.map_or(Verdict::Makes, |temper| temper.verdict(now, vnet, node))
        })
    }

    /// Records that the host refuses a change.
    pub(super) fn refuse(&mut self, part: &HostPart, node: String) {
        let change = RefusedChange {
            generation: part.generation,
            node,
            state: self.refusal(),
        };
        self.refused.insert(part.vnet, change);
    }

    /// The reported state of a node that the host never makes.
    pub(super) fn refusal(&self) -> NodeState {
        NodeState::Refused {
            reason: format!("on {} it is never made", self.name),
            cause: REFUSED,
        }
    }

    /// The decision about a node.
    pub(super) fn verdict(&self, vnet: VnetId, node: &str) -> Verdict {
        let known = self.verdicts.get(&(vnet, node.to_owned()));
        known.copied().unwrap_or(Verdict::Makes)
    }

    /// Describes a node that the host has although its reported limits forbid it; `None` if the
    /// host keeps its limits.
    #[must_use]
    pub fn beyond_limits(&self) -> Option<String> {
        let limits = self.limits.as_ref()?;
        let mut parts = self.parts.values().map(|(part, _)| part);
        let error = parts.find_map(|part| limits.check(part).err())?;
        Some(format!("host {} was told to make {error}", self.name))
    }
}

/// The kind of reason that a host reports for a node that it never makes.
pub const REFUSED: Cause = Cause::Image;

/// Shares of nodes, in 1/10000, that a host never makes, and that it makes later.
const REFUSES: u32 = 80;
const FAILS: u32 = 300;
/// Longest time until a node can be made, in ms.
const FAILS_MS_MAX: u64 = 150_000;
