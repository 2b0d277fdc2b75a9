//! What is wanted of a virtual network, as a document.
//!
//! The same document is written in TOML, in XML (`vnet.xsd`) or in JSON; nodes and links stand
//! apart in all of them.
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
//! [`Document::read`] takes the text of any form, and judges what it says: a document that was read
//! names no node that is not in it. Documents come from strangers: their size, depth and numbers
//! are bounded ([`limits`]).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::fault::{DocumentError, Fault, Place};
pub use self::form::{Form, FormError, json_words};
pub use self::name::{is_interface, is_name, is_of_kernel};
pub use self::value::{Rate, Share, Span, ValueError};

mod extension;
mod fault;
mod form;
mod judge;
pub mod limits;
mod name;
mod toml_form;
mod value;
mod xml_form;
pub mod xml_tree;

/// The schema of the XML form, W3C XML Schema 1.0.
pub const XML_SCHEMA: &str = include_str!("../vnet.xsd");

/// The image of nodes that name none: Carina's own guest.
pub const OWN_IMAGE: &str = "carina";

/// A virtual network that is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// What holds for the whole.
    pub vnet: Header,
    /// What holds for each node that does not say otherwise.
    #[serde(default, skip_serializing_if = "Node::is_empty")]
    pub defaults: Node,
    /// The nodes by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node: BTreeMap<String, Node>,
    /// The links between them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<Link>,
    /// Access points of end users, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub access: BTreeMap<String, AccessPoint>,
    /// What has to hold before the network counts as ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub test: Vec<Test>,
}

/// What holds for a whole virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Its name: up to 32 letters, digits and `-`.
    pub name: String,
    /// Time after which it goes unless its owner renews it; without one it stays until removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Span>,
    /// What happens to a request that does not fit.
    #[serde(default, skip_serializing_if = "OnInsufficient::is_reject")]
    pub on_insufficient: OnInsufficient,
}

/// What happens to a request for which there are not resources enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OnInsufficient {
    /// It is refused at once, with the reason.
    #[default]
    Reject,
    /// It waits so long for resources before it is refused.
    Queue(Span),
}

/// What is wanted of a node; what is absent is taken from the defaults of the document, then from
/// those of [`Document::resolved`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// What makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The image of its system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory, MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// How it comes to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<Boot>,
    /// Where it may be: any of these; anywhere if the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub location: Vec<String>,
    /// Physical network interfaces that are attached to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nics: Option<Nics>,
    /// Nodes that must not share its host. What holds for one of a pair holds for the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub apart_from: Vec<String>,
    /// Labels that its host must have, with their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What makes a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A virtual machine.
    Vm,
    /// A network namespace of its host.
    Namespace,
}

/// How a virtual machine comes to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Boot {
    /// It boots.
    Cold,
    /// It is cloned of a template that has booted.
    Clone,
    /// It is one of those that were made in advance and stand still.
    Pool,
}

/// Physical network interfaces of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// How many.
    pub count: u32,
    /// What is between them and the node.
    #[serde(default, skip_serializing_if = "Via::is_forwarder")]
    pub via: Via,
}

/// What is between a physical interface and the node to which it is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// Carina's engine.
    #[default]
    Forwarder,
    /// A bridge of the host's kernel.
    Bridge,
    /// A tap of the host's kernel.
    Tap,
    /// A vhost-user port.
    VhostUser,
    /// The shared-memory device of the hypervisor shim.
    Hv,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Its two ends.
    pub ends: [End; 2],
    /// The rate that it carries in either direction.
    pub rate: Rate,
    /// The longest delay from end to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_max: Option<Span>,
    /// The largest share of packets that it may lose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_max: Option<Share>,
    /// What it is made of.
    #[serde(default, rename = "as", skip_serializing_if = "Carrier::is_ipip")]
    pub carrier: Carrier,
}

/// What a link is made of.
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

/// An end of a link: `r1`, or `r1:eth1` where the name of the interface matters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct End {
    /// The node.
    pub node: String,
    /// The interface in it; none: the next that is free.
    pub interface: Option<String>,
}

/// A place where end users join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessPoint {
    /// The node to which they come.
    pub node: String,
    /// How they come there.
    #[serde(default, skip_serializing_if = "Attach::is_tunnel")]
    pub attach: Attach,
    /// Where the nodes of users may be, for `attach = "extend"`; anywhere if the list is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub location: Vec<String>,
    /// Whether the node of each user has a card of its host, where the user's machine is plugged
    /// in, for `attach = "extend"`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub card: bool,
    /// Who may join.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The rate that each of them gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How end users come to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// By a tunnel from wherever they are to an access point at the node.
    #[default]
    Tunnel,
    /// The network is extended to them: each has a node of it, with a link to the node.
    Extend,
}

/// Something that has to hold in the network: exactly one of `ping` and `throughput`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Test {
    /// The first node reaches the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ping: Option<[String; 2]>,
    /// The longest round trip of a ping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_max: Option<Span>,
    /// The first node sends to the second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<[String; 2]>,
    /// The least rate that has to arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_min: Option<Rate>,
}

/// What is wanted of a node, with nothing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedNode {
    /// What makes it.
    pub kind: Kind,
    /// The image of its system.
    pub image: String,
    /// Processors.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory: u64,
    /// How it comes to run.
    pub boot: Boot,
    /// Where it may be; anywhere if the list is empty.
    pub location: Vec<String>,
    /// Physical interfaces, and what is before them.
    pub nics: Nics,
    /// Labels of its host.
    pub labels: BTreeMap<String, String>,
}

impl Document {
    /// Reads a document of one of the forms and judges it.
    ///
    /// # Errors
    /// All that is wrong with it, with places; only the first thing where the text is not one of
    /// its form at all.
    pub fn read(text: &str, form: Form) -> Result<Self, DocumentError> {
        form::read(text, form)
    }

    /// Judges a document that was not [read](Document::read) but came as a value, such as in a
    /// message of another.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn check(&self) -> Result<(), DocumentError> {
        form::check(self, &BTreeMap::new())
    }

    /// The document in one of the forms.
    #[must_use]
    pub fn write(&self, form: Form) -> String {
        form::write(self, form)
    }

    /// A node with its defaults: a VM of image `carina` with one processor and 128 MiB, cloned.
    #[must_use]
    pub fn resolved(&self, name: &str) -> Option<ResolvedNode> {
        let (node, defaults) = (self.node.get(name)?, &self.defaults);
        let nics = Nics {
            count: 0,
            via: Via::Forwarder,
        };
        let mut labels = defaults.labels.clone();
        labels.extend(node.labels.clone());
        let location = [&node.location, &defaults.location];
        let location = location.into_iter().find(|list| !list.is_empty());
        let kind = node.kind.or(defaults.kind).unwrap_or(Kind::Vm);
        let image = node.image.as_ref().or(defaults.image.as_ref());
        Some(ResolvedNode {
            kind,
            image: image.map_or_else(|| OWN_IMAGE.to_owned(), String::clone),
            cpus: node.cpus.or(defaults.cpus).unwrap_or(1),
            memory: node.memory.or(defaults.memory).unwrap_or(128),
            boot: node.boot.or(defaults.boot).unwrap_or(match kind {
                Kind::Vm => Boot::Clone,
                Kind::Namespace => Boot::Cold,
            }),
            location: location.cloned().unwrap_or_default(),
            nics: node.nics.or(defaults.nics).unwrap_or(nics),
            labels,
        })
    }
}

impl Node {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Kind {
    /// The word for it in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Vm => "vm",
            Self::Namespace => "namespace",
        }
    }
}

impl Boot {
    /// The word for it in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Clone => "clone",
            Self::Pool => "pool",
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

impl Via {
    fn is_forwarder(&self) -> bool {
        *self == Self::Forwarder
    }
}

impl Attach {
    /// The word for it in documents.
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
    /// The word for it in documents.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ipip => "ipip",
            Self::Gre => "gre",
            Self::Vxlan => "vxlan",
            Self::Dif => "dif",
        }
    }

    fn is_ipip(&self) -> bool {
        *self == Self::Ipip
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
