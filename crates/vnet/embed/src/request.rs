//! Requests: the nodes and links of a virtual network, and what each of them needs.

use carina_time::Duration;

use crate::id::{HostId, Label, Location, NodeId, VirtualLinkId};
use crate::substrate::Host;

/// A node of a virtual network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Processor capacity that the node needs, in the unit of the substrate's hosts.
    pub cpu: u64,
    /// Memory that the node needs, in the unit of the substrate's hosts.
    pub memory: u64,
    /// Number of physical network cards that the node needs for itself.
    pub nics: u64,
    /// Locations where the node may be placed; if the list is empty, anywhere.
    pub locations: Vec<Location>,
    /// Labels that a host must have to carry the node.
    pub labels: Vec<Label>,
    /// Nodes that must not share a host with this node. It suffices that one node of a pair names
    /// the other.
    pub apart_from: Vec<NodeId>,
    /// Hosts that must not carry the node, even if they suit it otherwise.
    pub barred: Vec<HostId>,
}

impl Node {
    /// Whether the location and labels of a host suit this node.
    #[must_use]
    pub fn accepts(&self, host: &Host) -> bool {
        self.accepts_location(host) && self.labels.iter().all(|label| host.labels.contains(label))
    }

    /// Whether the location of a host suits this node.
    #[must_use]
    pub fn accepts_location(&self, host: &Host) -> bool {
        self.locations.is_empty() || self.locations.contains(&host.location)
    }
}

/// A link of a virtual network. It uses its rate on each substrate link of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualLink {
    /// The nodes at the ends of the link.
    pub ends: [NodeId; 2],
    /// Rate, in the unit of the substrate's links.
    pub rate: u64,
    /// Largest sum of the delays along the path of the link; `None` for any delay.
    pub delay_max: Option<Duration>,
}

/// Whether nodes of one request may share a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each node needs a host of its own, as in published evaluations.
    Never,
    /// Nodes may share a host, except for pairs in `apart_from`. A link within a host uses no rate.
    UnlessApart,
}

/// A virtual network to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    nodes: Vec<Node>,
    links: Vec<VirtualLink>,
    sharing: Sharing,
    /// For each node, its links with the nodes at their other ends.
    incident: Vec<Vec<(VirtualLinkId, NodeId)>>,
    /// For each node, the nodes that must not share its host, sorted.
    apart: Vec<Vec<NodeId>>,
}

impl Request {
    /// Creates a request from nodes and links.
    ///
    /// # Errors
    /// There is no node, or too many; a link or `apart_from` names a missing node, or the same node
    /// twice; or an amount exceeds [`AMOUNT_MAX`]. Only the first fault is reported.
    pub fn new(
        nodes: Vec<Node>,
        links: Vec<VirtualLink>,
        sharing: Sharing,
    ) -> Result<Request, RequestError> {
        if nodes.is_empty() || nodes.len() > NODES_MAX {
            return Err(RequestError::Nodes { nodes: nodes.len() });
        }
        if links.len() > LINKS_MAX {
            return Err(RequestError::Links { links: links.len() });
        }
        let count = nodes.len();
        let mut apart = vec![Vec::new(); count];
        for (index, node) in nodes.iter().enumerate() {
            let id = NodeId::of(index);
            check_amounts(id, node)?;
            for other in &node.apart_from {
                check_apart(id, *other, count)?;
                apart[index].push(*other);
                apart[other.index()].push(id);
            }
        }
        for list in &mut apart {
            list.sort_unstable();
            list.dedup();
        }
        let mut incident = vec![Vec::new(); count];
        for (index, link) in links.iter().enumerate() {
            let id = VirtualLinkId::of(index);
            check_link(id, link, count)?;
            let [a, b] = link.ends;
            incident[a.index()].push((id, b));
            incident[b.index()].push((id, a));
        }
        Ok(Request {
            nodes,
            links,
            sharing,
            incident,
            apart,
        })
    }

    /// The nodes, by [`NodeId`].
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The links, by [`VirtualLinkId`].
    #[must_use]
    pub fn links(&self) -> &[VirtualLink] {
        &self.links
    }

    /// Whether nodes may share a host.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.sharing
    }

    /// The links of a node, each with the node at its other end.
    #[must_use]
    pub fn incident(&self, node: NodeId) -> &[(VirtualLinkId, NodeId)] {
        &self.incident[node.index()]
    }

    /// Whether two different nodes must not share a host.
    #[must_use]
    pub fn are_apart(&self, a: NodeId, b: NodeId) -> bool {
        self.sharing == Sharing::Never || self.apart[a.index()].binary_search(&b).is_ok()
    }

    /// The revenue of the request per unit of time: the sum of all its processors and rates.
    ///
    /// This is the revenue of Yu, Yi, Rexford and Chiang, *Rethinking Virtual Network Embedding*
    /// (2008).
    #[must_use]
    pub fn revenue(&self) -> u128 {
        let cpu: u128 = self.nodes.iter().map(|node| u128::from(node.cpu)).sum();
        let rate: u128 = self.links.iter().map(|link| u128::from(link.rate)).sum();
        cpu + rate
    }
}

fn check_amounts(node: NodeId, wanted: &Node) -> Result<(), RequestError> {
    let amounts = [
        ("cpu", wanted.cpu),
        ("memory", wanted.memory),
        ("nics", wanted.nics),
    ];
    match amounts.iter().find(|(_, amount)| *amount > AMOUNT_MAX) {
        Some((what, amount)) => Err(RequestError::NodeAmount {
            node,
            what,
            amount: *amount,
        }),
        None => Ok(()),
    }
}

fn check_apart(node: NodeId, other: NodeId, nodes: usize) -> Result<(), RequestError> {
    if other.index() >= nodes {
        return Err(RequestError::ApartFromMissing { node, other, nodes });
    }
    if node == other {
        Err(RequestError::ApartFromItself { node })
    } else {
        Ok(())
    }
}

fn check_link(link: VirtualLinkId, wanted: &VirtualLink, nodes: usize) -> Result<(), RequestError> {
    if let Some(node) = wanted.ends.iter().find(|node| node.index() >= nodes) {
        let node = *node;
        return Err(RequestError::NoSuchNode { link, node, nodes });
    }
    if wanted.ends[0] == wanted.ends[1] {
        let node = wanted.ends[0];
        return Err(RequestError::ToItself { link, node });
    }
    if wanted.rate > AMOUNT_MAX {
        Err(RequestError::LinkRate {
            link,
            rate: wanted.rate,
        })
    } else {
        Ok(())
    }
}

/// Why a request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The request has no node, or too many.
    #[error("{nodes} nodes; must be 1 to {NODES_MAX}")]
    Nodes {
        /// Number of nodes of the request.
        nodes: usize,
    },
    /// The request has too many links.
    #[error("{links} links; must be at most {LINKS_MAX}")]
    Links {
        /// Number of links of the request.
        links: usize,
    },
    /// A node needs more than the largest allowed amount.
    #[error("node {}: {what} {amount}; must be at most {AMOUNT_MAX}", node.0)]
    NodeAmount {
        /// The node that needs too much.
        node: NodeId,
        /// The resource of which the node needs too much, as text, such as `memory`.
        what: &'static str,
        /// How much of the resource the node needs.
        amount: u64,
    },
    /// A link needs more than the largest allowed rate.
    #[error("link {}: rate {rate}; must be at most {AMOUNT_MAX}", link.0)]
    LinkRate {
        /// The link that needs too much.
        link: VirtualLinkId,
        /// The rate that the link needs.
        rate: u64,
    },
    /// A link ends at a node that is not in the list.
    #[error("link {}: it ends at node {}, but there are only {nodes} nodes", link.0, node.0)]
    NoSuchNode {
        /// The link that ends at the missing node.
        link: VirtualLinkId,
        /// The node at an end of the link that is not in the list.
        node: NodeId,
        /// Number of nodes that the request has.
        nodes: usize,
    },
    /// Both ends of a link are the same node.
    #[error("link {}: both ends are node {}; give two different nodes", link.0, node.0)]
    ToItself {
        /// The link with the same node at both ends.
        link: VirtualLinkId,
        /// The node at both ends.
        node: NodeId,
    },
    /// `apart_from` names a node that is not in the list.
    #[error(
        "node {}: it must be apart from node {}, but there are only {nodes} nodes",
        node.0,
        other.0
    )]
    ApartFromMissing {
        /// The node that has the `apart_from`.
        node: NodeId,
        /// The node in `apart_from` that is not in the list.
        other: NodeId,
        /// Number of nodes that the request has.
        nodes: usize,
    },
    /// A node names itself in `apart_from`.
    #[error("node {}: a node cannot be apart from itself", node.0)]
    ApartFromItself {
        /// The node that names itself.
        node: NodeId,
    },
}

/// The largest number of nodes of a request.
pub const NODES_MAX: usize = 1000;

/// The largest number of links of a request.
pub const LINKS_MAX: usize = 20_000;

/// The largest amount that a node or link may need; sums then stay below 2^64.
pub const AMOUNT_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    fn link(a: u32, b: u32, rate: u64) -> VirtualLink {
        VirtualLink {
            ends: [NodeId(a), NodeId(b)],
            rate,
            delay_max: None,
        }
    }

    #[test]
    fn apart_holds_both_ways() {
        let mut nodes = vec![Node::default(); 3];
        nodes[2].apart_from = vec![NodeId(0), NodeId(0)];
        let request = Request::new(nodes.clone(), vec![], Sharing::UnlessApart).unwrap();
        assert!(request.are_apart(NodeId(0), NodeId(2)));
        assert!(request.are_apart(NodeId(2), NodeId(0)));
        assert!(!request.are_apart(NodeId(0), NodeId(1)));
        let alone = Request::new(nodes, vec![], Sharing::Never).unwrap();
        assert!(alone.are_apart(NodeId(0), NodeId(1)));
    }

    #[test]
    fn impossible_requests_are_named() {
        let new = |links| Request::new(vec![Node::default(); 2], links, Sharing::Never);
        let error = new(vec![link(0, 1, 1), link(1, 2, 1)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "link 1: it ends at node 2, but there are only 2 nodes"
        );
        let error = new(vec![link(1, 1, 1)]).unwrap_err();
        assert!(matches!(error, RequestError::ToItself { .. }), "{error}");
        let error = new(vec![link(0, 1, u64::MAX)]).unwrap_err();
        assert!(matches!(error, RequestError::LinkRate { .. }), "{error}");
        let error = Request::new(vec![], vec![], Sharing::Never).unwrap_err();
        assert_eq!(error.to_string(), "0 nodes; must be 1 to 1000");
    }

    #[test]
    fn revenue_is_processors_and_rates() {
        let node = Node {
            cpu: 7,
            ..Node::default()
        };
        let links = vec![link(0, 1, 30), link(0, 1, 5)];
        let request = Request::new(vec![node.clone(), node], links, Sharing::Never).unwrap();
        assert_eq!(request.revenue(), 49);
    }
}
