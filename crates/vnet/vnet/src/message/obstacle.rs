//! Obstacles: what keeps a part of a network from being ready.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_part::Cause;

/// What keeps a part from being ready, in names of the operator's document. The host's own words do
/// not leave its provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// This node is not made yet.
    NodeAbsent(String),
    /// This node is starting.
    NodeStarts(String),
    /// This node could not be made, or has ended by itself; its host retries.
    NodeFailed(String, Cause),
    /// This node can never be made on its host; retrying does not help.
    NodeRefused(String, Cause),
    /// The console of this node has not answered.
    ConsoleSilent(String),
    /// No probe passes the link of this number.
    LinkDown(u32, Cause),
}

impl Obstacle {
    /// The node that the obstacle is about; `None` for a link.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Obstacle::NodeAbsent(node)
            | Obstacle::NodeStarts(node)
            | Obstacle::NodeFailed(node, _)
            | Obstacle::NodeRefused(node, _)
            | Obstacle::ConsoleSilent(node) => Some(node),
            Obstacle::LinkDown(..) => None,
        }
    }

    /// How informative the obstacle is, 0 to 3: of several obstacles the one with the highest
    /// weight is passed on.
    #[must_use]
    pub fn weight(&self) -> u8 {
        match self {
            Obstacle::NodeRefused(..) => 3,
            Obstacle::NodeFailed(..) => 2,
            Obstacle::NodeAbsent(_) | Obstacle::NodeStarts(_) | Obstacle::ConsoleSilent(_) => 1,
            Obstacle::LinkDown(..) => 0,
        }
    }

    /// The obstacle with the highest weight; of several with the same weight the first; `None` if
    /// there are no obstacles.
    #[must_use]
    pub fn heaviest<'a>(all: impl Iterator<Item = &'a Obstacle>) -> Option<&'a Obstacle> {
        all.reduce(|one, other| {
            if other.weight() > one.weight() {
                other
            } else {
                one
            }
        })
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::NodeAbsent(node) => write!(f, "node {node}: it is not there yet"),
            Obstacle::NodeStarts(node) => write!(f, "node {node}: it starts"),
            Obstacle::NodeFailed(node, cause) => write!(f, "node {node}: it has failed: {cause}"),
            Obstacle::NodeRefused(node, cause) => write!(f, "node {node}: {cause}"),
            Obstacle::ConsoleSilent(node) => {
                write!(f, "node {node}: its console has not answered")
            }
            Obstacle::LinkDown(link, cause) => write!(f, "link {link}: {}", cause.words_of_link()),
        }
    }
}
