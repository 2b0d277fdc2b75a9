//! The request for a virtual network, as a document.
//!
//! A document is written in TOML, in XML (`vnet.xsd`) or in JSON. In all three forms nodes and
//! links are separate lists.
//!
//! ```toml
//! [vnet]
//! name = "demo"
//! lease = "12h"
//! on_insufficient = "queue 5m"
//!
//! [defaults]
//! image = "carina"
//! memory = 128
//!
//! [node.r1]
//! location = ["uk"]
//!
//! [node.r2]
//! nics = { count = 1, via = "forwarder" }
//! apart_from = ["r1"]
//!
//! [[link]]
//! ends = ["r1", "r2:eth1"]
//! rate = "100Mbps"
//! delay_max = "10ms"
//! as = "ipip"
//! ```
//!
//! [`Document::read`] parses the text of any form and checks its content: every node that a checked
//! document refers to is defined in it. Documents come from untrusted users, so that their size,
//! depth and numbers are bounded ([`limits`]).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::address::{Address6Error, AddressError, InterfaceAddress, InterfaceAddress6};
pub use self::fault::{DocumentError, Fault, Place};
pub use self::form::{Form, FormError, json_words};
pub use self::impairment::{DELAY_MAX_S, Impairment, ImpairmentError, LinkImpairment};
pub use self::kind::Kind;
pub use self::name::{is_interface, is_name, is_of_kernel};
pub use self::node::{Boot, Nics, Node, ResolvedNode, Via};
pub use self::per_direction::PerDirection;
pub use self::position::Position;
pub use self::segments::{BRIDGE, Segment};
pub use self::start::{HOST, NodeFile, Start, StartError};
pub use self::timetable::{DownTime, Timetable, TimetableError};
pub use self::value::{Rate, Share, Span, ValueError};

mod address;
mod addressing;
mod checker;
mod extension;
mod fault;
mod form;
mod impairment;
mod kind;
pub mod limits;
mod name;
mod node;
mod per_direction;
mod position;
mod segments;
mod start;
mod timetable;
mod toml_form;
mod value;
mod xml_form;
pub mod xml_tree;

/// The schema of the XML form, W3C XML Schema 1.0.
pub const XML_SCHEMA: &str = include_str!("../vnet.xsd");

/// MTU of the substrate's own links.
const ETHERNET_MTU: u16 = 1500;

/// The image of nodes that specify none: Carina's own guest.
pub const OWN_IMAGE: &str = "carina";

/// A request for a virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// Settings of the whole network.
    pub vnet: Header,
    /// Settings of every node that does not override them.
    #[serde(default, skip_serializing_if = "Node::is_empty")]
    pub defaults: Node,
    /// The nodes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node: BTreeMap<String, Node>,
    /// The links between nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<Link>,
    /// Access points of end users, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub access: BTreeMap<String, AccessPoint>,
    /// Tests that `carina vnet test` runs. They do not decide whether the network is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<Test>,
}

/// Settings of a whole virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Name of the network: 1 to 32 letters, digits and `-`.
    pub name: String,
    /// Time after which the network is removed unless its owner renews it; `None`: the network
    /// stays until it is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// What happens to the request if resources do not suffice.
    #[serde(default, skip_serializing_if = "OnInsufficient::is_reject")]
    pub on_insufficient: OnInsufficient,
}

/// What happens to a request for which resources do not suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OnInsufficient {
    /// Refuse the request at once, with the reason.
    #[default]
    Reject,
    /// Keep the request waiting for resources for this long, then refuse it.
    Queue(Span),
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The two ends of the link.
    pub ends: [End; 2],
    /// Rate that the link carries in each direction.
    pub rate: Rate,
    /// Largest delay allowed from end to end; `None` for any delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max: Option<Span>,
    /// Largest share that the `loss` of the link may have: a larger one is a fault of the document.
    /// The loss on the running link is not compared. `None` for any share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_max: Option<Share>,
    /// Encapsulation that carries the link between hosts.
    #[serde(default, rename = "as", skip_serializing_if = "Carrier::is_ipip")]
    pub carrier: Carrier,
    /// What moves the frames of the link if both ends are on one host.
    #[serde(default, skip_serializing_if = "PathChoice::is_auto")]
    pub path: PathChoice,
    /// IPv4 addresses of the two ends; `None`: the layout of the network chooses them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<[InterfaceAddress; 2]>,
    /// IPv6 addresses of the two ends; `None`: the link has no IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses6: Option<[InterfaceAddress6; 2]>,
    /// Bytes of the largest IP packet; `None`: what the carrier leaves of 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// Time by which the link delays each frame on purpose; `None`: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<PerDirection<Span>>,
    /// Largest random deviation from `delay`, up and down; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter: Option<PerDirection<Span>>,
    /// Share of frames that the link drops on purpose; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<PerDirection<Share>>,
    /// Share of frames that the link delivers twice on purpose; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<PerDirection<Share>>,
    /// Share of frames that are not delayed, and so overtake earlier ones; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<PerDirection<Share>>,
    /// Share of frames in which the link flips one bit on purpose; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<PerDirection<Share>>,
    /// Times at which the link is down on purpose, from the moment when the network was ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub down: Vec<DownTime>,
    /// Period after which the times of `down` begin again; `None`: the link goes down once at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_every: Option<Span>,
}

/// Encapsulation that carries a link between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// IPv4 in IPv4, RFC 2003.
    #[default]
    Ipip,
    /// GRE with a key, RFC 2784 and RFC 2890.
    Gre,
    /// VXLAN, RFC 7348.
    Vxlan,
    /// A flow of a DIF.
    Dif,
}

/// What moves the frames of a link if both ends are on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathChoice {
    /// The host chooses: the kernel's own path if the link can use it, else the engine.
    #[default]
    Auto,
    /// The engine, always.
    Engine,
}

/// An end of a link: `r1`, or `r1:eth1` to choose the name of the interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct End {
    /// Name of the node at this end of the link.
    pub node: String,
    /// Name of the interface in the node; `None`: the next free one of `eth0`, `eth1`, …
    pub interface: Option<String>,
}

/// An access point: where end users join the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessPoint {
    /// The node at which users enter the network.
    pub node: String,
    /// How the systems of end users are connected with the access point's node.
    #[serde(default, skip_serializing_if = "Attach::is_tunnel")]
    pub attach: Attach,
    /// Locations where the users' nodes may be placed, for `attach = "extend"`; anywhere if the
    /// list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub location: Vec<String>,
    /// For `attach = "extend"`: whether each user's node gets a physical card of its host, into
    /// which the user's own computer is plugged.
    #[serde(default, skip_serializing_if = "is_false")]
    pub card: bool,
    /// Names of the users who may join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Rate that each user gets; required for `attach = "extend"`. `None` otherwise means
    /// 10 Gbit/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How end users are connected with a node of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// A tunnel leads from the user's system to an access point at the node.
    #[default]
    Tunnel,
    /// The network is extended to the users: each user gets a node of the network, and a link from
    /// it to the access point's node.
    Extend,
}

/// A test of the network; it has either `ping` or `throughput`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// Two nodes: the first must reach the second. `None` in a test of throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<[String; 2]>,
    /// Longest round trip that a ping may take; `None` for any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max: Option<Span>,
    /// Two nodes: the first sends a TCP stream to the second, as fast as it can, for 3 s. `None` in
    /// a ping test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<[String; 2]>,
    /// Least rate at which the stream must arrive at the second node of `throughput`; `None` in a
    /// ping test.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_min: Option<Rate>,
}

impl Document {
    /// Parses a document in the given form and checks its content.
    ///
    /// # Errors
    /// Every fault that the check finds, up to a limit, with its place and line. If the text is not
    /// well-formed in its form, only the first syntax error.
    pub fn read(text: &str, form: Form) -> Result<Self, DocumentError> {
        form::read(text, form)
    }

    /// Checks a document that was not [read](Document::read) from text but received as a value, for
    /// instance in a message of another role.
    ///
    /// # Errors
    /// Every fault that the check finds, up to a limit.
    pub fn check(&self) -> Result<(), DocumentError> {
        form::check(self, &BTreeMap::new())
    }

    /// Writes the document in the given form.
    #[must_use]
    pub fn write(&self, form: Form) -> String {
        form::write(self, form)
    }
}

impl Link {
    /// A link with this rate, carried by IPv4 in IPv4, without bounds and impairments.
    #[must_use]
    pub fn new(ends: [End; 2], rate: Rate) -> Link {
        Link {
            ends,
            rate,
            delay_max: None,
            loss_max: None,
            carrier: Carrier::default(),
            path: PathChoice::default(),
            addresses: None,
            addresses6: None,
            mtu: None,
            delay: None,
            jitter: None,
            loss: None,
            duplicate: None,
            reorder: None,
            corrupt: None,
            down: Vec::new(),
            down_every: None,
        }
    }

    /// The times at which the document takes the link down and up again.
    #[must_use]
    pub fn timetable(&self) -> Timetable {
        Timetable {
            down: self.down.clone(),
            every: self.down_every,
        }
    }
}

impl OnInsufficient {
    fn is_reject(&self) -> bool {
        *self == Self::Reject
    }
}

impl TryFrom<String> for OnInsufficient {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        match text.strip_prefix("queue ") {
            Some(time) => Ok(Self::Queue(time.trim_start().parse()?)),
            None if text == "reject" => Ok(Self::Reject),
            None => Err(ValueError::new(
                &text,
                "an answer to want of resources",
                "`reject` or `queue 5m`",
            )),
        }
    }
}

impl From<OnInsufficient> for String {
    fn from(answer: OnInsufficient) -> Self {
        match answer {
            OnInsufficient::Reject => "reject".to_owned(),
            OnInsufficient::Queue(time) => format!("queue {time}"),
        }
    }
}

impl Attach {
    /// The keyword of this way to attach in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tunnel => "tunnel",
            Self::Extend => "extend",
        }
    }

    fn is_tunnel(&self) -> bool {
        *self == Self::Tunnel
    }
}

impl Carrier {
    /// The keyword of this carrier in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ipip => "ipip",
            Self::Gre => "gre",
            Self::Vxlan => "vxlan",
            Self::Dif => "dif",
        }
    }

    /// MTU of a link with this carrier over an Ethernet substrate, if the document gives none.
    /// (RFC 2003; RFC 2784 with the key of RFC 2890 and an Ethernet header inside; RFC 7348)
    #[must_use]
    pub const fn mtu(self) -> u16 {
        match self {
            Self::Ipip => ETHERNET_MTU - 20,
            Self::Gre => ETHERNET_MTU - 20 - 8 - 14,
            Self::Vxlan => ETHERNET_MTU - 20 - 8 - 8 - 14,
            // Room for EFCP's header, delimiting and SDU protection of a DIF over Ethernet.
            Self::Dif => ETHERNET_MTU - 100,
        }
    }

    fn is_ipip(&self) -> bool {
        *self == Self::Ipip
    }
}

impl PathChoice {
    /// The keyword of this choice in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Engine => "engine",
        }
    }

    /// Whether the host chooses how frames pass the link: through the kernel or the engine.
    #[must_use]
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub fn is_auto(&self) -> bool {
        *self == Self::Auto
    }
}

impl From<String> for End {
    fn from(text: String) -> Self {
        match text.split_once(':') {
            Some((node, interface)) => Self {
                node: node.to_owned(),
                interface: Some(interface.to_owned()),
            },
            None => Self {
                node: text,
                interface: None,
            },
        }
    }
}

impl From<End> for String {
    fn from(end: End) -> Self {
        end.to_string()
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}:{interface}", self.node),
            None => f.write_str(&self.node),
        }
    }
}
