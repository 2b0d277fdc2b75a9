//! Messages between roles, as JSON.
//!
//! ```text
//! VNO --ToVnp--> VNP --ToPip--> PIP --ToAgent--> agent
//!     <-FromVnp-     <-FromPip-     <-FromAgent-
//! ```
//!
//! Every message may be lost, be late, or arrive twice. Therefore it names the network and the
//! round that it is about, and a receiver answers it in the same way each time. Messages below a
//! VNP contain names of hosts and providers; [`FromVnp`] contains none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::document::limits::NAME_MAX;
use crate::document::{Carrier, Document, LinkImpairment, PathChoice, Rate, Timetable};
use crate::host_part::{EndPart, LinkPart, NodePart, VnetId};

pub use self::agents::{FromAgent, ToAgent};
pub use self::moving::{MoveState, MoveStatus, ReceiveNode, Repoint, RepointAnswer, SendNode};
pub use self::obstacle::Obstacle;

mod agents;
mod moving;
mod obstacle;
mod part;

/// A network and the round, its VNP's attempt to make it. The round grows with each attempt, so
/// that late messages of an earlier one are recognized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartKey {
    /// Identifier (uid) of the network to which the part belongs.
    pub vnet: VnetId,
    /// Number of the VNP's attempt to make the network.
    pub round: u64,
}

/// A message of an operator (VNO) to its VNP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToVnp {
    /// Requests the network of this document. Repeating the same generation asks for its state.
    Want {
        /// Identifier (uid) of the requested network.
        vnet: VnetId,
        /// Grows with each change of the document.
        generation: u64,
        /// The requested document.
        document: Box<Document>,
    },
    /// Requests that the network be removed.
    Remove {
        /// Identifier (uid) of the network to remove.
        vnet: VnetId,
    },
}

/// A message of a VNP to an operator (VNO). It never names a host, a provider, or an address of
/// either.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromVnp {
    /// Reports the state of a network.
    Standing {
        /// Identifier (uid) of the network that the report is about.
        vnet: VnetId,
        /// The generation of the document that the report is about.
        generation: u64,
        /// State of the network that the answer is about.
        standing: Standing,
    },
    /// Reports that nothing of the network is left.
    Removed {
        /// Identifier (uid) of the removed network.
        vnet: VnetId,
    },
}

/// State of a network, as the set of conditions that hold. Each condition requires the earlier
/// ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// The conditions that the network meets now.
    pub holds: BTreeSet<Condition>,
    /// Why the first missing condition does not hold; `None` if all conditions hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether the request is refused until the operator changes the document: the VNP makes no
    /// further attempt.
    #[serde(default)]
    pub is_refused: bool,
}

/// A condition that a network reaches on its way to being ready, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Condition {
    /// The request was read and is being processed.
    Admitted,
    /// All resources of the network are reserved.
    Reserved,
    /// All nodes of the network run.
    Provisioned,
    /// Probes have passed all links.
    LinksUp,
    /// The consoles of all nodes answer.
    ConsoleReady,
    /// The network can be used.
    Ready,
}

/// Why something is not as requested: a code for programs, and a message for people that uses only
/// names of the operator's document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// The code, for programs.
    pub code: ReasonCode,
    /// The message, for people: the binding constraint, and the smallest relaxation if one was
    /// found.
    pub message: String,
    /// The node that the reason is about; `None` if it is not about a single node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// The kind of reason why something is not as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReasonCode {
    /// The free resources do not suffice.
    Insufficient,
    /// Even with all resources free, the request could not be satisfied.
    Impossible,
    /// The request waits until resources become free.
    Queued,
    /// A role that has to take part does not answer.
    Unreachable,
    /// A concurrent change interfered; the operation is retried.
    Conflict,
    /// The network is being made.
    Working,
    /// A node or a link has failed.
    Failed,
    /// The network is being removed.
    Removing,
    /// The network's lease has expired.
    LeaseEnded,
}

/// A message of a VNP to a PIP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToPip {
    /// Asks the PIP to advertise its resources.
    Advertise,
    /// Asks the PIP to reserve a part for a limited time.
    Reserve {
        /// Identifier (uid) of the network, and number of the attempt (round) to make it.
        key: PartKey,
        /// The part to reserve.
        part: Box<PartRequest>,
    },
    /// Asks the PIP to make the reserved part.
    Commit {
        /// Identifier (uid) of the network, and number of the attempt (round) that reserved the
        /// part.
        key: PartKey,
        /// The far tunnel end of each link that leaves the provider, by the link's end at a node of
        /// the part.
        far: Vec<(EndPart, TunnelEnd)>,
    },
    /// Asks the PIP to release its reservations for this attempt and earlier ones; parts that are
    /// made stay.
    Cancel {
        /// Identifier (uid) of the network, and number of the last attempt to release.
        key: PartKey,
    },
    /// Asks the PIP to release all that is reserved or made for this attempt and earlier ones.
    Release {
        /// Identifier (uid) of the network, and number of the last attempt to release.
        key: PartKey,
    },
    /// Renews the leases of these parts. The PIP answers with [`FromPip::Held`] for each part that
    /// it has made for this VNP and that is not named; it removes such a part when the lease
    /// expires or the VNP releases it.
    Renew {
        /// All parts that the VNP wants to keep, each with its attempt.
        keys: Vec<PartKey>,
    },
    /// Announces that a node of another provider moves or has moved, so that links of this PIP's
    /// part lead to another host.
    Repoint(Repoint),
    /// Forwards the other provider's answer to a [`FromPip::Repoint`].
    RepointAnswer(RepointAnswer),
}

/// A message of a PIP to a VNP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromPip {
    /// The provider's resources, as far as it discloses them.
    Advertisement(Advertisement),
    /// The part is reserved.
    Offered {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
        /// The near tunnel end of each link that leaves the provider, by the link's end at a node
        /// of the part.
        ends: Vec<(EndPart, TunnelEnd)>,
    },
    /// The part is not reserved.
    Refused {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
        /// Why the provider refuses the part.
        reason: Reason,
    },
    /// The provider is making the part.
    Committed {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
    },
    /// The provider has no such part: its reservation or lease has expired, or it was released.
    Lapsed {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
    },
    /// What was reserved for this attempt and earlier ones is released; a part that was made before
    /// stays.
    Cancelled {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
    },
    /// Nothing of this attempt and earlier ones is left.
    Released {
        /// Identifier (uid) of the network, and number of the attempt to make it (round).
        key: PartKey,
    },
    /// Reports the state of a part.
    Status {
        /// Identifier (uid) of the network, and number of the attempt (round) to which the part
        /// belongs.
        key: PartKey,
        /// State of the part that the message is about.
        status: PartStatus,
    },
    /// The provider has a part that the VNP did not name in its last renewal.
    Held {
        /// Identifier (uid) of the network, and number of the attempt (round) to which the part
        /// belongs.
        key: PartKey,
    },
    /// A node moves or has moved to another host of this provider, so that the node's links to
    /// other providers end at another host.
    Repoint(Repoint),
    /// The answer to [`ToPip::Repoint`].
    RepointAnswer(RepointAnswer),
}

/// Which steps of making its part of a network a provider has completed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartStatus {
    /// Whether all nodes of the part run.
    pub are_nodes_up: bool,
    /// Whether probes have passed all links of the part.
    pub are_links_up: bool,
    /// Whether the consoles of all nodes of the part answer.
    pub are_consoles_ready: bool,
    /// What keeps the part from being ready; `None` if nothing does.
    pub obstacle: Option<Obstacle>,
}

/// The nodes and links of a network that a provider is asked to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRequest {
    /// Name of the network to which the part belongs.
    pub name: String,
    /// The nodes that the provider is asked to make.
    pub nodes: Vec<PartNode>,
    /// The links, or those pieces of links that lie within this provider.
    pub links: Vec<PartLink>,
    /// Access points and physical cards of the part's nodes, as links of a host part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<LinkPart>,
}

/// A node, and its requirements on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartNode {
    /// The node to make.
    pub node: NodePart,
    /// Locations where the node may be placed; anywhere if the list is empty.
    pub location: Vec<String>,
    /// Number of physical network cards that the node needs.
    pub nics: u32,
    /// Labels that the host must have.
    pub labels: BTreeMap<String, String>,
    /// Nodes of this part that must not share a host with this one.
    pub apart_from: Vec<String>,
    /// The host that the VNP prefers, as an index into the `hosts` of the PIP's [`Advertisement`];
    /// `None`: the PIP chooses.
    pub host: Option<u32>,
}

/// A link, or the piece of the link within one provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartLink {
    /// Number of the link in its network.
    pub number: u32,
    /// Encapsulation that carries the link.
    pub carrier: Carrier,
    /// Rate that the link must carry in each direction.
    pub rate: Rate,
    /// Largest delay of this piece, µs; `None` for any delay.
    pub delay_max_us: Option<u64>,
    /// The two ends of this piece.
    pub ends: [PartEnd; 2],
    /// What moves the frames of this piece if both its ends are nodes of one host.
    #[serde(default, skip_serializing_if = "PathChoice::is_auto")]
    pub path: PathChoice,
    /// Impairments of the whole link by its document. A provider applies those of frames that its
    /// nodes send, and ignores the others.
    #[serde(default, skip_serializing_if = "LinkImpairment::is_none")]
    pub impairment: LinkImpairment,
    /// The times at which the document takes the link down and up again.
    #[serde(default, skip_serializing_if = "Timetable::is_empty")]
    pub timetable: Timetable,
}

/// An end of a piece of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartEnd {
    /// The piece of the link ends at an interface of a node of the part.
    Node(EndPart),
    /// The piece of the link ends at the border of this name, which leads to another provider.
    Border(String),
}

/// An end of a tunnel between two providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelEnd {
    /// Name of the host where the tunnel ends.
    pub host: String,
    /// IPv4 address of the host that this tunnel uses.
    pub address: Ipv4Addr,
    /// The tag of the tunnel: GRE key or VXLAN VNI.
    pub tag: u32,
}

/// A provider's free resources, as far as it discloses them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advertisement {
    /// Whether each entry of `hosts` is one real host. A VNP may then choose hosts.
    pub is_exact: bool,
    /// Hosts; if `is_exact` is false, each entry may represent several hosts.
    pub hosts: Vec<AdvertisedHost>,
    /// Links between the advertised hosts.
    pub links: Vec<AdvertisedLink>,
    /// Borders to other providers.
    pub borders: Vec<AdvertisedBorder>,
}

/// A host, or a group of hosts at one location, with its free resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedHost {
    /// Free processors.
    pub cpus: u64,
    /// Free memory, MiB.
    pub memory_mib: u64,
    /// Free physical network cards.
    pub nics: u64,
    /// Name of the location whose free resources these are.
    pub location: String,
    /// Labels, each `key=value`.
    pub labels: BTreeSet<String>,
}

/// A link between two hosts of an [`Advertisement`], with its free rate and delay. Unless
/// `is_exact`, it may represent several links, or hide the rate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedLink {
    /// Index of the advertised host at each end.
    pub ends: [u32; 2],
    /// Free rate, bits a second.
    pub rate_bps: u64,
    /// Delay, µs.
    pub delay_us: u64,
}

/// A border to another provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedBorder {
    /// Name of the border, which both providers use.
    pub name: String,
    /// Index of the advertised host at which the border is.
    pub host: u32,
    /// Free rate, bits a second.
    pub rate_bps: u64,
    /// This provider's half of the border's delay, µs.
    pub delay_us: u64,
}

impl Reason {
    /// The reason shortened before it is passed on: one line of bounded length, without control
    /// characters. The sender is not trusted.
    #[must_use]
    pub fn in_short(self) -> Reason {
        let shown = |text: &str, chars_max: usize| {
            let chars = text.chars().filter(|char| !char.is_control());
            chars.take(chars_max).collect::<String>()
        };
        Reason {
            code: self.code,
            message: shown(&self.message, WORDS_MAX),
            node: self.node.map(|node| shown(&node, NAME_MAX)),
        }
    }

    /// A reason that does not concern a single node.
    #[must_use]
    pub fn new(code: ReasonCode, message: impl Into<String>) -> Reason {
        Reason {
            code,
            message: message.into(),
            node: None,
        }
    }
}

impl Standing {
    /// A state in which no condition holds, for this reason.
    #[must_use]
    pub fn without(reason: Reason) -> Standing {
        Standing {
            reason: Some(reason),
            ..Standing::default()
        }
    }

    /// Whether the network is ready: the condition `Ready` holds.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.holds.contains(&Condition::Ready)
    }
}

impl fmt::Display for PartKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} round {}", self.vnet, self.round)
    }
}

/// Characters of a reason's message that are passed on.
const WORDS_MAX: usize = 1000;
