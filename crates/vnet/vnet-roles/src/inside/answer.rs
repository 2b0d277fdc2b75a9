//! Answers to requests to nodes of networks.

use carina_vnet::access::{AccessReport, Revoked, TokenReport};
use carina_vnet::document::{Carrier, Rate};
use carina_vnet::host_part::LinkState;
use carina_vnet::impairment::Impairment;
use carina_vnet::layout::Layout;
use carina_vnet::report::{ExecLine, ExecReply, MigrationReport, NodeReport, Passed};
use carina_vnet::trace::PieceSeen;
use serde::{Deserialize, Serialize};

/// What a host answers to a [`NodeRequest`](super::NodeRequest).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The states of the host's nodes and link ends of a network.
    Looked(Look),
    /// Exit status and outputs of a command.
    Ran(ExecReply),
    /// Output of a command since the position that the request names.
    Output {
        /// Number of bytes of the command's outputs up to the end of `lines`: the position of the
        /// next request.
        next: u64,
        /// Pieces of the outputs, in order. After all output, the last line says how the command
        /// ended.
        lines: Vec<ExecLine>,
    },
    /// Output of a node's console since the position that the request names.
    #[serde(rename = "said")]
    ConsoleOutput {
        /// Number of bytes in this session so far; the position of the next request.
        next: u64,
        /// The output after the position of the request.
        bytes: Vec<u8>,
        /// Whether the console of the node has ended, so that no further output follows.
        has_ended: bool,
    },
    /// The host has carried out the request, which has no result.
    Done {},
    /// The round trip of an echo request.
    Echo {
        /// Round trip of the echo request, ns.
        rtt_ns: u64,
    },
    /// Number of bytes that the receiver of a TCP stream got, and in how much time.
    Arrived {
        /// Number of bytes that the receiver got.
        bytes: u64,
        /// Time from the first byte to the last, ns.
        time_ns: u64,
    },
    /// A node has moved: how long it was paused, and how many pings were lost.
    Moved(MigrationReport),
    /// Counts of a stream of echo requests between two nodes.
    Echoes {
        /// Number of echo requests that the sending node has sent.
        sent: u64,
        /// Number of requests that were answered.
        answered: u64,
        /// The longest time between two successive replies, ns.
        gap_ns: u64,
    },
    /// The token that an access point has made for a user.
    Token(TokenReport),
    /// The tokens of a user have been revoked.
    Revoked(Revoked),
    /// The access points on the host, each with its users.
    Users(Vec<AccessReport>),
    /// Bytes of a capture file since the position that the request names.
    Copied {
        /// Number of bytes of the file so far; the position of the next request.
        next: u64,
        /// The bytes after the position of the request.
        #[serde(with = "carina_vnet::base64_text")]
        bytes: Vec<u8>,
        /// Whether the capture has ended, so that no further bytes follow.
        has_ended: bool,
    },
    /// Counts of the frames of a trace that a host has observed.
    Found(PieceSeen),
}

/// What the hosts of a network report about its nodes and the ends of its links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// The states of the nodes on these hosts.
    pub nodes: Vec<NodeReport>,
    /// The states of the link ends at these nodes.
    pub ends: Vec<EndReport>,
    /// The network's layout, if its provider has added it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Box<Layout>>,
}

/// The state of a link end at a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndReport {
    /// Number of the link in the network's layout.
    pub link: u32,
    /// The end that the report is about, `NODE:INTERFACE`.
    pub end: String,
    /// Encapsulation that carries the link.
    pub carrier: Carrier,
    /// Rate that the link carries in each direction.
    pub rate: Rate,
    /// State of the link, according to probes from this end.
    pub state: LinkState,
    /// Round trip of the last probe, ns; `None` if no probe was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rtt_ns: Option<u64>,
    /// Counters of frames that the node has sent into the link at this end.
    pub sent: Passed,
    /// Counters of frames sent to the node, if the other end is not a node but users of an access
    /// point or a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<Passed>,
    /// Impairment of the frames that the node sends into the link at this end; `None` for no
    /// impairment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub impairment: Option<Impairment>,
}

impl Answer {
    /// The answer as operators may see it, who must not know the hosts.
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

    /// Combines the answer of another host or provider to the same request with this one.
    pub(crate) fn add(&mut self, other: Answer) {
        match (self, other) {
            (Answer::Looked(all), Answer::Looked(more)) => {
                all.nodes.extend(more.nodes);
                all.ends.extend(more.ends);
                all.layout = all.layout.take().or(more.layout);
            }
            (Answer::Users(all), Answer::Users(more)) => all.extend(more),
            (Answer::Found(all), Answer::Found(more)) => all.add(more),
            // All other requests concern a single node, which gives one answer.
            (all, other) => *all = other,
        }
    }
}
