//! The part of a virtual network that one host makes, and the host's report about it.
//!
//! A management node sends a [`HostPart`] to the agent of a host. The agent makes the part and
//! answers with a [`HostStatus`]. A part is complete: the agent compares it with what exists and
//! changes what differs, so that sending the same part twice has no effect. Of two parts, the one
//! with the higher generation is newer.
//!
//! Both are JSON on the wire. [`HostPart::read`] parses the text of an untrusted peer. All names of
//! a part that was read are valid names of files and interfaces, and its links end at interfaces of
//! the part.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use carina_wire::ether::Mac;
use serde::{Deserialize, Serialize};

use crate::document::{Boot, Carrier, Kind, LinkImpairment, PathChoice, Rate, Start, Timetable};

pub use self::cause::Cause;
pub use self::check::PartError;
pub use self::limits::{HostLimits, LimitError};
pub use self::status::{HostStatus, LinkState, LinkStatus, NodeState, NodeStatus, RefusedChange};
pub use crate::document::{Address6Error, AddressError, InterfaceAddress, InterfaceAddress6};

mod cause;
mod check;
mod limits;
mod status;

/// The uid of a virtual network: a random number, written as 16 hexadecimal digits. All that a host
/// makes for the network carries the uid, so that leftovers can be attributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VnetId(u64);

/// The error for text that is not a uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: the uid of a virtual network must have 16 digits from 0 to f")]
pub struct VnetIdError(String);

/// The part of a virtual network that one host makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPart {
    /// Identifier (uid) of the network of which this is a part.
    pub vnet: VnetId,
    /// The network's name, chosen by its operator.
    pub name: String,
    /// Grows with each change of the request.
    pub generation: u64,
    /// The nodes on this host.
    #[serde(default)]
    pub nodes: Vec<NodePart>,
    /// The links with an end on this host.
    #[serde(default)]
    pub links: Vec<LinkPart>,
}

/// A node to be made on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePart {
    /// Name of the node in its network.
    pub name: String,
    /// Whether the node is a virtual machine, a namespace or a bridge.
    pub kind: Kind,
    /// Name of the image that the node boots; `carina` is Carina's own guest.
    pub image: String,
    /// Number of processors that the node gets.
    pub cpus: u32,
    /// Memory that the node gets, MiB.
    pub memory_mib: u64,
    /// How the virtual machine starts: it boots, is cloned from a template, or comes from a pool.
    pub boot: Boot,
    /// The node's interfaces.
    #[serde(default)]
    pub interfaces: Vec<InterfacePart>,
    /// The node's routes to links at which it has no interface.
    #[serde(default)]
    pub routes: Vec<RoutePart>,
    /// The node's IPv6 routes to links at which it has no interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes6: Vec<Route6Part>,
    /// The node that creates the DIF of which this node is a member; it may be this node. `None` if
    /// no link of this node is a flow of a DIF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub founder: Option<String>,
    /// For a bridge: whether its segment has a loop of bridges, so that it needs a spanning tree.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_loop: bool,
    /// Environment, files, commands and file system that the node gets at its start.
    #[serde(default, skip_serializing_if = "Start::is_empty")]
    pub start: Start,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// An interface of a node, where a link ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfacePart {
    /// Name of the interface in the node, such as `eth0`.
    pub name: String,
    /// MAC address that the interface gets.
    #[serde(with = "mac_text")]
    pub mac: Mac,
    /// IPv4 address of the interface, with the prefix length of the link.
    pub address: InterfaceAddress,
    /// IPv4 address of the link's other end.
    pub peer: Ipv4Addr,
    /// IPv6 address of the interface, with the prefix length of the link; `None` if the link has
    /// no IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address6: Option<InterfaceAddress6>,
    /// MTU: bytes of the largest IP packet.
    pub mtu: u16,
    /// Number of the link at which the interface is.
    pub link: u32,
}

/// A route of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutePart {
    /// Destination of the route: the prefix of a link.
    pub to: InterfaceAddress,
    /// Next hop: the address of a neighbour on a link that this node shares with it.
    pub via: Ipv4Addr,
}

/// An IPv6 route of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route6Part {
    /// Destination of the route: the prefix of a link.
    pub to: InterfaceAddress6,
    /// Next hop: the address of a neighbour on a link that this node shares with it.
    pub via: Ipv6Addr,
}

/// A link with an end on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkPart {
    /// Number of the link in its network.
    pub number: u32,
    /// A number that no other link of the substrate has: the GRE key or the VXLAN VNI.
    pub tag: u32,
    /// Encapsulation that carries the link between hosts.
    pub carrier: Carrier,
    /// Rate that the link carries in each direction.
    pub rate: Rate,
    /// The end on this host; if both ends are on this host, the first one.
    pub near: EndPart,
    /// The far end of the link: on this host, on another host, at end users, or at a physical card.
    pub far: Far,
    /// What moves the frames of the link if both ends are on this host.
    #[serde(default, skip_serializing_if = "PathChoice::is_auto")]
    pub path: PathChoice,
    /// Impairments of the link by its document, as seen from `near`: of frames that `near` sends,
    /// and, if both ends are on this host, of frames of the other end. An operator may put others
    /// on top of them.
    #[serde(default, skip_serializing_if = "LinkImpairment::is_none")]
    pub impairment: LinkImpairment,
    /// When the link is down on purpose. Each host counts from the moment at which its part with
    /// this timetable was ready.
    #[serde(default, skip_serializing_if = "Timetable::is_empty")]
    pub timetable: Timetable,
}

/// An end of a link at a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndPart {
    /// Name of the node at this end of the link.
    pub node: String,
    /// Name of the interface in the node.
    pub interface: String,
}

/// Where the other end of a link is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Far {
    /// The far end of the link is an interface of a node on the same host.
    Here(EndPart),
    /// The far end of the link is on another host, which a tunnel reaches.
    Host(FarHost),
    /// The link is an access point: its far end is the systems of end users, who join from outside.
    Users(Users),
    /// The far end of the link is a physical network card of the same host.
    Nic(Nic),
}

/// A physical network card of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// The kernel's interface for the card; `None` until the host has chosen a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
}

/// The end users of an access point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Users {
    /// Name of the access point that the users may join.
    pub access: String,
    /// The users who may join, and the IPv4 address that is reserved for each.
    #[serde(default)]
    pub addresses: BTreeMap<String, Ipv4Addr>,
}

/// The two ends of a tunnel to another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FarHost {
    /// Name of the host at the far end of the tunnel.
    pub host: String,
    /// The tunnel's address on this host. Each `ipip` link has a pair of addresses of its own,
    /// because IPv4 in IPv4 carries no tag.
    pub local: Ipv4Addr,
    /// The tunnel's address on the other host; only packets from this address are decapsulated.
    pub remote: Ipv4Addr,
}

/// The smallest MTU: every IPv4 link carries packets of this many bytes. (RFC 791, section 3.2)
pub const MTU_MIN: u16 = 68;
/// The largest MTU of an access point. Tunnels of users carry datagrams of at most 2048 bytes, of
/// which WireGuard takes 32: a header of 16 bytes and a tag of 16.
pub const ACCESS_MTU_MAX: u16 = 2048 - 32;

/// An end of a link: the link's number, and the side, 0 or 1.
pub type LinkEnd = (u32, usize);

impl NodePart {
    /// The next hop of packets to `to`: `to` itself at a link of the node, else the `via` of the
    /// route with the longest matching prefix, else `to` itself.
    #[must_use]
    pub fn next_hop(&self, to: Ipv4Addr) -> Ipv4Addr {
        if self
            .interfaces
            .iter()
            .any(|interface| interface.address.has(to))
        {
            return to;
        }
        let matching = self.routes.iter().filter(|route| route.to.has(to));
        let via = matching.max_by_key(|route| route.to.bits());
        via.map_or(to, |route| route.via)
    }
}

impl HostPart {
    /// Parses a part from JSON and checks it.
    ///
    /// # Errors
    /// The first fault: the text is not a part, or no host could make the part.
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

    /// The node of this name; `None` if the part has none.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&NodePart> {
        // Parts that a layout was divided into are sorted.
        let place = self
            .nodes
            .binary_search_by(|node| node.name.as_str().cmp(name));
        match place {
            Ok(place) => self.nodes.get(place),
            Err(_) => self.nodes.iter().find(|node| node.name == name),
        }
    }

    /// The link with this number; `None` if the part has none.
    #[must_use]
    pub fn link(&self, number: u32) -> Option<&LinkPart> {
        // Parts that a layout was divided into are sorted, except for outer links.
        let place = self.links.binary_search_by_key(&number, |link| link.number);
        match place {
            Ok(place) => self.links.get(place),
            Err(_) => self.links.iter().find(|link| link.number == number),
        }
    }

    /// The interface at an end of a link; `None` if the part has none.
    #[must_use]
    pub fn interface(&self, end: &EndPart) -> Option<&InterfacePart> {
        self.node(&end.node)?.interface(&end.interface)
    }

    /// Whether nodes would need routes, but have none because there would be too many
    /// ([`Layout::routes`](crate::layout::Layout::routes)).
    #[must_use]
    pub fn lacks_routes(&self) -> bool {
        let bridges = self.nodes.iter().filter(|node| node.kind == Kind::Bridge);
        let bridges: BTreeSet<&str> = bridges.map(|node| node.name.as_str()).collect();
        let mut neighbours: BTreeMap<&str, &str> = BTreeMap::new();
        let has_path = self.links.iter().any(|link| {
            let Far::Here(far) = &link.far else {
                return false;
            };
            let ends = [(&link.near, far), (far, &link.near)];
            // The neighbours of a node that has two are on a path over that node. Those of a
            // bridge are on one segment, and need no route.
            let mut ends = ends
                .iter()
                .map(|(end, peer)| (end.node.as_str(), peer.node.as_str()));
            ends.any(|(node, peer)| {
                !bridges.contains(node) && *neighbours.entry(node).or_insert(peer) != peer
            })
        });
        has_path && self.nodes.iter().all(|node| node.routes.is_empty())
    }

    /// A status of this part in which every node and link is still absent.
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
    /// Whether an interface of the node has an IPv6 address.
    #[must_use]
    pub fn has_ipv6(&self) -> bool {
        self.interfaces
            .iter()
            .any(|interface| interface.address6.is_some())
    }

    /// The interface of this name; `None` if the node has none.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&InterfacePart> {
        self.interfaces
            .iter()
            .find(|interface| interface.name == name)
    }
}

impl LinkPart {
    /// The link's ends on this host: one or two.
    pub fn ends(&self) -> impl Iterator<Item = &EndPart> {
        let far = match &self.far {
            Far::Here(end) => Some(end),
            Far::Host(_) | Far::Users(_) | Far::Nic(_) => None,
        };
        std::iter::once(&self.near).chain(far)
    }
}

impl Far {
    /// Whether a link stays in place when its far end changes from `self` to `other`: true if both
    /// are equal, and for the same access point even if the users differ.
    #[must_use]
    pub fn is_same_end(&self, other: &Far) -> bool {
        match (self, other) {
            (Far::Users(one), Far::Users(other)) => one.access == other.access,
            _ => self == other,
        }
    }
}

impl fmt::Display for Far {
    /// Writes the far end as text for people: `b:eth0`, `host h2`, `users at home`, `card eth3`.
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
    /// The uid with this number.
    #[must_use]
    pub const fn new(number: u64) -> VnetId {
        VnetId(number)
    }

    /// The uid as a number.
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

/// Serializes a MAC address as text.
mod mac_text {
    use carina_wire::ether::Mac;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(mac: &Mac, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(mac)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Mac, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| D::Error::custom(format!("{error}; one is 02:00:00:00:00:01"));
        text.parse().map_err(wrong)
    }
}
