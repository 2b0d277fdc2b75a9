//! Faults of a document: what is wrong, in which part, at which line.

use std::collections::BTreeMap;
use std::fmt;

use super::limits::{INTERFACE_MAX, NAME_MAX};
use super::{ImpairmentError, Share, Span, StartError, TimetableError};

/// Why a document cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text has this many bytes, more than [`super::limits::TEXT_MAX`].
    #[error("the document has {0} bytes; must be at most {max}", max = super::limits::TEXT_MAX)]
    TooLong(usize),
    /// The text is not well-formed in its form, or has a key or element that the form does not
    /// know.
    #[error("line {line}: {message}")]
    Text {
        /// Number of the line with the fault, counted from 1.
        line: usize,
        /// Description of the syntax error.
        message: String,
    },
    /// The text is well-formed, but its content is invalid.
    #[error("{}", lines(.0))]
    Wrong(Vec<Finding>),
}

/// One fault of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The part of the document that has the fault.
    pub place: Place,
    /// Line where that part begins, from 1; `None` if the parser of the form does not report lines.
    pub line: Option<usize>,
    /// The fault; its text says what would be right.
    pub fault: Fault,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The settings of the whole network.
    Header,
    /// The defaults of the nodes.
    Defaults,
    /// The node of this name.
    Node(String),
    /// The link of this number, from 0.
    Link(usize),
    /// The access point of this name.
    Access(String),
    /// The test of this number, from 0.
    Test(usize),
}

/// The line at which each part of a document begins.
pub(super) type Lines = BTreeMap<Place, usize>;

/// A fault in a part of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The document has no node.
    #[error("the document has no node; give at least one")]
    NoNodes,
    /// A list has more entries than allowed.
    #[error("there are {count} {what}; at most {max} are possible")]
    TooMany {
        /// The kind of entries, in the plural.
        what: &'static str,
        /// Number of elements that the document has.
        count: usize,
        /// Largest number that a document may have.
        max: usize,
    },
    /// The name of a network, node or access point is not well-formed.
    #[error(
        "`{0}` is not a name: give 1 to {NAME_MAX} letters, digits and `-`, no `-` at its ends"
    )]
    Name(String),
    /// The name of an interface is not well-formed.
    #[error(
        "`{0}` is not the name of an interface: give 1 to {INTERFACE_MAX} letters, digits, `-`, \
         `_` or `.`"
    )]
    Interface(String),
    /// The kernel reserves this name of an interface.
    #[error(
        "`{0}` is an interface that the kernel has in every node, or a name with a meaning of its \
         own: give the end of the link another name, such as eth0"
    )]
    InterfaceOfKernel(String),
    /// The lease is zero.
    #[error("lease is 0: give the time for which the network is to stay, for example 12h")]
    NoLease,
    /// A text is empty, too long, or contains control characters.
    #[error("{what} `{text}` is empty, longer than 256 letters or not plain text")]
    Text {
        /// The field that holds the text.
        what: &'static str,
        /// The beginning of the text.
        text: String,
    },
    /// An entry of a list contains spaces, which separate the entries in XML.
    #[error("{what} `{text}` has a space; write it as one word")]
    Spaces {
        /// The list that holds the entry.
        what: &'static str,
        /// The beginning of the entry.
        text: String,
    },
    /// A number is out of range.
    #[error("{what} is {value}; must be a number from {min} to {max}")]
    Range {
        /// The field that holds the number.
        what: &'static str,
        /// The value in the document.
        value: u64,
        /// The least allowed value.
        min: u64,
        /// The largest allowed value.
        max: u64,
    },
    /// The document refers to a node that it does not define.
    #[error("node `{name}` is not in the document{}", near_words(.near))]
    UnknownNode {
        /// The name for which the document has no node.
        name: String,
        /// The defined node with the most similar name, if one is similar.
        near: Option<String>,
    },
    /// Both ends of a link, or both nodes of a test, are this node.
    #[error("both ends are `{0}`; give two different nodes")]
    SameNode(String),
    /// Two links end at the same interface.
    #[error(
        "interface `{end}` is already an end of link {other}; give each link its own interface"
    )]
    InterfaceTaken {
        /// The interface at which two links end, `NODE:INTERFACE`.
        end: String,
        /// Number of the other link, from 1.
        other: usize,
    },
    /// No interface can have this address.
    #[error(
        "{0} is no address of an interface: give a unicast address that is not the first or the \
         last of its prefix"
    )]
    NoHostAddress(String),
    /// The addresses of a link are not two addresses of one prefix.
    #[error("addresses {} and {}: must be two of one prefix, such as 10.1.2.1/24 and 10.1.2.2/24",
        .0[0], .0[1])]
    NotOnePrefix([String; 2]),
    /// A link with IPv6 addresses has a carrier that carries IPv4 only.
    #[error("addresses6 needs another carrier than ipip, which carries IPv4 only: as = \"gre\"")]
    NoIpv6,
    /// The prefix of a link overlaps the prefix of another link; holds the number of the other
    /// link, from 1.
    #[error("its addresses are in a prefix that overlaps that of link {0}")]
    PrefixTaken(usize),
    /// The prefix of a link overlaps a range from which other addresses are taken.
    #[error(
        "its addresses are in a prefix that overlaps {range}, from which {of} get their addresses; \
         choose another prefix"
    )]
    PrefixOfLayout {
        /// The range from which addresses are taken.
        range: String,
        /// What gets addresses from the range, in the plural.
        of: &'static str,
    },
    /// A link with a bridge at an end has a carrier that carries no Ethernet frames.
    #[error("as = \"{0}\" carries no Ethernet frames, which a bridge needs; give as = \"gre\"")]
    BridgeCarrier(&'static str),
    /// A bridge has an access point or a physical card, which only other nodes can have.
    #[error(
        "`{node}` is a bridge, which has no {what}; give them to a node that is linked with it"
    )]
    OfBridge {
        /// Name of the bridge.
        node: String,
        /// What the bridge cannot have, in the plural.
        what: &'static str,
    },
    /// The links of a segment do not have addresses of one prefix.
    #[error(
        "its addresses are of another prefix than those of other links of its bridges; give all \
         these links addresses of one prefix, or none of them"
    )]
    SegmentPrefix,
    /// A bridge has two addresses.
    #[error("bridge `{node}` gets {address} here and another address at another link; give it one")]
    BridgeAddresses {
        /// Name of the bridge.
        node: String,
        /// The address that differs from the first one.
        address: String,
    },
    /// Two ends of links in a segment have the same address.
    #[error("`{node}` has the address {address} already; give each end its own")]
    AddressTaken {
        /// The address that two ends have.
        address: String,
        /// The node that has it.
        node: String,
    },
    /// A node cannot be given this at its start.
    #[error("{0}")]
    Start(StartError),
    /// A node with a file system of its own has a link that is a flow of a DIF.
    #[error(
        "`{0}` has a file system of its own, in which no Carina node runs: as = \"dif\" is not \
         possible; give as = \"gre\""
    )]
    FilesystemOfMember(String),
    /// A link has an impossible impairment.
    #[error("{0}")]
    Impairment(ImpairmentError),
    /// A link has an impossible timetable.
    #[error("{0}")]
    Timetable(TimetableError),
    /// No frame passes a link with this impairment unharmed.
    #[error(
        "{0} is 100%, so the network can never be ready; give less, or take the link down with \
         `carina vnet link down`"
    )]
    NothingPasses(&'static str),
    /// The delay of a link exceeds the largest possible delay, or the link's `delay_max`.
    #[error("delay is {delay}; must be at most {max} (the least of 10s and delay_max)")]
    Late {
        /// The delay that the document gives the link.
        delay: Span,
        /// The longest possible delay.
        max: Span,
    },
    /// The loss of a link exceeds what `loss_max` of the link allows.
    #[error("loss is {loss}; must be at most loss_max, which is {max}")]
    Lossy {
        /// The loss that the document gives the link.
        loss: Share,
        /// The bound that the document gives the link.
        max: Share,
    },
    /// A node names itself in `apart_from`.
    #[error("a node cannot be apart from itself; leave it out of apart_from")]
    ApartFromItself,
    /// A node names this node in `apart_from` although that one already names it.
    #[error("`{0}` is already apart from this node; write it once, at one of the two nodes")]
    ApartTwice(String),
    /// A list contains the same text twice.
    #[error("{what} `{text}` occurs twice; leave one out")]
    Twice {
        /// Key of the list that contains a text twice.
        what: &'static str,
        /// The text that the list contains twice.
        text: String,
    },
    /// A namespace specifies `boot`, which only a VM has.
    #[error("a namespace has nothing to clone and no pool; leave boot out, or set kind = \"vm\"")]
    NamespaceBoots,
    /// An access point with `attach = "extend"` specifies no rate for its users' links.
    #[error("attach = \"extend\" needs a rate for the links of users, such as rate = \"10Mbps\"")]
    AccessRate,
    /// An access point with `attach = "tunnel"` specifies a location, which only `extend` has.
    #[error("location is where nodes of users are: it belongs to attach = \"extend\"")]
    AccessLocation,
    /// An access point with `attach = "tunnel"` specifies a card, which only `extend` has.
    #[error("card is where machines of users are plugged in: it belongs to attach = \"extend\"")]
    AccessCard,
    /// With `attach = "extend"`, a user's node would have the name of another node.
    #[error("user `{0}` would get a node of this name, which already exists; rename one of them")]
    UserIsNode(String),
    /// A test has both `ping` and `throughput`, or neither.
    #[error("a test has exactly one of ping and throughput")]
    TestSubject,
    /// A test specifies a bound that belongs to the other kind of test.
    #[error("{bound} is possible only in a test with {subject}")]
    TestBound {
        /// The key of the bound.
        bound: &'static str,
        /// The kind of test to which the bound belongs.
        subject: &'static str,
    },
    /// A test of throughput has no key `rate_min`.
    #[error("a test with throughput needs rate_min, for example rate_min = \"90Mbps\"")]
    NoRate,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("vnet"),
            Self::Defaults => f.write_str("defaults"),
            Self::Node(name) => write!(f, "node {name}"),
            Self::Link(number) => write!(f, "link {}", number + 1),
            Self::Access(name) => write!(f, "access point {name}"),
            Self::Test(number) => write!(f, "test {}", number + 1),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        write!(f, "{}: {}", self.place, self.fault)
    }
}

fn lines(findings: &[Finding]) -> String {
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

fn near_words(near: &Option<String>) -> String {
    match near {
        Some(near) => format!("; is `{near}` meant?"),
        None => String::new(),
    }
}
