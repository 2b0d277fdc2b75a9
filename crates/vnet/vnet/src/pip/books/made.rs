//! A part that a provider has made, and the move of one of its nodes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::host_part::EndPart;
use crate::message::{PartRequest, TunnelEnd};
use crate::pip::moving::{MoveOutcome, Moved, Moving};
use crate::pip::placing::{Laid, Placement};
use crate::pip::repointing::Untold;

use super::MOVES_BITS;

/// A part that is made, or was and is being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::pip) struct Made {
    pub(in crate::pip) vnp: String,
    pub(in crate::pip) round: u64,
    pub(in crate::pip) laid: Laid,
    /// Where links lead that leave the provider.
    pub(in crate::pip) far: Vec<(EndPart, TunnelEnd)>,
    /// When it goes unless its VNP names it again, ms since 1970.
    pub(in crate::pip) expires_ms: u64,
    /// Whether it is being removed.
    pub(in crate::pip) is_leaving: bool,
    /// What it was before, until the hosts have let go of that.
    pub(in crate::pip) previous: Vec<Laid>,
    /// How often nodes of it have moved, or were about to, since this round.
    #[serde(default)]
    pub(in crate::pip) moves: u64,
    /// The move that is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) moving: Option<Moving>,
    /// The outcome of the move before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) moved: Option<Moved>,
    /// Ends of links that have moved, of which the providers beyond do not know yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) untold: Option<Untold>,
}

impl Made {
    /// All hosts that have, or may still have, something of it.
    pub(in crate::pip) fn hosts(&self) -> BTreeSet<&str> {
        let laid = self.previous.iter().chain([&self.laid]);
        let hosts = laid.flat_map(Laid::hosts);
        hosts.chain(self.destination()).collect()
    }

    /// The hosts that should have something of it.
    pub(in crate::pip) fn wanted_hosts(&self) -> BTreeSet<&str> {
        if self.is_leaving {
            return BTreeSet::new();
        }
        let hosts = self.laid.hosts().into_iter();
        hosts.chain(self.destination()).collect()
    }

    /// What hosts know as the generation of their parts: it grows with each attempt of the VNP, and
    /// in between with each move.
    pub(in crate::pip) fn generation(&self) -> u64 {
        (self.round << MOVES_BITS) | self.moves
    }

    /// The generation that a host should have. A move that is not decided concerns its destination
    /// alone.
    pub(in crate::pip) fn generation_at(&self, host: &str) -> u64 {
        let is_concerned = self.undecided().is_none_or(|moving| moving.to == host);
        self.generation() - u64::from(!is_concerned)
    }

    /// The move under way, while the node is where it was.
    pub(in crate::pip) fn undecided(&self) -> Option<&Moving> {
        self.moving.as_ref().filter(|moving| !moving.is_decided)
    }

    /// Whether no node of it moves, and all who have to know where nodes are do.
    pub(in crate::pip) fn is_still(&self) -> bool {
        self.moving.is_none() && self.untold.is_none()
    }

    /// The host that awaits a node, or is about to.
    fn destination(&self) -> Option<&str> {
        let moving = self.moving.as_ref().filter(|moving| moving.is_awaited());
        moving.map(|moving| moving.to.as_str())
    }

    /// Ends the move under way, notes how, and returns it. What a destination may have that awaited
    /// the node in vain counts until it says that it has let go.
    pub(in crate::pip) fn end_move(&mut self, outcome: MoveOutcome) -> Option<Moving> {
        let moving = self.moving.take()?;
        if moving.is_awaited() {
            self.previous.push(Laid {
                part: self.laid.part.clone(),
                placement: moving.placement.clone(),
            });
        }
        self.moved = Some(Moved {
            number: moving.number,
            outcome,
        });
        Some(moving)
    }

    /// All that it has, or may still have, of the substrate.
    pub(super) fn placements(&self) -> impl Iterator<Item = (&PartRequest, &Placement)> {
        let laid = self.previous.iter().chain([&self.laid]);
        let laid = laid.map(|laid| (&laid.part, &laid.placement));
        let there = self.undecided().map(|it| (&self.laid.part, &it.placement));
        laid.chain(there)
    }
}
