//! What the books say of the move of a node to another host.

use serde::{Deserialize, Serialize};

use crate::host_part::EndPart;

use super::placing::Placement;

/// The current move of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moving {
    pub(super) number: u64,
    pub(super) node: String,
    pub(super) from: String,
    pub(super) to: String,
    /// Before the decision, the placement after the move; after the decision, the placement before
    /// it.
    pub(super) placement: Placement,
    /// Time at which the PIP ends the move if its outcome is not decided, in ms since 1970.
    pub(super) until_ms: u64,
    /// Whether the node is at its destination: the new placement is in the store.
    pub(super) is_decided: bool,
    /// Link ends of the node for which the other provider has not agreed yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) awaits: Vec<EndPart>,
}

impl Moving {
    /// Whether the destination awaits the node or is about to: all other providers have agreed, and
    /// the move is not decided.
    pub(super) fn is_awaited(&self) -> bool {
        self.awaits.is_empty() && !self.is_decided
    }
}

/// The outcome of a finished move, by its number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Moved {
    pub(super) number: u64,
    pub(super) outcome: MoveOutcome,
}

/// How a move of a node ended: where the node is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveOutcome {
    /// The node runs at its destination.
    Moved {
        /// How long the node was paused, µs; `None` if unknown.
        #[serde(rename = "stood_us")]
        paused_us: Option<u64>,
    },
    /// The destination lost the node's state after it had arrived, and has created the node again.
    #[serde(rename = "made-anew")]
    Recreated {},
    /// The node is still at its source.
    Stayed {
        /// The reason, for the provider's operator.
        reason: String,
    },
}

/// Link ends that have moved, and which the other providers have not acknowledged yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Untold {
    /// Number of the move that moved the link ends.
    pub(super) number: u64,
    pub(super) ends: Vec<EndPart>,
}
