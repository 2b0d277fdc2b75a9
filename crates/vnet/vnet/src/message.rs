//! What roles say to one another, as JSON.
//!
//! ```text
//! VNO --ToVnp--> VNP --ToPip--> PIP --ToAgent--> agent
//!     <-FromVnp-     <-FromPip-     <-FromAgent-
//! ```
//!
//! Every message may be lost, late, or come twice: it names the network and the round that it is
//! about, and is answered the same way each time. Below a VNP there are names of hosts and of
//! providers; [`FromVnp`] has none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::document::limits::NAME_MAX;
use crate::document::{Carrier, Document, Rate};
use crate::host_part::{EndPart, LinkPart, NodePart, VnetId};

pub use self::agents::{FromAgent, ToAgent};
pub use self::moving::{MoveState, MoveStatus, ReceiveNode, Repoint, RepointAnswer, SendNode};
pub use self::obstacle::Obstacle;

mod agents;
mod moving;
mod obstacle;
mod part;

/// A network and the attempt of its VNP to make it: a number that grows with each attempt, so that
/// what is late is known to be so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartKey {
    /// The network.
    pub vnet: VnetId,
    /// The attempt.
    pub round: u64,
}

/// What an operator says to its VNP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToVnp {
    /// It wants this network. The same generation again asks how far it is.
    Want {
        /// The network.
        vnet: VnetId,
        /// Grows with each change of the document.
        generation: u64,
        /// What is wanted.
        document: Box<Document>,
    },
    /// It wants the network no longer.
    Remove {
        /// The network.
        vnet: VnetId,
    },
}

/// What a VNP says to an operator. Nothing here names a host, a provider or an address of theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromVnp {
    /// How far a network is.
    Standing {
        /// The network.
        vnet: VnetId,
        /// The generation that this is about.
        generation: u64,
        /// How far it is.
        standing: Standing,
    },
    /// Nothing of the network is left.
    Removed {
        /// The network.
        vnet: VnetId,
    },
}

/// How far a network is, in conditions of which each needs those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standing {
    /// The conditions that hold.
    pub holds: BTreeSet<Condition>,
    /// Why the first of the others does not hold; none when all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Whether that stays so until the operator changes what it wants.
    #[serde(default)]
    pub is_refused: bool,
}

/// A step on the way of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Condition {
    /// The request was read and is being worked on.
    Admitted,
    /// All its resources are held.
    Reserved,
    /// All its nodes run.
    Provisioned,
    /// Probes have passed all its links.
    LinksUp,
    /// All its consoles answer.
    ConsoleReady,
    /// It can be used.
    Ready,
}

/// Why something is not as wanted: a word for programs, and words for people, in the names of the
/// operator's own document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// For people: the constraint that binds, and the smallest relaxation if one was found.
    pub message: String,
    /// The node that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Why something is not as wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ReasonCode {
    /// There are not resources enough.
    Insufficient,
    /// What is asked for cannot be at all.
    Impossible,
    /// It waits until there are resources.
    Queued,
    /// A role that has to take part does not answer.
    Unreachable,
    /// Another change came between; it is tried again.
    Conflict,
    /// It is being made.
    Working,
    /// A node or a link has failed.
    Failed,
    /// It is being removed.
    Removing,
    /// Its lease has ended.
    LeaseEnded,
}

/// What a VNP says to a PIP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToPip {
    /// It wants to know what there is.
    Advertise,
    /// Hold this part, for a time.
    Reserve {
        /// The network and the attempt.
        key: PartKey,
        /// The part.
        part: Box<PartRequest>,
    },
    /// Make the part that is held.
    Commit {
        /// The network and the attempt.
        key: PartKey,
        /// For each node's end of a link that leaves the provider: where it leads.
        far: Vec<(EndPart, TunnelEnd)>,
    },
    /// Let go what is held of this attempt and those before it.
    Cancel {
        /// The network and the attempt.
        key: PartKey,
    },
    /// Let go what is held and what was made, of this attempt and those before it.
    Release {
        /// The network and the attempt.
        key: PartKey,
    },
    /// These parts are still wanted, and no others of this VNP.
    Renew {
        /// The networks and attempts.
        keys: Vec<PartKey>,
    },
    /// Links of a part that leave the provider lead elsewhere, or are to: a node beyond moves.
    Repoint(Repoint),
    /// What a provider beyond says of links that lead elsewhere.
    RepointAnswer(RepointAnswer),
}

/// What a PIP says to a VNP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FromPip {
    /// What there is, as far as the provider shows it.
    Advertisement(Advertisement),
    /// The part is held.
    Offered {
        /// The network and the attempt.
        key: PartKey,
        /// For each node's end of a link that leaves the provider: where it is.
        ends: Vec<(EndPart, TunnelEnd)>,
    },
    /// The part is not held.
    Refused {
        /// The network and the attempt.
        key: PartKey,
        /// Why.
        reason: Reason,
    },
    /// The part is being made.
    Committed {
        /// The network and the attempt.
        key: PartKey,
    },
    /// There is no such part: its time was over, or it was let go.
    Lapsed {
        /// The network and the attempt.
        key: PartKey,
    },
    /// What was held of this attempt and those before it is let go; what was made before stays.
    Cancelled {
        /// The network and the attempt.
        key: PartKey,
    },
    /// Of this attempt and those before it nothing is left.
    Released {
        /// The network and the attempt.
        key: PartKey,
    },
    /// How far a part is.
    Status {
        /// The network and the attempt.
        key: PartKey,
        /// How far it is.
        status: PartStatus,
    },
    /// The provider has a part that this VNP did not name.
    Held {
        /// The network and the attempt.
        key: PartKey,
    },
    /// A node moves or has moved to another host of the provider, and links of it that leave the
    /// provider end there.
    Repoint(Repoint),
    /// The answer to [`ToPip::Repoint`].
    RepointAnswer(RepointAnswer),
}

/// How far a part of a network is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartStatus {
    /// Whether all its nodes run.
    pub are_nodes_up: bool,
    /// Whether probes have passed all its links.
    pub are_links_up: bool,
    /// Whether all its consoles answer.
    pub are_consoles_ready: bool,
    /// What is in the way.
    pub obstacle: Option<Obstacle>,
}

/// The nodes and links of a network that a provider is to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartRequest {
    /// The network's name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<PartNode>,
    /// The links, and what of them is here.
    pub links: Vec<PartLink>,
    /// Access points and cards of these nodes, as the hosts of the nodes have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access: Vec<LinkPart>,
}

/// A node and what it needs of its host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartNode {
    /// What to make.
    pub node: NodePart,
    /// Where it may be; anywhere if the list is empty.
    pub location: Vec<String>,
    /// Physical network cards.
    pub nics: u32,
    /// Labels of its host.
    pub labels: BTreeMap<String, String>,
    /// Nodes of this part that must not share its host.
    pub apart_from: Vec<String>,
    /// The host that the VNP chose, by its number in the advertisement.
    pub host: Option<u32>,
}

/// A link, or the piece of it within a provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartLink {
    /// Its number in the network.
    pub number: u32,
    /// What carries it.
    pub carrier: Carrier,
    /// Its rate in either direction.
    pub rate: Rate,
    /// The longest delay of the piece, µs.
    pub delay_max_us: Option<u64>,
    /// Its ends.
    pub ends: [PartEnd; 2],
}

/// An end of a piece of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartEnd {
    /// A node of the part.
    Node(EndPart),
    /// The border to another provider, by its name.
    Border(String),
}

/// An end of a tunnel between providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TunnelEnd {
    /// The host.
    pub host: String,
    /// Its address for this tunnel.
    pub address: Ipv4Addr,
    /// What tells the tunnel from others.
    pub tag: u32,
}

/// What a provider has, as far as it shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Advertisement {
    /// Whether hosts are what they seem: a VNP may then choose among them.
    pub is_exact: bool,
    /// Hosts, or what stands for several of them.
    pub hosts: Vec<AdvertisedHost>,
    /// Links between them.
    pub links: Vec<AdvertisedLink>,
    /// Borders to other providers.
    pub borders: Vec<AdvertisedBorder>,
}

/// A host, or what stands for several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedHost {
    /// Processors that are free.
    pub cpus: u64,
    /// Memory that is free, MiB.
    pub memory_mib: u64,
    /// Physical network cards that are free.
    pub nics: u64,
    /// Where it is.
    pub location: String,
    /// Labels, each `key=value`.
    pub labels: BTreeSet<String>,
}

/// A link between two advertised hosts, by their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedLink {
    /// Its ends.
    pub ends: [u32; 2],
    /// The rate that is free, bits a second.
    pub rate_bps: u64,
    /// Its delay, µs.
    pub delay_us: u64,
}

/// A border to another provider.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdvertisedBorder {
    /// Its name, the same at both providers.
    pub name: String,
    /// The advertised host behind it.
    pub host: u32,
    /// The rate that is free, bits a second.
    pub rate_bps: u64,
    /// This provider's half of its delay, µs.
    pub delay_us: u64,
}

impl Reason {
    /// The reason as it is passed on: one line, which is not longer than a line needs to be. Who
    /// has written it may be careless, or worse.
    #[must_use]
    pub fn in_short(self) -> Reason {
        let shown = |text: &str, most: usize| {
            let chars = text.chars().filter(|char| !char.is_control());
            chars.take(most).collect::<String>()
        };
        Reason {
            code: self.code,
            message: shown(&self.message, WORDS_MAX),
            node: self.node.map(|node| shown(&node, NAME_MAX)),
        }
    }

    /// A reason that is not about one node.
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
    /// One in which nothing holds, and why.
    #[must_use]
    pub fn without(reason: Reason) -> Standing {
        Standing {
            reason: Some(reason),
            ..Standing::default()
        }
    }

    /// Whether the network can be used.
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

/// Characters of a reason that are passed on.
const WORDS_MAX: usize = 1000;
