//! What an operator asks of the nodes of its networks: to run a command, to watch a console, to
//! send an echo, to copy or impair what a node sends.
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

use std::net::SocketAddrV4;
use std::time::Duration;

use carina_vnet::grant::Verb;
use carina_vnet::host_part::VnetId;
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::LinkReport;
use carina_vnet::report::NodeSwitch;
use carina_vnet::way::Sought;
use serde::{Deserialize, Serialize};

use self::access::AtAccess;

pub use self::answer::{Answer, EndReport, Look};

pub mod access;
mod answer;
pub mod below;
pub mod copied;
pub mod desk;
pub mod sight;
pub mod tenants;
pub mod test;
pub mod trace;

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
        /// A number that the VNO has drawn, by which it ends the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
    },
    /// End a command that runs in a node, or has not come yet.
    EndExec {
        /// The node.
        node: String,
        /// The number.
        session: u64,
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
    /// Begin to ask an address for echos, 1000 a second, from a node that is a namespace. For PIPs.
    WatchEchoes {
        /// The node.
        node: String,
        /// The address.
        to: std::net::Ipv4Addr,
        /// A number that the one who asks has drawn.
        session: u64,
    },
    /// End that. For PIPs.
    EndEchoes {
        /// The node.
        node: String,
        /// The number.
        session: u64,
    },
    /// Let an end user in, or cut one off.
    Access {
        /// The node of the access point, which the VNO says.
        #[serde(default)]
        node: String,
        /// The access point.
        access: String,
        /// The user.
        user: String,
        /// What is to be done.
        what: AtAccess,
    },
    /// Access points and their users.
    Users {},
    /// Impair what a node sends at an interface, or no longer do so.
    Impair {
        /// The node.
        node: String,
        /// Its interface.
        interface: String,
        /// How; not at all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        impairment: Option<Impairment>,
    },
    /// Stop a node, or start or restart it and wait until it runs.
    SwitchNode {
        /// The node.
        node: String,
        /// What is done with it.
        what: NodeSwitch,
    },
    /// Take the link at an interface of a node down, or up again.
    SwitchLink {
        /// The node.
        node: String,
        /// Its interface.
        interface: String,
        /// Whether it is to be up.
        is_up: bool,
    },
    /// Copies of the frames that pass an interface of a node, as a file (pcapng) in portions. The
    /// first time, `since` and `wait_ms` are 0, and this begins to copy.
    Copy {
        /// The node.
        node: String,
        /// Its interface.
        interface: String,
        /// The end of the link that is at the other node, `NODE:INTERFACE`.
        far: String,
        /// Bytes that are kept of a frame at most.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snap: Option<u32>,
        /// A number that the one who looks has drawn.
        session: u64,
        /// After so many bytes of the file; those before have arrived.
        since: u64,
        /// How long to wait for something, ms.
        wait_ms: u64,
    },
    /// Copy no longer: what has passed so far comes, and the end of the file.
    Enough {
        /// The node.
        node: String,
        /// The number.
        session: u64,
    },
    /// Watch all links for echos between two nodes.
    Seek {
        /// A number that the one who looks has drawn.
        session: u64,
        /// The echos.
        sought: Sought,
    },
    /// What was seen of them. This ends the watch.
    Found {
        /// The number.
        session: u64,
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

impl Ask {
    /// The node that is asked; none if it is the network.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Ask::Look {} | Ask::Users {} | Ask::Seek { .. } | Ask::Found { .. } => None,
            Ask::Exec { node, .. }
            | Ask::EndExec { node, .. }
            | Ask::Watch { node, .. }
            | Ask::Type { node, .. }
            | Ask::Leave { node, .. }
            | Ask::Echo { node, .. }
            | Ask::Receive { node, .. }
            | Ask::Send { node, .. }
            | Ask::Access { node, .. }
            | Ask::Migrate { node }
            | Ask::Impair { node, .. }
            | Ask::SwitchNode { node, .. }
            | Ask::SwitchLink { node, .. }
            | Ask::Copy { node, .. }
            | Ask::Enough { node, .. }
            | Ask::WatchEchoes { node, .. }
            | Ask::EndEchoes { node, .. } => Some(node),
        }
    }

    /// How long the answer may take.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let ms = match self {
            // No guest has a part in it, and one host that is silent does not hold up all others.
            Ask::Look {} | Ask::Seek { .. } | Ask::Found { .. } => return OF_HOST,
            Ask::Users {}
            | Ask::Access { .. }
            | Ask::EndExec { .. }
            | Ask::Type { .. }
            | Ask::Leave { .. }
            | Ask::Impair { .. }
            | Ask::Enough { .. }
            | Ask::WatchEchoes { .. }
            | Ask::EndEchoes { .. } => 0,
            Ask::Exec { limit_ms, .. }
            | Ask::Echo { limit_ms, .. }
            | Ask::Receive { limit_ms, .. } => *limit_ms,
            Ask::Watch { wait_ms, .. } | Ask::Copy { wait_ms, .. } => (*wait_ms).min(WATCH_MS_MAX),
            Ask::Send {
                time_ms, limit_ms, ..
            } => time_ms.saturating_add(*limit_ms),
            Ask::Migrate { .. } | Ask::SwitchNode { .. } | Ask::SwitchLink { .. } => CHANGE_MS,
        };
        Duration::from_millis(ms.min(LIMIT_MS_MAX)) + MARGIN
    }

    /// What it is, for those who read later who was where; none if that is not worth noting.
    #[must_use]
    pub fn deed(&self) -> Option<String> {
        match self {
            Ask::Exec { command, .. } => Some(format!("runs `{}`", noted(command))),
            Ask::Watch { since: 0, .. } => Some("watches the console".to_owned()),
            Ask::Leave { .. } => Some("leaves the console".to_owned()),
            Ask::Migrate { .. } => Some("has it move".to_owned()),
            Ask::Access {
                access, user, what, ..
            } => Some(what.deed(access, user)),
            Ask::Impair {
                interface,
                impairment,
                ..
            } => {
                let interface = noted(interface);
                Some(match impairment {
                    Some(it) => format!("impairs what it sends at {interface}: {it}"),
                    None => format!("impairs what it sends at {interface} no longer"),
                })
            }
            Ask::SwitchNode { what, .. } => Some(
                match what {
                    NodeSwitch::Stop => "stops it",
                    NodeSwitch::Start => "starts it",
                    NodeSwitch::Restart => "restarts it",
                }
                .to_owned(),
            ),
            Ask::SwitchLink {
                interface, is_up, ..
            } => {
                let word = if *is_up { "up" } else { "down" };
                Some(format!("takes the link at {} {word}", noted(interface)))
            }
            Ask::Copy {
                since: 0,
                wait_ms: 0,
                interface,
                ..
            } => Some(format!("captures at {}", noted(interface))),
            _ => None,
        }
    }

    /// What someone has to be allowed who asks this.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            Ask::Look {} => Verb::See,
            Ask::Exec { .. } | Ask::EndExec { .. } => Verb::Exec,
            Ask::Watch { .. } | Ask::Leave { .. } => Verb::Watch,
            Ask::Type { .. } => Verb::Console,
            Ask::Echo { .. }
            | Ask::Receive { .. }
            | Ask::Send { .. }
            | Ask::Seek { .. }
            | Ask::Found { .. } => Verb::Test,
            Ask::Copy { .. } | Ask::Enough { .. } => Verb::Capture,
            Ask::Impair { .. } | Ask::SwitchLink { .. } => Verb::Impair,
            Ask::SwitchNode { .. } => Verb::Restart,
            // Only a PIP may have nodes watched: those below a VNO refuse it to all others.
            Ask::Migrate { .. } | Ask::WatchEchoes { .. } | Ask::EndEchoes { .. } => Verb::Migrate,
            Ask::Access { .. } | Ask::Users {} => Verb::Token,
        }
    }
}

/// The asks by which a link becomes impaired as is wanted, of those ends at which that differs.
#[must_use]
pub fn impairments(link: &LinkReport, wanted: &LinkImpairment) -> Vec<Ask> {
    let sides = [0, 1].into_iter();
    let differ = sides.filter(|side| wanted.of_side(*side) != link.impairment.of_side(*side));
    let ask = |side: usize| {
        let (node, interface) = link.ends[side].split_once(':')?;
        Some(Ask::Impair {
            node: node.to_owned(),
            interface: interface.to_owned(),
            impairment: wanted.of_side(side),
        })
    };
    differ.filter_map(ask).collect()
}

/// The asks by which a link goes down or comes up at each of its ends.
#[must_use]
pub fn link_switches(link: &LinkReport, is_up: bool) -> Vec<Ask> {
    let ends = link.ends.iter();
    let ends = ends.filter_map(|end| end.split_once(':'));
    let ask = |(node, interface): (&str, &str)| Ask::SwitchLink {
        node: node.to_owned(),
        interface: interface.to_owned(),
        is_up,
    };
    ends.map(ask).collect()
}

fn noted(text: &str) -> String {
    text.chars().take(NOTED).collect()
}

/// What an answer may take beside the ask itself: guests under translation are slow.
const MARGIN: Duration = Duration::from_secs(35);
const LIMIT_MS_MAX: u64 = 3_600_000;
/// How long a host may take to say how what it has is.
const OF_HOST: Duration = Duration::from_secs(10);
/// How long who watches a console waits at most at a time.
pub const WATCH_MS_MAX: u64 = 10_000;
/// How long a node may take to move or to start.
pub const CHANGE_MS: u64 = 300_000;
/// Of a command or a name so much is noted.
const NOTED: usize = 200;
