//! What a host says of its part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Cause, VnetId};

/// What a host says of its part of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostStatus {
    /// The network.
    pub vnet: VnetId,
    /// The generation of the part that this is about.
    pub generation: u64,
    /// Its nodes by name.
    pub nodes: BTreeMap<String, NodeStatus>,
    /// Its links by number.
    pub links: BTreeMap<u32, LinkStatus>,
    /// A newer generation that the provider wants and the host does not make; it keeps this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedChange>,
}

/// A change of a part that a host does not make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedChange {
    /// The generation of the part that was to be made.
    pub generation: u64,
    /// A node that cannot be made.
    pub node: String,
    /// Why, and whether trying again may help: the state that the node would have.
    pub state: NodeState,
}

/// What a host says of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeStatus {
    /// How far it is.
    pub state: NodeState,
    /// Whether its console has answered.
    #[serde(default)]
    pub is_console_ready: bool,
}

/// How far a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Nothing of it is there.
    #[default]
    Absent,
    /// It is being made, or boots.
    Starting,
    /// It runs and answers.
    Up,
    /// Its operator has stopped it, and it stays so until its operator starts it.
    Stopped,
    /// It could not be made, or has ended; its host tries again.
    Failed {
        /// Why, in words for the provider.
        reason: String,
        /// Of what kind that is, for the operator.
        #[serde(default)]
        cause: Cause,
    },
    /// Its host can never make it as it is: trying again does not help.
    Refused {
        /// Why, in words for the provider.
        reason: String,
        /// Of what kind that is, for the operator.
        #[serde(default)]
        cause: Cause,
    },
}

/// What a host says of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkStatus {
    /// How far it is.
    pub state: LinkState,
    /// Round trip that the last probe from this host took, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
}

/// How far a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LinkState {
    /// Nothing of it is there.
    #[default]
    Absent,
    /// It is there, and no probe has passed yet, or none passes any more.
    Down {
        /// Why, in words for the provider.
        reason: String,
        /// Of what kind that is, for the operator.
        #[serde(default)]
        cause: Cause,
    },
    /// A probe from each end on this host was answered by the other end.
    Up,
}

impl NodeStatus {
    /// Whether it is as its operator wants it: it runs and its console answers, or it is stopped.
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
    /// What may be known of it to those who must not know its host: of the reason of a failure only
    /// the kind.
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
    /// Whether it is as its operator wants it: probes pass it, or its operator has taken it down or
    /// stopped a node at its end.
    #[must_use]
    pub fn is_as_wanted(&self) -> bool {
        *self == LinkState::Up || self.is_switched_off()
    }

    /// Whether its operator has taken it down or stopped a node at its end.
    #[must_use]
    pub fn is_switched_off(&self) -> bool {
        matches!(self, LinkState::Down { cause, .. } if *cause == Cause::Operator)
    }

    /// As [`NodeState::for_operators`].
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
    /// Whether all that was wanted runs: every node is up, its console answers, and probes have
    /// passed every link. What the operator has stopped or taken down is not wanted.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let mut nodes = self.nodes.values();
        let mut links = self.links.values();
        nodes.all(NodeStatus::is_as_wanted) && links.all(|link| link.state.is_as_wanted())
    }

    /// What keeps it from being ready, the nodes first: `node r1: …`, `link 3: …`.
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
