//! The record of a part that a provider has made, and of a move of one of its nodes.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::host_part::EndPart;
use crate::message::{PartRequest, TunnelEnd};
use crate::pip::moves::{MoveOutcome, Moved, Moving, Untold};
use crate::pip::placing::{Laid, Placement};

use super::MOVES_BITS;

/// A part that is made, or is being removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::pip) struct Made {
    pub(in crate::pip) vnp: String,
    pub(in crate::pip) round: u64,
    pub(in crate::pip) laid: Laid,
    /// The tunnel end at the other provider for each link that leaves this one.
    pub(in crate::pip) far: Vec<(EndPart, TunnelEnd)>,
    /// When the part is removed unless its VNP renews it, ms since 1970.
    pub(in crate::pip) expires_ms: u64,
    /// Whether the part is being removed.
    pub(in crate::pip) is_leaving: bool,
    /// Earlier placements of the part, until the hosts have removed what belongs to them alone.
    pub(in crate::pip) previous: Vec<Laid>,
    /// Number of moves in this round that have begun to change hosts; part of the generation.
    #[serde(default)]
    pub(in crate::pip) moves: u64,
    /// The move of a node that is under way; `None` if no node moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) moving: Option<Moving>,
    /// The outcome of the last move of a node; `None` if no node has moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) moved: Option<Moved>,
    /// Link ends that have moved, and which the other providers have not acknowledged yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::pip) untold: Option<Untold>,
}

impl Made {
    /// All hosts that have, or may still have, something of the part.
    pub(in crate::pip) fn hosts(&self) -> BTreeSet<&str> {
        let laid = self.previous.iter().chain([&self.laid]);
        let hosts = laid.flat_map(Laid::hosts);
        hosts.chain(self.destination()).collect()
    }

    /// The hosts that should have something of the part; none if it is being removed.
    pub(in crate::pip) fn wanted_hosts(&self) -> BTreeSet<&str> {
        if self.is_leaving {
            return BTreeSet::new();
        }
        let hosts = self.laid.hosts().into_iter();
        hosts.chain(self.destination()).collect()
    }

    /// The generation of the part at its hosts. It grows with each round of the VNP, and within a
    /// round with each move.
    pub(in crate::pip) fn generation(&self) -> u64 {
        (self.round << MOVES_BITS) | self.moves
    }

    /// The generation that a host should have. Until a move is decided, only its destination gets
    /// the new generation.
    pub(in crate::pip) fn generation_at(&self, host: &str) -> u64 {
        let is_concerned = self.undecided().is_none_or(|moving| moving.to == host);
        self.generation() - u64::from(!is_concerned)
    }

    /// The current move, as long as the node is still at its source.
    pub(in crate::pip) fn undecided(&self) -> Option<&Moving> {
        self.moving.as_ref().filter(|moving| !moving.is_decided)
    }

    /// Whether no node of the part moves, and all other providers know of the last move.
    pub(in crate::pip) fn is_still(&self) -> bool {
        self.moving.is_none() && self.untold.is_none()
    }

    /// The destination of the current move, once it awaits the node or is about to.
    fn destination(&self) -> Option<&str> {
        let moving = self.moving.as_ref().filter(|moving| moving.is_awaited());
        moving.map(|moving| moving.to.as_str())
    }

    /// Ends the current move with this outcome and returns it. If the destination awaited the node
    /// in vain, its resources stay charged until it reports that it has removed everything.
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

    /// Every placement whose resources the part has, or may still have.
    pub(super) fn placements(&self) -> impl Iterator<Item = (&PartRequest, &Placement)> {
        let laid = self.previous.iter().chain([&self.laid]);
        let laid = laid.map(|laid| (&laid.part, &laid.placement));
        let destination = self
            .undecided()
            .map(|undecided| (&self.laid.part, &undecided.placement));
        laid.chain(destination)
    }
}
