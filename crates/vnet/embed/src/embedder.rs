//! The interface of embedding algorithms.

use crate::embedding::Embedding;
use crate::id::{NodeId, VirtualLinkId};
use crate::request::Request;
use crate::residual::Residual;

/// An algorithm that finds placements for requests. It reserves nothing; [`Residual::take`] does
/// that.
pub trait Embedder {
    /// Finds a placement for a request on free resources.
    ///
    /// # Errors
    /// No placement was found. One may exist nevertheless.
    fn embed(&mut self, residual: &Residual, request: &Request) -> Result<Embedding, Refusal>;
}

/// Where the search for a placement ended; [`explain`](crate::explanation::explain) gives the
/// binding constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No host suits a node.
    #[error("no host satisfies the requirements of node {}", node.0)]
    NoHost {
        /// The node that no host suits.
        node: NodeId,
    },
    /// No path between the hosts of a link's ends suits the link.
    #[error("no path satisfies the requirements of link {}", link.0)]
    NoPath {
        /// The link that has no suitable path.
        link: VirtualLinkId,
    },
    /// Each node has suitable hosts, but none of those left for this node has paths to the hosts of
    /// its neighbours.
    #[error(
        "none of the remaining hosts for node {} has paths to the hosts of its neighbours",
        node.0
    )]
    NoPlace {
        /// The node at which the most successful attempt ended.
        node: NodeId,
    },
}
