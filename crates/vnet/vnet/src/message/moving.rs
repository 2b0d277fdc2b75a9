//! Messages between a PIP and its agents about nodes that move from one host to another.
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
//! Once the guest has arrived, it is paused at both ends. It then runs at the host that the
//! placement in the PIP's store names. Until the PIP writes a new placement, the guest can continue
//! at its source ([`ToAgent::EndMove`](super::ToAgent::EndMove)).

use serde::{Deserialize, Serialize};

use crate::host_part::{EndPart, HostPart, VnetId};

use super::{PartKey, Reason, TunnelEnd};

/// An order to receive a node from another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiveNode {
    /// Random number of this move. A source must know it to send the node.
    pub number: u64,
    /// Name of the node that moves here.
    pub node: String,
    /// Name of the source host.
    pub from: String,
    /// The destination's part as it will be after the move, with the generation that the
    /// destination has during the move. The destination prepares the node from this part, and runs
    /// the node when it receives the part of the next generation.
    pub part: Box<HostPart>,
}

/// An order to send a node to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SendNode {
    /// Identifier (uid) of the network to which the node belongs.
    pub vnet: VnetId,
    /// The generation that the destination has during the move; the source has an older one.
    pub generation: u64,
    /// Random number of this move.
    pub number: u64,
    /// Name of the node that the host must send.
    pub node: String,
    /// Name of the destination host.
    pub to: String,
    /// Address at which the destination's agent receives nodes, as that agent has reported it.
    pub at: String,
    /// Time that the move may take, ms.
    pub limit_ms: u64,
    /// The source's part as it will be after the move. When the guest pauses, the source redirects
    /// the links of the node to where they lead in this part.
    pub part: Box<HostPart>,
}

/// Tunnel ends of links between providers that move together with a node. The sender repeats each
/// message until it is answered.
///
/// ```text
///   PIP of the node            VNP             other PIP
///     | -- Repoint, undecided -> | -------------> |   before anything is made anywhere
///     | <---------------- answer ---------------- |
///     |          the node moves                   |
///     | -- Repoint, decided ---> | -------------> |   its hosts redirect their links
///     | <---------------- answer ---------------- |
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repoint {
    /// The network and the attempt to which the part belongs.
    pub key: PartKey,
    /// Random number of this move.
    pub number: u64,
    /// Whether the node has moved. If false, the message asks the other provider whether the node
    /// may move.
    pub is_decided: bool,
    /// In a message to the VNP: the link ends at the moving node, with their new tunnel ends. In a
    /// message from the VNP: the link ends at the other provider's nodes, with the tunnel ends to
    /// which they will lead. The tag of a link does not change.
    pub ends: Vec<(EndPart, TunnelEnd)>,
}

/// The other provider's answer to a [`Repoint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepointAnswer {
    /// The network and the attempt.
    pub key: PartKey,
    /// Number of the move that the answer is about.
    pub number: u64,
    /// The `is_decided` of the message that this answers.
    pub is_decided: bool,
    /// In a message to the VNP: the link ends at the answering provider's nodes. In a message from
    /// the VNP: those at the moving node.
    pub ends: Vec<EndPart>,
    /// Why the node may not move now; `None` if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Reason>,
}

/// A host's report about a move in which it takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveStatus {
    /// Identifier (uid) of the network to which the moving node belongs.
    pub vnet: VnetId,
    /// Number of the move that the report is about.
    pub number: u64,
    /// State of the move on this host.
    pub state: MoveState,
}

/// State of a move on one of its two hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MoveState {
    /// The destination waits for the node.
    Awaited {},
    /// The destination has received all of the node, which is paused on both hosts.
    Arrived {},
    /// The node runs at the destination.
    Runs {
        /// How long the node was paused, µs; `None` if the agent has restarted since.
        #[serde(rename = "stood_us")]
        paused_us: Option<u64>,
    },
    /// The source sends the node, or has sent it and waits for the decision.
    Sending {},
    /// The node cannot be sent or received.
    Failed {
        /// The reason, for the provider to read.
        reason: String,
    },
}
