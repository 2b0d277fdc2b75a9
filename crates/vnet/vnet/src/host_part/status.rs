//! A host's report about its part of a network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Cause, VnetId};

/// A host's report about its part of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostStatus {
    /// Identifier (uid) of the network that the report is about.
    pub vnet: VnetId,
    /// The generation of the part that this report describes.
    pub generation: u64,
    /// The part's nodes, by name.
    pub nodes: BTreeMap<String, NodeStatus>,
    /// The part's links, by number.
    pub links: BTreeMap<u32, LinkStatus>,
    /// A newer part that the host has refused; the host keeps the part of `generation`. `None` if
    /// it has refused none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedChange>,
}

/// A newer part that a host has refused to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedChange {
    /// The generation of the refused part.
    pub generation: u64,
    /// Name of a node that the host cannot make.
    pub node: String,
    /// The state that the node would have, `Failed` or `Refused`: it gives the reason, and whether
    /// retrying can help.
    pub state: NodeState,
}

/// A host's report about a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStatus {
    /// State of the node.
    pub state: NodeState,
    /// Whether the node's console has answered.
    #[serde(default)]
    pub is_console_ready: bool,
}

/// State of a node on its host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Nothing of the node exists on the host.
    #[default]
    Absent,
    /// The host is making the node, or the node boots.
    Starting,
    /// The node runs and answers.
    Up,
    /// The operator has stopped the node; it stays off until the operator starts it.
    Stopped,
    /// The node could not be made, or its machine or namespace ended without an order to stop; the
    /// host retries.
    Failed {
        /// The reason, for the provider to read.
        reason: String,
        /// The class of the reason, for the operator.
        #[serde(default)]
        cause: Cause,
    },
    /// The host can never make the node as it is requested; retrying does not help.
    Refused {
        /// The reason, for the provider to read.
        reason: String,
        /// The class of the reason, for the operator.
        #[serde(default)]
        cause: Cause,
    },
}

/// A host's report about a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkStatus {
    /// State of the link.
    pub state: LinkState,
    /// Round trip of the last probe from this host, ns; `None` if no probe was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
}

/// State of a link on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Nothing of the link exists on the host.
    #[default]
    Absent,
    /// The link exists, but no probe has passed it yet, or probes no longer pass.
    Down {
        /// The reason, for the provider to read.
        reason: String,
        /// The class of the reason, for the operator.
        #[serde(default)]
        cause: Cause,
    },
    /// The last probe from an end on this host was answered by the other end. A link that this host
    /// cannot probe, because its machines here take no commands, is up while these machines run.
    Up,
}

impl NodeStatus {
    /// Whether the node is in the state that its operator wants: it runs and its console answers,
    /// or the operator has stopped it.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        match self.state {
            NodeState::Up => self.is_console_ready,
            NodeState::Stopped => true,
            NodeState::Absent
            | NodeState::Starting
            | NodeState::Failed { .. }
            | NodeState::Refused { .. } => false,
        }
    }
}

impl NodeState {
    /// The state as operators may see it, who must not know the host: of the reason of a failure
    /// only its class remains.
    #[must_use]
    pub fn for_operators(&self) -> NodeState {
        match self {
            NodeState::Failed { cause, .. } => NodeState::Failed {
                reason: cause.to_string(),
                cause: *cause,
            },
            NodeState::Refused { cause, .. } => NodeState::Refused {
                reason: cause.to_string(),
                cause: *cause,
            },
            state => state.clone(),
        }
    }
}

impl LinkState {
    /// Whether the link is in the state that its operator wants: probes pass, or the operator has
    /// taken the link down or stopped a node at its end.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        *self == LinkState::Up || self.is_switched_off()
    }

    /// Whether the operator has taken the link down or stopped a node at its end.
    #[must_use]
    pub fn is_switched_off(&self) -> bool {
        matches!(self, LinkState::Down { cause, .. } if *cause == Cause::Operator)
    }

    /// The state as operators may see it, like [`NodeState::for_operators`].
    #[must_use]
    pub fn for_operators(&self) -> LinkState {
        match self {
            LinkState::Down { cause, .. } => LinkState::Down {
                reason: cause.words_of_link().to_owned(),
                cause: *cause,
            },
            state => state.clone(),
        }
    }
}

impl HostStatus {
    /// Whether the part is ready: every node runs and its console answers, and probes have passed
    /// every link. Nodes and links that the operator has switched off do not count.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut nodes = self.nodes.values();
        let mut links = self.links.values();
        nodes.all(NodeStatus::is_as_wanted) && links.all(|link| link.state.is_as_wanted())
    }

    /// What keeps the part from being ready, nodes first: `node r1: …`, `link 3: …`.
    #[must_use]
    pub fn obstacles(&self) -> Vec<String> {
        let nodes = self.nodes.iter().filter_map(|(name, node)| {
            let what = match &node.state {
                NodeState::Absent => "is not there yet".to_owned(),
                NodeState::Starting => "starts".to_owned(),
                NodeState::Failed { reason, .. } | NodeState::Refused { reason, .. } => {
                    reason.clone()
                }
                NodeState::Up | NodeState::Stopped if node.is_as_wanted() => return None,
                NodeState::Up | NodeState::Stopped => "its console has not answered".to_owned(),
            };
            Some(format!("node {name}: {what}"))
        });
        let links = self.links.iter().filter_map(|(number, link)| {
            let what = match &link.state {
                LinkState::Absent => "is not there yet",
                state if state.is_as_wanted() => return None,
                LinkState::Down { reason, .. } => reason,
                LinkState::Up => return None,
            };
            Some(format!("link {number}: {what}"))
        });
        nodes.chain(links).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_is_ready_when_consoles_and_links_answer() {
        let mut status = HostStatus {
            vnet: VnetId::new(1),
            generation: 1,
            nodes: BTreeMap::from([("a".to_owned(), NodeStatus::default())]),
            links: BTreeMap::from([(0, LinkStatus::default())]),
            refused: None,
        };
        assert_eq!(status.obstacles().len(), 2);
        let node = status.nodes.get_mut("a").unwrap();
        node.state = NodeState::Up;
        assert!(!status.is_ready());
        assert_eq!(
            status.obstacles()[0],
            "node a: its console has not answered"
        );
        status.nodes.get_mut("a").unwrap().is_console_ready = true;
        assert!(!status.is_ready());
        status.links.get_mut(&0).unwrap().state = LinkState::Up;
        assert!(status.is_ready());
        assert!(status.obstacles().is_empty());
    }

    #[test]
    fn what_the_operator_has_stopped_is_no_obstacle() {
        let stopped = NodeStatus {
            state: NodeState::Stopped,
            is_console_ready: false,
        };
        let down = |cause| LinkStatus {
            state: LinkState::Down {
                reason: "it is down".to_owned(),
                cause,
            },
            rtt_ns: None,
        };
        let mut status = HostStatus {
            vnet: VnetId::new(1),
            generation: 1,
            nodes: BTreeMap::from([("a".to_owned(), stopped)]),
            links: BTreeMap::from([(0, down(Cause::Operator))]),
            refused: None,
        };
        assert!(status.is_ready() && status.obstacles().is_empty());
        status.links.insert(0, down(Cause::Silent));
        assert!(!status.is_ready());
        assert_eq!(status.obstacles(), ["link 0: it is down"]);
    }
}
