//! Explains why a request does not fit: the binding constraint, and the smallest relaxation with
//! which an embedder places the request.
//!
//! A relaxation is reported only after the embedder has placed the relaxed request. Several
//! relaxations are tried, each of one node, one link or one pair of nodes. The reported one changes
//! the request least, as a share of what was requested. If none suffices alone, all rates are
//! lowered together.

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

/// Why a request does not fit, and what would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The constraint that keeps the request from being placed.
    pub constraint: Constraint,
    /// The smallest change with which the request is placed; `None` if none was found.
    pub relaxation: Option<Relaxation>,
}

/// A constraint that keeps a request from being placed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Constraint {
    /// No host at the node's allowed locations suits the node.
    Host {
        /// The node that no host suits.
        node: NodeId,
        /// The resource or property that these hosts do not have.
        lack: Lack,
    },
    /// Each of these nodes needs a host of its own, and they have fewer suitable hosts together
    /// than they are.
    Hosts {
        /// The nodes that each need a host of their own.
        nodes: Vec<NodeId>,
        /// The hosts that suit at least one of the nodes.
        hosts: Vec<HostId>,
    },
    /// The ends of this link have suitable hosts, but there is no suitable path between any of
    /// them.
    Link {
        /// The link that has no suitable path.
        link: VirtualLinkId,
    },
    /// Each node has a suitable host, but this one has none left once others are placed.
    Node {
        /// The node that has no suitable host left.
        node: NodeId,
    },
    /// Hosts suffice, but not the rates that all links need together.
    Together,
}

/// The resource or property of hosts that a node needs and they do not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// No host is at an allowed location.
    Location,
    /// No host at an allowed location has all the labels.
    Labels,
    /// No host at an allowed location with all labels has enough free processors; holds the
    /// largest amount that is free on one of them.
    Cpu(u64),
    /// No host at an allowed location with all labels has enough free memory; holds the largest
    /// amount that is free on one of them.
    Memory(u64),
    /// No host at an allowed location with all labels has enough free network cards; holds the
    /// largest number that is free on one of them.
    Nics(u64),
    /// Every requirement is met by some host, but no host meets all.
    OneHostWithAll,
}

/// A change of a request that makes it easier to place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Relaxation {
    /// Lower the node's processors to this amount.
    Cpu(NodeId, u64),
    /// Lower the node's memory to this amount.
    Memory(NodeId, u64),
    /// Lower the node's network cards to this number.
    Nics(NodeId, u64),
    /// Allow the node at any location.
    AnyLocation(NodeId),
    /// Drop the node's labels.
    NoLabels(NodeId),
    /// Allow the two nodes on one host.
    NotApart([NodeId; 2]),
    /// Lower the link's rate to this amount.
    Rate(VirtualLinkId, u64),
    /// Raise the link's largest delay to this duration.
    Delay(VirtualLinkId, Duration),
    /// Lower the rates of all links to this percentage.
    AllRates(u64),
}

/// Explains why an embedder does not place a request; `None` if it does place it. Calls the
/// embedder some 10 to 100 times.
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

/// What all hosts lack for a node alone; `None` if some host suits it.
fn lack(residual: &Residual, request: &Request, node: NodeId) -> Option<Lack> {
    let node = &request.nodes()[node.index()];
    let free = (0..).map(HostId::of).zip(residual.hosts());
    // A host from which the node is barred counts as full.
    let free = free.map(|(host, free)| {
        if node.barred.contains(&host) {
            Amounts::default()
        } else {
            *free
        }
    });
    let hosts = residual.substrate().hosts().iter().zip(free);
    let at_location = hosts.filter(|(host, _)| node.accepts_location(host));
    if at_location.clone().count() == 0 {
        return Some(Lack::Location);
    }
    let right = at_location
        .filter(|(host, _)| node.accepts(host))
        .map(|(_, free)| free);
    let largest = |of: fn(&Amounts) -> u64| right.clone().map(|free| of(&free)).max();
    let Some(cpu) = largest(|free| free.cpu) else {
        return Some(Lack::Labels);
    };
    let memory = largest(|free| free.memory).unwrap_or(0);
    let nics = largest(|free| free.nics).unwrap_or(0);
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
