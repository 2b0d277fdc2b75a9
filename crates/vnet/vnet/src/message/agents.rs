//! What a PIP and the agents of its hosts say to one another.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MoveStatus, ReceiveNode, SendNode};
use crate::host_part::{HostLimits, HostPart, HostStatus, NodeState, VnetId};

/// What a PIP says to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToAgent {
    /// Make this so. What is older than what was removed, or than what is there, is left undone.
    Set(Box<HostPart>),
    /// Let nothing be left of a network up to this generation, and make none of them again.
    Remove {
        /// The network.
        vnet: VnetId,
        /// The generation.
        through: u64,
    },
    /// Await a node that comes from another host.
    Receive(ReceiveNode),
    /// Send a node to another host.
    Send(SendNode),
    /// A move is over, or was given up: a node that was to be sent runs on, one that was awaited
    /// and does not run yet is awaited no longer.
    EndMove {
        /// The network.
        vnet: VnetId,
        /// Which move.
        number: u64,
    },
}

/// What an agent says: all that its host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromAgent {
    /// The host.
    pub host: String,
    /// What it has of each network.
    pub parts: Vec<HostStatus>,
    /// Networks that were removed a short while ago, each up to a generation.
    pub removed: BTreeMap<VnetId, u64>,
    /// Moves of nodes in which it has a part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveStatus>,
    /// Where its agent takes nodes that move here; none if it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_at: Option<String>,
    /// What only the host knows of the nodes that it can make; none if it has not said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
}

impl FromAgent {
    /// What has failed on the host since an earlier report, for those who run it: network, node,
    /// and why, in the host's own words.
    #[must_use]
    pub fn new_failures(&self, before: Option<&FromAgent>) -> Vec<String> {
        let known = before.into_iter().flat_map(|it| &it.parts);
        let known: BTreeMap<VnetId, &HostStatus> = known.map(|it| (it.vnet, it)).collect();
        let mut lines = Vec::new();
        for part in &self.parts {
            let before = known.get(&part.vnet);
            let mut say = |node: &str, state: &NodeState| {
                let (word, reason) = match state {
                    NodeState::Failed { reason, .. } => ("has failed", reason),
                    NodeState::Refused { reason, .. } => ("cannot be made", reason),
                    NodeState::Absent
                    | NodeState::Starting
                    | NodeState::Up
                    | NodeState::Stopped => return,
                };
                lines.push(format!(
                    "network {}: node {node} {word}: {reason}",
                    part.vnet
                ));
            };
            for (name, node) in &part.nodes {
                let was = before.and_then(|it| it.nodes.get(name)).map(|it| &it.state);
                if was != Some(&node.state) {
                    say(name, &node.state);
                }
            }
            let was = before.and_then(|it| it.refused.as_ref());
            if let Some(change) = part.refused.as_ref().filter(|it| was != Some(it)) {
                say(&change.node, &change.state);
            }
        }
        lines
    }
}
