//! What a PIP and its agents say of nodes that move from one host to another.
//!
//! ```text
//!   source                     PIP                    destination
//!     |                         | -- Receive ------------> |
//!     |                         | <------------- Awaited - |
//!     | <--------------- Send - |                          |
//!     | ============ the guest, over mutual TLS =========> |
//!     |                         | <------------- Arrived - |
//!     |              writes the new placement              |
//!     | <------------ Set ----- | ------- Set -----------> |
//! ```
//!
//! The guest stands still at both ends once it has arrived, and runs where the placement in the
//! store of the PIP says. Until that is written anew it can go on at its source
//! ([`ToAgent::EndMove`](super::ToAgent::EndMove)).

use serde::{Deserialize, Serialize};

use crate::host_part::{HostPart, VnetId};

/// An order to await a node that comes from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveNode {
    /// What tells this move from all others. Only who knows it can send the node.
    pub number: u64,
    /// The node.
    pub node: String,
    /// The host from which it comes.
    pub from: String,
    /// What the destination has once the node is there. Its generation is that before the move; the
    /// next one has the node run.
    pub part: Box<HostPart>,
}

/// An order to send a node to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendNode {
    /// The network.
    pub vnet: VnetId,
    /// The generation of the destination meanwhile; the source has an older one.
    pub generation: u64,
    /// What tells this move from all others.
    pub number: u64,
    /// The node.
    pub node: String,
    /// The destination.
    pub to: String,
    /// Where the destination's agent takes nodes, as it has said.
    pub at: String,
    /// How long it may take, ms.
    pub limit_ms: u64,
}

/// What a host says of a move in which it has a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveStatus {
    /// The network.
    pub vnet: VnetId,
    /// Which move.
    pub number: u64,
    /// How far it is.
    pub state: MoveState,
}

/// How far a move is at one of its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    /// The destination awaits the node.
    Awaited {},
    /// The destination has it all; it stands still at both ends.
    Arrived {},
    /// It runs at the destination.
    Runs {
        /// For how long it stood still, µs; none if the agent has begun anew meanwhile.
        stood_us: Option<u64>,
    },
    /// The source sends it, or has sent it and waits.
    Sending {},
    /// It cannot be sent, or be received.
    Failed {
        /// Why, for the provider.
        reason: String,
    },
}
