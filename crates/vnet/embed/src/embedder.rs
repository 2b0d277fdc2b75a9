//! What places requests, and its answer.

use crate::embedding::Embedding;
use crate::id::{NodeId, VirtualLinkId};
use crate::request::Request;
use crate::residual::Residual;

/// An algorithm that places requests. It changes nothing: [`Residual::take`] does.
pub trait Embedder {
    /// Places a request on what is free.
    ///
    /// # Errors
    /// No place was found. That is no proof that there is no place.
    fn embed(&mut self, residual: &Residual, request: &Request) -> Result<Embedding, Refusal>;
}

/// Where the search for a place ended; [`explain`](crate::explanation::explain) says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No host is right for a node.
    #[error("no host has what node {} needs", node.0)]
    NoHost {
        /// The node.
        node: NodeId,
    },
    /// No path between the hosts of its ends is right for a link.
    #[error("no path has what link {} needs", link.0)]
    NoPath {
        /// The link.
        link: VirtualLinkId,
    },
    /// There are hosts for each node, but none of those left for this one has paths to its
    /// neighbours.
    #[error("no host that is left for node {} has paths to its neighbours", node.0)]
    NoPlace {
        /// The node at which the search that came farthest ended.
        node: NodeId,
    },
}
