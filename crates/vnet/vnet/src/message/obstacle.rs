//! What is in the way of a part of a network.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host_part::Cause;

/// What is in the way of a part, in the names of the document; a host's own words stay with its
/// provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// A node is not there yet.
    NodeAbsent(String),
    /// A node starts.
    NodeStarts(String),
    /// A node could not be made, or has ended; its host tries again.
    NodeFailed(String, Cause),
    /// A node can never be made where it is: trying again does not help.
    NodeRefused(String, Cause),
    /// A node's console has not answered.
    ConsoleSilent(String),
    /// No probe passes a link, by its number.
    LinkDown(u32, Cause),
}

impl Obstacle {
    /// The node that is in the way, if it is one.
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

    /// How much it says about the request: of several obstacles the heaviest is passed on.
    #[must_use]
    pub fn weight(&self) -> u8 {
        match self {
            Obstacle::NodeRefused(..) => 3,
            Obstacle::NodeFailed(..) => 2,
            Obstacle::NodeAbsent(_) | Obstacle::NodeStarts(_) | Obstacle::ConsoleSilent(_) => 1,
            Obstacle::LinkDown(..) => 0,
        }
    }

    /// The heaviest of several, and of those with the same weight the first.
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
