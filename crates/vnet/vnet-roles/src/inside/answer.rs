//! What nodes of networks answer to asks.

use carina_vnet::access::{AccessReport, Revoked, TokenReport};
use carina_vnet::document::{Carrier, Rate};
use carina_vnet::host_part::LinkState;
use carina_vnet::impairment::Impairment;
use carina_vnet::layout::Layout;
use carina_vnet::report::{ExecReply, MigrationReport, NodeReport, Passed};
use carina_vnet::way::PieceSeen;
use serde::{Deserialize, Serialize};

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// How nodes and links are.
    Looked(Look),
    /// What a command has said.
    Ran(ExecReply),
    /// What a console has said.
    Said {
        /// Bytes of this session so far: where to go on.
        next: u64,
        /// The last of them, after those that were known.
        bytes: Vec<u8>,
        /// Whether the console has ended.
        has_ended: bool,
    },
    /// It is done.
    Done {},
    /// The round trip of an echo.
    Echo {
        /// ns.
        rtt_ns: u64,
    },
    /// What arrived of a stream.
    Arrived {
        /// Bytes.
        bytes: u64,
        /// From the first to the last, ns.
        time_ns: u64,
    },
    /// What moving took.
    Moved(MigrationReport),
    /// What came of echos.
    Echoes {
        /// How many were sent.
        sent: u64,
        /// How many of them were answered.
        answered: u64,
        /// The longest time between two answers, ns.
        gap_ns: u64,
    },
    /// A token.
    Token(TokenReport),
    /// Tokens were taken back.
    Revoked(Revoked),
    /// Access points and their users.
    Users(Vec<AccessReport>),
    /// Copies of frames.
    Copied {
        /// Bytes of the file so far: where to go on.
        next: u64,
        /// Those after what has arrived.
        #[serde(with = "carina_vnet::base64_text")]
        bytes: Vec<u8>,
        /// Whether the file has ended.
        has_ended: bool,
    },
    /// What was seen of echos.
    Found(PieceSeen),
}

/// How nodes and links are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Nodes.
    pub nodes: Vec<NodeReport>,
    /// Ends of links.
    pub ends: Vec<EndReport>,
    /// Numbers, interfaces and addresses of links, as the network's provider has chosen them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Box<Layout>>,
}

/// An end of a link at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndReport {
    /// The number of the link.
    pub link: u32,
    /// `NODE:INTERFACE`.
    pub end: String,
    /// What carries the link.
    pub carrier: Carrier,
    /// Its rate.
    pub rate: Rate,
    /// How far it is, as probes from here have found.
    pub state: LinkState,
    /// Round trip of the last probe, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// What the node has sent there.
    pub sent: Passed,
    /// What it was sent, where no node is at the other end: users of an access point, a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Passed>,
    /// What impairs what the node sends there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impairment: Option<Impairment>,
}

impl Answer {
    /// The answer as it may be known to those who must not know the hosts.
    pub(crate) fn for_operators(mut self) -> Answer {
        if let Answer::Looked(look) = &mut self {
            for node in &mut look.nodes {
                node.state = node.state.for_operators();
            }
            for end in &mut look.ends {
                end.state = end.state.for_operators();
            }
        }
        self
    }

    /// Adds the answer of another host or provider to the same ask.
    pub(crate) fn add(&mut self, other: Answer) {
        match (self, other) {
            (Answer::Looked(all), Answer::Looked(more)) => {
                all.nodes.extend(more.nodes);
                all.ends.extend(more.ends);
                all.layout = all.layout.take().or(more.layout);
            }
            (Answer::Users(all), Answer::Users(more)) => all.extend(more),
            (Answer::Found(all), Answer::Found(more)) => all.add(more),
            // One node is asked for all else.
            (all, other) => *all = other,
        }
    }
}
