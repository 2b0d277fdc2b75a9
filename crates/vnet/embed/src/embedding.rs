//! An embedding: where each node and each link of a request is.

use carina_time::Duration;

use crate::id::{HostId, LinkId};
use crate::request::Request;
use crate::substrate::Substrate;

/// Where the nodes and links of a request are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// The host of each node.
    pub hosts: Vec<HostId>,
    /// The path of each link, from the host of its first end to that of its second; empty where
    /// both are the same.
    pub paths: Vec<Vec<LinkId>>,
}

impl Embedding {
    /// What the request takes of the substrate: processors, and rate times price on each link of
    /// each path.
    ///
    /// With prices of 1 it is the cost of Yu, Yi, Rexford and Chiang, *Rethinking Virtual Network
    /// Embedding* (2008): rates times hops.
    ///
    /// # Panics
    /// When the embedding is of another request or substrate.
    #[must_use]
    pub fn cost(&self, substrate: &Substrate, request: &Request) -> u128 {
        let cpu: u128 = request
            .nodes()
            .iter()
            .map(|node| u128::from(node.cpu))
            .sum();
        let on_path = |(link, path): (&crate::request::VirtualLink, &Vec<LinkId>)| {
            u128::from(link.rate) * u128::from(price(substrate, path))
        };
        let rate: u128 = request.links().iter().zip(&self.paths).map(on_path).sum();
        cpu + rate
    }
}

/// What a unit of rate costs on a path.
///
/// # Panics
/// When the path names a missing link.
#[must_use]
pub fn price(substrate: &Substrate, path: &[LinkId]) -> u64 {
    let price = |link: &LinkId| u64::from(substrate.links()[link.index()].price);
    path.iter().map(price).sum()
}

/// How long a path takes.
///
/// # Panics
/// When the path names a missing link.
#[must_use]
pub fn delay(substrate: &Substrate, path: &[LinkId]) -> Duration {
    let delay = |link: &LinkId| substrate.links()[link.index()].delay;
    path.iter().map(delay).sum()
}
