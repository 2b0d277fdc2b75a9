//! What hosts that are played refuse to make: for good, or for a while.
//!
//! A host has limits, which it reports to its provider. Beyond its limits it has reasons that it
//! reports only when it has a node to make: some nodes it never makes, and some it makes later.

use carina_random::{Random, mix};
use carina_time::{Duration, Instant};
use carina_vnet::host_part::{Cause, HostLimits, HostPart, NodeState, RefusedChange, VnetId};

use super::PlayedHost;

/// What a host refuses beyond its limits, by a seed of its own.
#[derive(Clone, Copy, Debug)]
pub struct Temper {
    seed: u64,
}

/// Whether a host makes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// At once.
    Makes,
    /// It fails until then.
    Fails(Instant),
    /// Never.
    Refuses,
}

impl Temper {
    /// The temper of the host with this number in the run of a seed.
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
    /// Gives the host limits, of which it tells its provider, and a temper, of which it does not.
    pub fn limit(&mut self, limits: HostLimits, temper: Temper) {
        self.limits = Some(limits);
        self.temper = Some(temper);
    }

    /// Decides which nodes of a part it makes, and returns one that it never does. What runs here,
    /// or has come from another host, it keeps.
    pub(super) fn judge(&mut self, now: Instant, part: &HostPart) -> Option<String> {
        let temper = self.temper?;
        for node in &part.nodes {
            let key = (part.vnet, node.name.clone());
            let runs = self.guests.contains_key(&key) || self.has_come(part.vnet, &node.name);
            let verdict = self.verdicts.entry(key);
            verdict.or_insert_with(|| {
                if runs {
                    Verdict::Makes
                } else {
                    temper.verdict(now, part.vnet, &node.name)
                }
            });
        }
        let mut nodes = part.nodes.iter().map(|it| &it.name);
        let refused = nodes.find(|node| self.verdict(part.vnet, node) == Verdict::Refuses);
        refused.cloned()
    }

    /// Notes that it does not make a change.
    pub(super) fn refuse(&mut self, part: &HostPart, node: String) {
        let change = RefusedChange {
            generation: part.generation,
            node,
            state: self.refusal(),
        };
        self.refused.insert(part.vnet, change);
    }

    /// The state of a node that it never makes.
    pub(super) fn refusal(&self) -> NodeState {
        NodeState::Refused {
            reason: format!("on {} it is never made", self.name),
            cause: REFUSED,
        }
    }

    /// What it has decided of a node.
    pub(super) fn verdict(&self, vnet: VnetId, node: &str) -> Verdict {
        let known = self.verdicts.get(&(vnet, node.to_owned()));
        known.copied().unwrap_or(Verdict::Makes)
    }

    /// A node that it has although its limits, of which its provider knows, forbid it.
    #[must_use]
    pub fn beyond_limits(&self) -> Option<String> {
        let limits = self.limits.as_ref()?;
        let mut parts = self.parts.values().map(|(part, _)| part);
        let error = parts.find_map(|part| limits.check(part).err())?;
        Some(format!("host {} was told to make {error}", self.name))
    }
}

/// Of what kind a host says its reason is for a node that it never makes.
pub const REFUSED: Cause = Cause::Image;

/// Shares of nodes, of 10,000, that a host never makes, and that it makes later.
const REFUSES: u32 = 80;
const FAILS: u32 = 300;
/// How much later at most.
const FAILS_MS_MAX: u64 = 150_000;
