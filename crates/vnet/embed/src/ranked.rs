//! The published baselines, which place nodes by rank and route links afterwards.
//!
//! Nodes and hosts are ranked by the same measure. Each node, in this order, goes to the first host
//! with room for it. Then each link takes the first of the ten shortest paths between the hosts of
//! its ends that has its rate. The placement of nodes takes links into account only as far as the
//! measure does.

mod rank;
mod shortest_paths;

use crate::attempt::Attempt;
use crate::embedder::{Embedder, Refusal};
use crate::embedding::{self, Embedding};
use crate::id::{LinkId, NodeId, VirtualLinkId};
use crate::ranked::shortest_paths::ShortestPaths;
use crate::request::Request;
use crate::residual::Residual;

pub use self::rank::Measure;

/// An embedder that ranks and then routes. It caches the shortest paths of a substrate.
#[derive(Clone, Debug)]
pub struct Ranked {
    measure: Measure,
    paths: ShortestPaths,
}

impl Ranked {
    /// An embedder that ranks hosts and nodes by this measure, with an empty cache.
    #[must_use]
    pub fn new(measure: Measure) -> Ranked {
        Ranked {
            measure,
            paths: ShortestPaths::new(PATHS),
        }
    }
}

impl Embedder for Ranked {
    fn embed(&mut self, residual: &Residual, request: &Request) -> Result<Embedding, Refusal> {
        let mut attempt = Attempt::new(residual, request);
        let hosts = self.measure.hosts(residual);
        for node in self.measure.nodes(request) {
            let node = NodeId(node);
            let may_place = |host: &&u32| attempt.may_place(node, **host);
            let host = hosts.iter().find(may_place);
            attempt.place(node, *host.ok_or(Refusal::NoHost { node })?);
        }
        for link in (0..request.links().len()).map(VirtualLinkId::of) {
            if !self.route(&mut attempt, link) {
                return Err(Refusal::NoPath { link });
            }
        }
        let node = NodeId(0);
        attempt.embedding().ok_or(Refusal::NoHost { node })
    }
}

impl Ranked {
    fn route(&mut self, attempt: &mut Attempt, link: VirtualLinkId) -> bool {
        let ends = attempt.request.links()[link.index()].ends;
        let [Some(from), Some(to)] = ends.map(|node| attempt.host_of(node)) else {
            return false;
        };
        let substrate = attempt.free().substrate().clone();
        let delay_max = attempt.demand(link).delay_max;
        let paths = self.paths.between(&substrate, from, to);
        paths.into_iter().any(|path| {
            let is_fast = delay_max.is_none_or(|delay_max| {
                let path: Vec<LinkId> = path.iter().copied().map(LinkId).collect();
                embedding::delay(&substrate, &path) <= delay_max
            });
            is_fast && attempt.route_on(link, path)
        })
    }
}

/// Number of paths between two hosts that are tried.
const PATHS: usize = 10;
