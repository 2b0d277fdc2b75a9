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

use crate::host_part::{EndPart, HostPart, VnetId};

use super::{PartKey, Reason, TunnelEnd};

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

/// Ends of links between providers that move with a node. Each is asked for, and said, until it is
/// answered.
///
/// ```text
///   PIP of the node            VNP             PIP beyond
///     | -- Repoint, undecided -> | -------------> |   before anything is made anywhere
///     | <-------------- its answer -------------- |
///     |          the node moves                   |
///     | -- Repoint, decided ---> | -------------> |   its hosts have their links lead there
///     | <-------------- its answer -------------- |
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repoint {
    /// The network and the attempt of which the part is.
    pub key: PartKey,
    /// What tells this move from all others.
    pub number: u64,
    /// Whether the node has moved; else the provider beyond is asked whether it may.
    pub is_decided: bool,
    /// To the VNP: ends at the node, and where they are. From the VNP: the ends at the other
    /// provider's nodes, and where they lead. The tag of a link stays as it is.
    pub ends: Vec<(EndPart, TunnelEnd)>,
}

/// What the provider beyond says of a [`Repoint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepointAnswer {
    /// The network and the attempt.
    pub key: PartKey,
    /// Which move.
    pub number: u64,
    /// Whether it answers what is decided.
    pub is_decided: bool,
    /// To the VNP: the ends at its own nodes. From the VNP: those at the node that moves.
    pub ends: Vec<EndPart>,
    /// Why the node may not move now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Reason>,
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
