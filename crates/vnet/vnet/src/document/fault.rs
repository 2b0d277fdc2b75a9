//! What is wrong with a document, and where.

use std::collections::BTreeMap;
use std::fmt;

use super::limits::{INTERFACE_MAX, NAME_MAX};

/// A document that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// The text is longer than [`super::limits::TEXT_MAX`].
    #[error("the document has {0} bytes; at most {max} are read", max = super::limits::TEXT_MAX)]
    TooLong(usize),
    /// The text is not one of its form, or says what the form has no word for.
    #[error("line {line}: {message}")]
    Text {
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The text is one of its form, but asks for what cannot be.
    #[error("{}", lines(.0))]
    Wrong(Vec<Finding>),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is about.
    pub place: Place,
    /// The line where that begins, from 1; none where the form does not tell.
    pub line: Option<usize>,
    /// What is wrong, and what would be right.
    pub fault: Fault,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// What holds for the whole.
    Header,
    /// The defaults of its nodes.
    Defaults,
    /// A node, by name.
    Node(String),
    /// A link, by number from 0.
    Link(usize),
    /// An access point, by name.
    Access(String),
    /// A test, by number from 0.
    Test(usize),
}

/// The lines at which parts of a document begin.
pub(super) type Lines = BTreeMap<Place, usize>;

/// What is wrong with a part of a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no node.
    #[error("there is no node; give one at least")]
    NoNodes,
    /// There is too much of something.
    #[error("there are {count} {what}; at most {most} are possible")]
    TooMany {
        /// Of what, in the plural.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// A name cannot be one.
    #[error(
        "`{0}` is not a name: give 1 to {NAME_MAX} letters, digits and `-`, no `-` at its ends"
    )]
    Name(String),
    /// The name of an interface cannot be one.
    #[error(
        "`{0}` is not the name of an interface: give 1 to {INTERFACE_MAX} letters, digits, `-`, \
         `_` or `.`"
    )]
    Interface(String),
    /// The kernel has an interface of this name already.
    #[error(
        "`{0}` is an interface that the kernel has in every node, or a name with a meaning of its \
         own: give the end of the link another name, such as eth0"
    )]
    InterfaceOfKernel(String),
    /// A lease ends at once.
    #[error("lease is 0: give the time for which the network is to stay, for example 12h")]
    NoLease,
    /// A text is empty, too long, or has control characters.
    #[error("{what} `{text}` is empty, longer than 256 letters or not plain text")]
    Text {
        /// What it stands for.
        what: &'static str,
        /// Its beginning.
        text: String,
    },
    /// A word of a list has spaces, which stand between words in XML.
    #[error("{what} `{text}` has a space; write it as one word")]
    Spaces {
        /// What it stands for.
        what: &'static str,
        /// Its beginning.
        text: String,
    },
    /// A number is out of range.
    #[error("{what} is {value}; a number from {least} to {most} is right")]
    Range {
        /// Which number.
        what: &'static str,
        /// What it is.
        value: u64,
        /// The least that is possible.
        least: u64,
        /// The most that is possible.
        most: u64,
    },
    /// A node is named that is not there.
    #[error("node `{name}` is not in the document{}", near_words(.near))]
    UnknownNode {
        /// The name.
        name: String,
        /// The node that is probably meant.
        near: Option<String>,
    },
    /// Both ends of a link, or of a test, are one node.
    #[error("both ends are `{0}`; give two different nodes")]
    SameNode(String),
    /// Two links have the same interface.
    #[error("interface `{end}` is an end of link {other} already; give each link its own")]
    InterfaceTaken {
        /// The end.
        end: String,
        /// The number of the other link, from 1.
        other: usize,
    },
    /// A node is to be apart from itself.
    #[error("a node cannot be apart from itself; leave it out of apart_from")]
    ApartFromItself,
    /// Two nodes are apart twice over.
    #[error("`{0}` is apart from this node already; say it once, at either of the two")]
    ApartTwice(String),
    /// Something stands twice in a list.
    #[error("{what} `{text}` stands twice; leave one out")]
    Twice {
        /// What it stands for.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// A namespace is to come to run as only a VM can.
    #[error("a namespace has nothing to clone and no pool; leave boot out, or set kind = \"vm\"")]
    NamespaceBoots,
    /// An access point that extends the network to its users has no rate for their links.
    #[error("attach = \"extend\" needs a rate for the links of users, such as rate = \"10Mbps\"")]
    AccessRate,
    /// An access point to which users come by tunnels says where their nodes are.
    #[error("location is where nodes of users are: it belongs to attach = \"extend\"")]
    AccessLocation,
    /// An access point to which users come by tunnels gives their nodes cards.
    #[error("card is where machines of users are plugged in: it belongs to attach = \"extend\"")]
    AccessCard,
    /// The node of a user has the name of another one.
    #[error("user `{0}` gets a node of this name, and there is one already; rename either")]
    UserIsNode(String),
    /// A test has not exactly one subject.
    #[error("a test has exactly one of ping and throughput")]
    TestSubject,
    /// A bound does not belong to a test.
    #[error("{bound} belongs to a test with {subject}")]
    TestBound {
        /// The bound.
        bound: &'static str,
        /// To which kind of test it belongs.
        subject: &'static str,
    },
    /// A test of throughput has no bound.
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
