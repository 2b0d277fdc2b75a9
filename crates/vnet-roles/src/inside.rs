//! What an operator asks of the nodes of its networks: to run a command, to watch a console, to
//! send an echo.
//!
//! ```text
//!  operator --ask--> VNO --ask--> VNP --ask--> PIP : asks wait for the agent : <--fetches-- agent
//!           <-----------------------------answer-------------------------------
//! ```
//!
//! Each role looks whether the caller's network and the node are the caller's, and notes who
//! called; the agent writes down on whose behalf it lets whom into which node. An ask is carried
//! out once at most: one whose answer is lost is not repeated. Answers have the names of the
//! operator's document, what the node itself has said, and no word of a host.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Duration;

use carina_vnet::document::{Carrier, Rate};
use carina_vnet::host_part::{LinkState, VnetId};
use carina_vnet_host::report::{ExecReply, MigrationReport, NodeReport, Passed};
use serde::{Deserialize, Serialize};

pub mod below;
pub mod desk;
pub mod hosting;
mod sessions;
pub mod test;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How nodes and links are.
    Look {},
    /// Run a command in a node.
    Exec {
        /// The node.
        node: String,
        /// The command, for a shell.
        command: String,
        /// How long it may take, ms.
        limit_ms: u64,
    },
    /// What the console of a node says. The first time, this joins those who watch it.
    Watch {
        /// The node.
        node: String,
        /// A number that the one who watches has drawn.
        session: u64,
        /// After so many bytes of this session.
        since: u64,
        /// How long to wait for something, ms.
        wait_ms: u64,
    },
    /// Type at the console of a node, which is watched already.
    Type {
        /// The node.
        node: String,
        /// The number.
        session: u64,
        /// What is typed.
        bytes: Vec<u8>,
    },
    /// Watch the console of a node no longer.
    Leave {
        /// The node.
        node: String,
        /// The number.
        session: u64,
    },
    /// An echo from a node.
    Echo {
        /// The node.
        node: String,
        /// Whom to ask.
        to: std::net::Ipv4Addr,
        /// How long the answer may take, ms.
        limit_ms: u64,
    },
    /// Take a stream of TCP.
    Receive {
        /// The node.
        node: String,
        /// At this port.
        port: u16,
        /// How long it may take to come, ms.
        limit_ms: u64,
    },
    /// Send a stream of TCP.
    Send {
        /// The node.
        node: String,
        /// To this address and port.
        to: SocketAddrV4,
        /// For how long, ms.
        time_ms: u64,
        /// How long it may take until it is taken, ms.
        limit_ms: u64,
    },
    /// Move a machine to another QEMU while it runs.
    Migrate {
        /// The node.
        node: String,
    },
}

/// An ask on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// The network.
    pub vnet: VnetId,
    /// What is asked.
    pub ask: Ask,
    /// On whose behalf: the operator first, then each role that has passed it on.
    pub who: Vec<String>,
}

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
}

/// How nodes and links are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Look {
    /// Nodes.
    pub nodes: Vec<NodeReport>,
    /// Ends of links.
    pub ends: Vec<EndReport>,
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
}

impl Ask {
    /// The node that is asked; none if it is the network.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Ask::Look {} => None,
            Ask::Exec { node, .. }
            | Ask::Watch { node, .. }
            | Ask::Type { node, .. }
            | Ask::Leave { node, .. }
            | Ask::Echo { node, .. }
            | Ask::Receive { node, .. }
            | Ask::Send { node, .. }
            | Ask::Migrate { node } => Some(node),
        }
    }

    /// How long the answer may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let ms = match self {
            Ask::Look {} | Ask::Type { .. } | Ask::Leave { .. } => 0,
            Ask::Exec { limit_ms, .. }
            | Ask::Echo { limit_ms, .. }
            | Ask::Receive { limit_ms, .. } => *limit_ms,
            Ask::Watch { wait_ms, .. } => (*wait_ms).min(WATCH_MS_MAX),
            Ask::Send {
                time_ms, limit_ms, ..
            } => time_ms.saturating_add(*limit_ms),
            Ask::Migrate { .. } => MIGRATE_MS,
        };
        Duration::from_millis(ms.min(LIMIT_MS_MAX)) + MARGIN
    }

    /// What it is, for those who read later who was where; none if that is not worth noting.
    #[must_use]
    pub fn deed(&self) -> Option<String> {
        match self {
            Ask::Exec { command, .. } => {
                let command: String = command.chars().take(COMMAND_NOTED).collect();
                Some(format!("runs `{command}`"))
            }
            Ask::Watch { since: 0, .. } => Some("watches the console".to_owned()),
            Ask::Leave { .. } => Some("leaves the console".to_owned()),
            Ask::Migrate { .. } => Some("has it move".to_owned()),
            _ => None,
        }
    }
}

impl Answer {
    /// Adds the answer of another host or provider to the same ask.
    pub(crate) fn add(&mut self, other: Answer) {
        match (self, other) {
            (Answer::Looked(all), Answer::Looked(more)) => {
                all.nodes.extend(more.nodes);
                all.ends.extend(more.ends);
            }
            // One node is asked for all else.
            (all, other) => *all = other,
        }
    }
}

impl Look {
    /// The two ends of each link, as far as they are known, by number.
    #[must_use]
    pub fn links(&self) -> BTreeMap<u32, Vec<&EndReport>> {
        let mut links: BTreeMap<u32, Vec<&EndReport>> = BTreeMap::new();
        for end in &self.ends {
            links.entry(end.link).or_default().push(end);
        }
        for ends in links.values_mut() {
            ends.sort_by(|a, b| a.end.cmp(&b.end));
        }
        links
    }
}

/// What an answer may take beside the ask itself: guests under translation are slow.
const MARGIN: Duration = Duration::from_secs(35);
const LIMIT_MS_MAX: u64 = 3_600_000;
/// How long who watches a console waits at most at a time.
pub(crate) const WATCH_MS_MAX: u64 = 10_000;
const MIGRATE_MS: u64 = 300_000;
/// Of a command so much is noted.
const COMMAND_NOTED: usize = 200;
