//! What one host has of a virtual network, and what it says of it.
//!
//! A management node hands a [`HostPart`] to the agent of a host, which makes it so and answers
//! with a [`HostStatus`]. A part is whole: the agent compares it with what is there and changes
//! what differs, so that handing over the same part twice does nothing. Its generation tells which
//! of two parts is the newer one.
//!
//! On the wire both are JSON. [`HostPart::read`] takes the text of a peer that is not trusted: a
//! part that was read has only names that are fit for files and interfaces, and its links end at
//! interfaces that it has.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

use carina_wire::ether::Mac;
use serde::{Deserialize, Serialize};

use crate::document::{Boot, Carrier, Kind, Rate};

pub use self::address::{AddressError, InterfaceAddress};
pub use self::cause::Cause;
pub use self::check::PartError;
pub use self::limits::{HostLimits, LimitError};
pub use self::status::{HostStatus, LinkState, LinkStatus, NodeState, NodeStatus, RefusedChange};

mod address;
mod cause;
mod check;
mod limits;
mod status;

/// The uid of a virtual network: a random number, written as 16 hexadecimal digits. What a host
/// has of the network carries it, so that strays are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VnetId(u64);

/// A text that is no uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: a uid of a virtual network has 16 digits from 0 to f")]
pub struct VnetIdError(String);

/// What one host has of a virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPart {
    /// The network.
    pub vnet: VnetId,
    /// Its name, which its operator chose.
    pub name: String,
    /// Grows with each change of what is wanted.
    pub generation: u64,
    /// The nodes on this host.
    #[serde(default)]
    pub nodes: Vec<NodePart>,
    /// The links with an end on this host.
    #[serde(default)]
    pub links: Vec<LinkPart>,
}

/// A node on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePart {
    /// Its name in the network.
    pub name: String,
    /// What makes it.
    pub kind: Kind,
    /// The image of its system; `carina` is Carina's own guest.
    pub image: String,
    /// Processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// How it comes to run.
    pub boot: Boot,
    /// Its interfaces.
    #[serde(default)]
    pub interfaces: Vec<InterfacePart>,
    /// Its routes to the links that it is not at.
    #[serde(default)]
    pub routes: Vec<RoutePart>,
    /// The node that makes the DIF of the network of which this one has a member, perhaps itself;
    /// none: no link of it is a flow of a DIF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founder: Option<String>,
}

/// An interface of a node: the end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfacePart {
    /// Its name in the node, such as `eth0`.
    pub name: String,
    /// Its address on the link.
    #[serde(with = "mac_text")]
    pub mac: Mac,
    /// Its address and the length of the link's prefix.
    pub address: InterfaceAddress,
    /// The address of the link's other end.
    pub peer: Ipv4Addr,
    /// Bytes of the largest packet of IP.
    pub mtu: u16,
    /// The link.
    pub link: u32,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePart {
    /// Where it leads: the prefix of a link.
    pub to: InterfaceAddress,
    /// The next node's address on a link that both are at.
    pub via: Ipv4Addr,
}

/// A link with an end on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    /// Its number in the network.
    pub number: u32,
    /// What tells it from all other links of the substrate: GRE's key, the VNI of VXLAN.
    pub tag: u32,
    /// What carries it between hosts.
    pub carrier: Carrier,
    /// The rate that it carries in either direction.
    pub rate: Rate,
    /// Its end on this host; the first one, where both are.
    pub near: EndPart,
    /// Its other end.
    pub far: Far,
}

/// The end of a link at a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndPart {
    /// The node.
    pub node: String,
    /// Its interface.
    pub interface: String,
}

/// Where the other end of a link is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Far {
    /// On this host.
    Here(EndPart),
    /// On another host, to which a tunnel leads.
    Host(FarHost),
    /// With end users, who join from elsewhere: the link is an access point.
    Users(Users),
    /// At a physical network card of the host.
    Nic(Nic),
}

/// A physical network card of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The interface that the host's kernel has there; none: the host has not chosen one yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The end users of an access point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// The name of the access point.
    pub access: String,
    /// Who may join, each with the address that is kept for them.
    #[serde(default)]
    pub addresses: BTreeMap<String, Ipv4Addr>,
}

/// The outer ends of a tunnel to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarHost {
    /// The other host's name.
    pub host: String,
    /// The tunnel's address on this host. IPv4 in IPv4 has no tag, so that each link has a pair of
    /// addresses of its own.
    pub local: Ipv4Addr,
    /// The tunnel's address on the other host; nothing else is decapsulated.
    pub remote: Ipv4Addr,
}

/// The least MTU: bytes that every link of IPv4 carries. (RFC 791, section 3.2)
pub const MTU_MIN: u16 = 68;
/// The largest MTU of an access point: tunnels of users carry datagrams of 2048 bytes at most, of
/// which 32 are around the packet (WireGuard's header of 16 bytes and tag of 16).
pub const ACCESS_MTU_MAX: u16 = 2048 - 32;

/// An end of a link: its number, and its side, 0 or 1.
pub type LinkEnd = (u32, usize);

impl NodePart {
    /// The address to which the node hands what is for another.
    #[must_use]
    pub fn next_hop(&self, to: Ipv4Addr) -> Ipv4Addr {
        let via = self.routes.iter().find(|route| {
            let prefix = InterfaceAddress::new(to, route.to.bits());
            prefix.is_some_and(|it| it.prefix() == route.to)
        });
        via.map_or(to, |route| route.via)
    }
}

impl HostPart {
    /// Reads a part and checks it.
    ///
    /// # Errors
    /// The text is no part, or the part cannot be made anywhere: the first thing that is wrong.
    pub fn read(json: &[u8]) -> Result<HostPart, PartError> {
        let part: HostPart = serde_json::from_slice(json)?;
        part.check()?;
        Ok(part)
    }

    /// The part as JSON.
    #[must_use]
    pub fn write(&self) -> String {
        serde_json::to_string(self).expect("a part has only plain fields")
    }

    /// A node of it.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePart> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The interface at an end of a link.
    #[must_use]
    pub fn interface(&self, end: &EndPart) -> Option<&InterfacePart> {
        self.node(&end.node)?.interface(&end.interface)
    }

    /// A status in which nothing is made yet.
    #[must_use]
    pub fn absent(&self) -> HostStatus {
        let nodes = self.nodes.iter();
        let links = self.links.iter();
        HostStatus {
            vnet: self.vnet,
            generation: self.generation,
            nodes: nodes
                .map(|node| (node.name.clone(), NodeStatus::default()))
                .collect(),
            links: links
                .map(|link| (link.number, LinkStatus::default()))
                .collect::<BTreeMap<_, _>>(),
            refused: None,
        }
    }
}

impl NodePart {
    /// An interface of it.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&InterfacePart> {
        self.interfaces.iter().find(|it| it.name == name)
    }
}

impl LinkPart {
    /// The ends of it on this host, one or two.
    pub fn ends(&self) -> impl Iterator<Item = &EndPart> {
        let far = match &self.far {
            Far::Here(end) => Some(end),
            Far::Host(_) | Far::Users(_) | Far::Nic(_) => None,
        };
        std::iter::once(&self.near).chain(far)
    }
}

impl Far {
    /// Whether a link with this far end goes on when its far end becomes `other`: that of an access
    /// point does with any users.
    #[must_use]
    pub fn is_same_end(&self, other: &Far) -> bool {
        match (self, other) {
            (Far::Users(one), Far::Users(other)) => one.access == other.access,
            _ => self == other,
        }
    }
}

impl fmt::Display for Far {
    /// The end, in words that hold for people: `b:eth0`, `host h2`, `users at home`,
    /// `card eth3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Far::Here(end) => end.fmt(f),
            Far::Host(far) => write!(f, "host {}", far.host),
            Far::Users(users) => write!(f, "users at {}", users.access),
            Far::Nic(nic) => match &nic.interface {
                Some(interface) => write!(f, "card {interface}"),
                None => f.write_str("a card"),
            },
        }
    }
}

impl VnetId {
    /// The uid that is this number.
    #[must_use]
    pub const fn new(number: u64) -> VnetId {
        VnetId(number)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for VnetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for VnetId {
    type Err = VnetIdError;

    fn from_str(text: &str) -> Result<VnetId, VnetIdError> {
        let digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        let is_whole = text.len() == 16 && text.chars().all(digit);
        let number = u64::from_str_radix(text, 16).ok().filter(|_| is_whole);
        number.map(VnetId).ok_or_else(|| {
            let beginning = text.chars().take(40).collect();
            VnetIdError(beginning)
        })
    }
}

impl TryFrom<String> for VnetId {
    type Error = VnetIdError;

    fn try_from(text: String) -> Result<VnetId, VnetIdError> {
        text.parse()
    }
}

impl From<VnetId> for String {
    fn from(id: VnetId) -> String {
        id.to_string()
    }
}

impl fmt::Display for EndPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

/// A MAC address as text.
mod mac_text {
    use carina_wire::ether::Mac;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(mac: &Mac, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(mac)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| D::Error::custom(format!("{error}; one is 02:00:00:00:00:01"));
        text.parse().map_err(wrong)
    }
}
