//! Embeddings: a host for each node and a path for each link of a request.

use carina_time::Duration;

use crate::id::{HostId, LinkId};
use crate::request::Request;
use crate::substrate::Substrate;

/// A host for each node and a path for each link of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedding {
    /// The host of each node.
    pub hosts: Vec<HostId>,
    /// The path of each link, from the host of the link's first end to the host of its second end;
    /// empty if both ends are on one host.
    pub paths: Vec<Vec<LinkId>>,
}

impl Embedding {
    /// The cost of the embedding: processors, plus rate times price for each link of each path.
    ///
    /// If all prices are 1 this is the cost of Yu, Yi, Rexford and Chiang, *Rethinking Virtual
    /// Network Embedding* (2008): rates times hops.
    ///
    /// # Panics
    /// If the embedding belongs to another request or substrate.
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

/// The price of a unit of rate on a path: the sum of its links' prices.
///
/// # Panics
/// If the path names a link that the substrate does not have.
#[must_use]
pub fn price(substrate: &Substrate, path: &[LinkId]) -> u64 {
    let price = |link: &LinkId| u64::from(substrate.links()[link.index()].price);
    path.iter().map(price).sum()
}

/// The delay of a path: the sum of its links' delays.
///
/// # Panics
/// If the path names a link that the substrate does not have.
#[must_use]
pub fn delay(substrate: &Substrate, path: &[LinkId]) -> Duration {
    let delay = |link: &LinkId| substrate.links()[link.index()].delay;
    path.iter().map(delay).sum()
}
