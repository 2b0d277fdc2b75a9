//! Messages between a PIP and the agents of its hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{MoveStatus, ReceiveNode, SendNode};
use crate::host_part::{HostLimits, HostPart, HostStatus, NodeState, VnetId};

/// A message of a PIP to an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToAgent {
    /// Makes the host have this part. The agent ignores a part that is older than the one it has or
    /// than the latest removal.
    Set(Box<HostPart>),
    /// Removes all of a network up to a generation; the agent never makes such a generation again.
    Remove {
        /// Identifier (uid) of the network to remove.
        vnet: VnetId,
        /// The last generation to remove.
        through: u64,
    },
    /// Prepares the host to receive a node that moves here.
    Receive(ReceiveNode),
    /// Sends a node to another host.
    Send(SendNode),
    /// Ends a move, whether it was completed or given up. The source resumes a node that it was to
    /// send. The destination drops a node that it awaited and that does not run there yet.
    EndMove {
        /// Identifier (uid) of the network whose node moves.
        vnet: VnetId,
        /// Number of the move to end.
        number: u64,
    },
}

/// An agent's report about everything that its host has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FromAgent {
    /// Name of the host whose agent reports.
    pub host: String,
    /// The state of each network's part.
    pub parts: Vec<HostStatus>,
    /// Recently removed networks, each with the last generation that was removed.
    pub removed: BTreeMap<VnetId, u64>,
    /// Moves of nodes in which this host takes part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<MoveStatus>,
    /// Address at which the agent receives nodes that move here; `None` if it receives none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves_at: Option<String>,
    /// Limits of the nodes that the host can make; `None` if the agent has not reported them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<HostLimits>,
}

impl FromAgent {
    /// Failures on the host that the earlier report `before` does not have. Each is a line for
    /// those who run the host: network, node, and the reason in the host's own words.
    #[must_use]
    pub fn new_failures(&self, before: Option<&FromAgent>) -> Vec<String> {
        let known = before.into_iter().flat_map(|before| &before.parts);
        let known: BTreeMap<VnetId, &HostStatus> = known.map(|known| (known.vnet, known)).collect();
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
                let was = before
                    .and_then(|before| before.nodes.get(name))
                    .map(|node| &node.state);
                if was != Some(&node.state) {
                    say(name, &node.state);
                }
            }
            let was = before.and_then(|before| before.refused.as_ref());
            if let Some(change) = part.refused.as_ref().filter(|refused| was != Some(refused)) {
                say(&change.node, &change.state);
            }
        }
        lines
    }
}
