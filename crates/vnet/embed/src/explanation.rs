//! Why a request does not fit, and what would: the constraint that binds, and the smallest
//! relaxation with which an embedder does place the request.
//!
//! A relaxation is only named after the embedder has placed the request that is relaxed so.
//! Several are tried, each of one node, one link or one pair; the one that changes the request
//! least is taken, as a share of what was wanted. Where none alone helps, all rates are lowered
//! together.

mod matching;
mod relaxing;
mod words;

use carina_time::Duration;

use crate::embedder::Embedder;
use crate::explanation::relaxing::Search;
use crate::id::{HostId, NodeId, VirtualLinkId};
use crate::request::{Request, Sharing};
use crate::residual::{Amounts, Residual};

pub use self::words::{Names, Numbered};

/// Why a request does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What binds.
    pub constraint: Constraint,
    /// The smallest change with which the request is placed, if one was found.
    pub relaxation: Option<Relaxation>,
}

/// What binds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint {
    /// No host, where the node may be, is right for it.
    Host {
        /// The node.
        node: NodeId,
        /// What they lack.
        lack: Lack,
    },
    /// These nodes need a host each, and fewer hosts are right for any of them.
    Hosts {
        /// The nodes.
        nodes: Vec<NodeId>,
        /// The hosts.
        hosts: Vec<HostId>,
    },
    /// There are hosts, but no path for this link between those that its ends can have.
    Link {
        /// The link.
        link: VirtualLinkId,
    },
    /// Each node has a host that is right for it alone, but not beside the others.
    Node {
        /// The node.
        node: NodeId,
    },
    /// There are hosts, but what the links need together is not there.
    Together,
}

/// What hosts lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// The location.
    Location,
    /// A label, or several on one host.
    Labels,
    /// Processors: the most that one has.
    Cpu(u64),
    /// Memory: the most that one has.
    Memory(u64),
    /// Network cards: the most that one has.
    Nics(u64),
    /// Each is there, but not on one host.
    OneHostWithAll,
}

/// A change of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Relaxation {
    /// The node with so many processors.
    Cpu(NodeId, u64),
    /// The node with so much memory.
    Memory(NodeId, u64),
    /// The node with so many network cards.
    Nics(NodeId, u64),
    /// The node at any location.
    AnyLocation(NodeId),
    /// The node without labels.
    NoLabels(NodeId),
    /// The two nodes on one host.
    NotApart([NodeId; 2]),
    /// The link with this rate.
    Rate(VirtualLinkId, u64),
    /// The link with this delay.
    Delay(VirtualLinkId, Duration),
    /// All links with so many of a hundred parts of their rates.
    AllRates(u64),
}

/// Finds out why an embedder does not place a request; nothing if it does. It asks the embedder
/// some ten to some hundred times.
pub fn explain(
    residual: &Residual,
    request: &Request,
    embedder: &mut impl Embedder,
) -> Option<Explanation> {
    if embedder.embed(residual, request).is_ok() {
        return None;
    }
    let relaxation = Search::new(residual, request, embedder).smallest();
    let constraint = binding(residual, request, relaxation.as_ref());
    Some(Explanation {
        constraint,
        relaxation,
    })
}

fn binding(residual: &Residual, request: &Request, relaxation: Option<&Relaxation>) -> Constraint {
    let nodes = (0..request.nodes().len()).map(NodeId::of);
    let lacks = |node: NodeId| Some((node, lack(residual, request, node)?));
    if let Some((node, lack)) = nodes.clone().find_map(lacks) {
        return Constraint::Host { node, lack };
    }
    if request.sharing() == Sharing::Never
        && let Some((nodes, hosts)) = matching::too_few_hosts(residual, request)
    {
        return Constraint::Hosts { nodes, hosts };
    }
    match relaxation {
        Some(Relaxation::Rate(link, _) | Relaxation::Delay(link, _)) => {
            Constraint::Link { link: *link }
        }
        Some(
            Relaxation::Cpu(node, _)
            | Relaxation::Memory(node, _)
            | Relaxation::Nics(node, _)
            | Relaxation::AnyLocation(node)
            | Relaxation::NoLabels(node)
            | Relaxation::NotApart([node, _]),
        ) => Constraint::Node { node: *node },
        Some(Relaxation::AllRates(_)) | None => Constraint::Together,
    }
}

/// What all hosts lack for a node alone.
fn lack(residual: &Residual, request: &Request, node: NodeId) -> Option<Lack> {
    let node = &request.nodes()[node.index()];
    let free = (0..).map(HostId::of).zip(residual.hosts());
    // A host that it must not be on is as good as full.
    let free = free.map(|(host, free)| {
        if node.barred.contains(&host) {
            Amounts::default()
        } else {
            *free
        }
    });
    let hosts = residual.substrate().hosts().iter().zip(free);
    let there = hosts.filter(|(host, _)| node.accepts_location(host));
    if there.clone().count() == 0 {
        return Some(Lack::Location);
    }
    let right = there
        .filter(|(host, _)| node.accepts(host))
        .map(|(_, free)| free);
    let most = |of: fn(&Amounts) -> u64| right.clone().map(|free| of(&free)).max();
    let Some(cpu) = most(|free| free.cpu) else {
        return Some(Lack::Labels);
    };
    let memory = most(|free| free.memory).unwrap_or(0);
    let nics = most(|free| free.nics).unwrap_or(0);
    let amounts = Amounts::of_node(node);
    if cpu < node.cpu {
        Some(Lack::Cpu(cpu))
    } else if memory < node.memory {
        Some(Lack::Memory(memory))
    } else if nics < node.nics {
        Some(Lack::Nics(nics))
    } else if right.clone().any(|free| free.contains(amounts)) {
        None
    } else {
        Some(Lack::OneHostWithAll)
    }
}
