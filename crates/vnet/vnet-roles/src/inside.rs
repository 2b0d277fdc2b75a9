//! Requests of an operator to the nodes of its networks: to run a command, to watch a console, to
//! send an echo request, to capture or impair frames.
//!
//! ```text
//!  operator --ask--> VNO --ask--> VNP --ask--> PIP : requests wait here : <--fetches-- agent
//!           <-----------------------------answer------------------------------------------
//! ```
//!
//! Each role checks that the network and the node belong to the caller, and adds the caller's name
//! to the request. The agent logs on whose behalf it gives whom access to which node. A request is
//! carried out at most once: if its answer is lost, it is not repeated. Answers contain names of
//! the operator's document and output of the node, and nothing about the host.

use std::net::SocketAddrV4;
use std::time::Duration;

use carina_vnet::grant::Verb;
use carina_vnet::host_part::VnetId;
use carina_vnet::impairment::{Impairment, LinkImpairment};
use carina_vnet::report::LinkReport;
use carina_vnet::report::NodeSwitch;
use carina_vnet::trace::Sought;
use serde::{Deserialize, Serialize};

use self::access::AtAccess;

pub use self::answer::{Answer, EndReport, Look};

pub mod access;
mod answer;
pub mod below;
pub mod copied;
pub mod network_report;
pub mod request_queue;
pub mod tenants;
pub mod test;
pub mod trace;

/// A request to the nodes of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum NodeRequest {
    /// Report the state of the network's nodes and links on the host.
    Look {},
    /// Run a command in a node.
    Exec {
        /// Name of the node that runs the command.
        node: String,
        /// The command line, which a shell interprets.
        command: String,
        /// Time in milliseconds after which the command is killed.
        limit_ms: u64,
        /// Number of the command, drawn by the VNO. With it, the VNO can end the command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<u64>,
    },
    /// Begin to run a command in a node. The host answers at once; [`NodeRequest::Output`] fetches
    /// the output.
    Begin {
        /// Name of the node that runs the command.
        node: String,
        /// The command line, which a shell interprets.
        command: String,
        /// Time in milliseconds after which the command is killed.
        limit_ms: u64,
        /// Number of the command, drawn by the VNO; [`NodeRequest::Output`] and
        /// [`NodeRequest::EndExec`] name it.
        session: u64,
    },
    /// Return output of a command that [`NodeRequest::Begin`] has started, as soon as there is
    /// some. The host keeps only little output, so the command has to wait until its output is
    /// fetched. The host ends a command for which no such request comes for a minute.
    Output {
        /// Name of the node that runs the command.
        node: String,
        /// Number of the command, as in [`NodeRequest::Begin`].
        session: u64,
        /// Position in the output from which to return bytes; the caller has received all bytes
        /// before it, and the host discards them.
        since: u64,
        /// Largest number of bytes to return. 0 returns nothing, and only keeps the command alive.
        #[serde(rename = "most")]
        bytes_max: u64,
        /// Longest time for which the host waits for output before it answers, ms.
        wait_ms: u64,
    },
    /// End a command in a node. If [`NodeRequest::Exec`] or [`NodeRequest::Begin`] arrives at the
    /// host after this, the command is not run.
    EndExec {
        /// Name of the node that runs the command.
        node: String,
        /// Number of the command, as in [`NodeRequest::Exec`] or [`NodeRequest::Begin`].
        session: u64,
    },
    /// Return output of a node's console. The first request of a session registers the viewer.
    Watch {
        /// Name of the node whose console is watched.
        node: String,
        /// Number of the session, drawn by the viewer.
        session: u64,
        /// Position in the output of the session from which to return bytes.
        since: u64,
        /// Longest time for which the host waits for output before it answers, ms.
        wait_ms: u64,
    },
    /// Type at the console of a node, in a session that watches it.
    Type {
        /// Name of the node at whose console to type.
        node: String,
        /// Number of the session, as in [`NodeRequest::Watch`].
        session: u64,
        /// The bytes to type.
        bytes: Vec<u8>,
    },
    /// End a session that watches a console.
    Leave {
        /// Name of the node whose console was watched.
        node: String,
        /// Number of the session, as in [`NodeRequest::Watch`].
        session: u64,
    },
    /// Send an echo request from a node.
    Echo {
        /// Name of the node that sends the echo request.
        node: String,
        /// Address to which the request is sent.
        to: std::net::Ipv4Addr,
        /// Longest time for the reply, ms.
        limit_ms: u64,
    },
    /// Accept a TCP stream at a node, and read it to its end.
    Receive {
        /// Name of the node that receives the stream.
        node: String,
        /// TCP port at which the node accepts the stream.
        port: u16,
        /// Longest time until a stream comes, ms.
        limit_ms: u64,
    },
    /// Send a TCP stream from a node.
    Send {
        /// Name of the node that sends the stream.
        node: String,
        /// Address and port of the receiver.
        to: SocketAddrV4,
        /// Duration of the stream, ms.
        time_ms: u64,
        /// Longest time until the receiver accepts the stream, ms.
        limit_ms: u64,
    },
    /// Migrate a running machine to another QEMU of its host.
    Migrate {
        /// Name of the machine's node.
        node: String,
    },
    /// Begin to send 1000 echo requests per second from a namespace node. Only a PIP may request
    /// this.
    WatchEchoes {
        /// Name of the node that sends.
        node: String,
        /// Address to which the requests are sent.
        to: std::net::Ipv4Addr,
        /// Number of the session, drawn by the caller.
        session: u64,
    },
    /// End the echo requests of a session, and return the result. Only a PIP may request this.
    EndEchoes {
        /// Name of the node that sends the echo requests.
        node: String,
        /// Number of the session, as in [`NodeRequest::WatchEchoes`].
        session: u64,
    },
    /// Make or revoke tokens of an end user.
    Access {
        /// The node of the access point; the VNO fills it in.
        #[serde(default)]
        node: String,
        /// Name of the access point to which the tokens belong.
        access: String,
        /// Name of the end user to whom the tokens belong.
        user: String,
        /// Whether to make a token for the user, or to revoke the user's tokens.
        what: AtAccess,
    },
    /// Report the access points and their users.
    Users {},
    /// Set or remove the impairment of frames that a node sends at an interface.
    Impair {
        /// Name of the node whose frames are impaired.
        node: String,
        /// Name of the interface at which the node sends the frames.
        interface: String,
        /// The impairment; `None` removes it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        impairment: Option<Impairment>,
    },
    /// Stop a node, or start or restart it and wait until it runs.
    SwitchNode {
        /// Name of the node to stop, start or restart.
        node: String,
        /// Whether to stop, start or restart the node.
        what: NodeSwitch,
    },
    /// Take the link at an interface of a node down or up.
    SwitchLink {
        /// Name of a node at an end of the link.
        node: String,
        /// Name of that node's interface at the link.
        interface: String,
        /// Whether to take the link up.
        is_up: bool,
    },
    /// Return a portion of a capture (pcapng) of the frames that pass an interface of a node. The
    /// first request of a session, with `since` and `wait_ms` 0, starts the capture.
    Copy {
        /// Name of the node whose frames are copied.
        node: String,
        /// Name of the interface at which the frames are copied.
        interface: String,
        /// The other end of the link, `NODE:INTERFACE`.
        far: String,
        /// Largest number of bytes that are captured of each frame; `None`: all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snap: Option<u32>,
        /// Number of the session, drawn by the caller.
        session: u64,
        /// Position in the file from which to return bytes; the caller has received all bytes
        /// before it.
        since: u64,
        /// Longest time for which the host waits for bytes before it answers, ms.
        wait_ms: u64,
    },
    /// Stop the capture that [`NodeRequest::Copy`] has started. What was captured so far, and the
    /// end of the file, can still be fetched.
    #[serde(rename = "enough")]
    StopCapture {
        /// Name of the node whose frames are copied.
        node: String,
        /// Number of the session, as in [`NodeRequest::Copy`].
        session: u64,
    },
    /// Start to watch all ports of the network on the host for the echo requests of a trace.
    Seek {
        /// Number of the session, drawn by the caller.
        session: u64,
        /// The echo requests to watch for.
        sought: Sought,
    },
    /// End the watch that [`NodeRequest::Seek`] has started, and return the frames that the host
    /// has seen.
    Found {
        /// Number of the session, as in [`NodeRequest::Seek`].
        session: u64,
    },
}

/// A request about a network or one of its nodes, with the names of those on whose behalf a host
/// carries it out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkRequest {
    /// Identifier (uid) of the network that the request is about.
    pub vnet: VnetId,
    /// The request that the host carries out.
    pub ask: NodeRequest,
    /// On whose behalf: the operator, followed by each role that has forwarded the request.
    pub who: Vec<String>,
}

impl NodeRequest {
    /// The node that the request concerns; `None` if it concerns the whole network.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            NodeRequest::Look {}
            | NodeRequest::Users {}
            | NodeRequest::Seek { .. }
            | NodeRequest::Found { .. } => None,
            NodeRequest::Exec { node, .. }
            | NodeRequest::Begin { node, .. }
            | NodeRequest::Output { node, .. }
            | NodeRequest::EndExec { node, .. }
            | NodeRequest::Watch { node, .. }
            | NodeRequest::Type { node, .. }
            | NodeRequest::Leave { node, .. }
            | NodeRequest::Echo { node, .. }
            | NodeRequest::Receive { node, .. }
            | NodeRequest::Send { node, .. }
            | NodeRequest::Access { node, .. }
            | NodeRequest::Migrate { node }
            | NodeRequest::Impair { node, .. }
            | NodeRequest::SwitchNode { node, .. }
            | NodeRequest::SwitchLink { node, .. }
            | NodeRequest::Copy { node, .. }
            | NodeRequest::StopCapture { node, .. }
            | NodeRequest::WatchEchoes { node, .. }
            | NodeRequest::EndEchoes { node, .. } => Some(node),
        }
    }

    /// Longest time that a host may take to answer this request.
    #[must_use]
    pub fn limit(&self) -> Duration {
        let ms = match self {
            // These involve no guest, and a silent host must not delay the answers of all others.
            NodeRequest::Look {} | NodeRequest::Seek { .. } | NodeRequest::Found { .. } => {
                return OF_HOST;
            }
            NodeRequest::Users {}
            | NodeRequest::Access { .. }
            | NodeRequest::Begin { .. }
            | NodeRequest::EndExec { .. }
            | NodeRequest::Type { .. }
            | NodeRequest::Leave { .. }
            | NodeRequest::Impair { .. }
            | NodeRequest::StopCapture { .. }
            | NodeRequest::WatchEchoes { .. }
            | NodeRequest::EndEchoes { .. } => 0,
            NodeRequest::Exec { limit_ms, .. }
            | NodeRequest::Echo { limit_ms, .. }
            | NodeRequest::Receive { limit_ms, .. } => *limit_ms,
            NodeRequest::Watch { wait_ms, .. }
            | NodeRequest::Copy { wait_ms, .. }
            | NodeRequest::Output { wait_ms, .. } => (*wait_ms).min(WATCH_MS_MAX),
            NodeRequest::Send {
                time_ms, limit_ms, ..
            } => time_ms.saturating_add(*limit_ms),
            NodeRequest::Migrate { .. }
            | NodeRequest::SwitchNode { .. }
            | NodeRequest::SwitchLink { .. } => CHANGE_MS,
        };
        Duration::from_millis(ms.min(LIMIT_MS_MAX)) + MARGIN
    }

    /// A text for the access log, which records who was in which node; `None` if the request is not
    /// logged.
    #[must_use]
    pub fn deed(&self) -> Option<String> {
        match self {
            NodeRequest::Exec { command, .. } | NodeRequest::Begin { command, .. } => {
                Some(format!("runs `{}`", noted(command)))
            }
            NodeRequest::Watch { since: 0, .. } => Some("watches the console".to_owned()),
            NodeRequest::Leave { .. } => Some("leaves the console".to_owned()),
            NodeRequest::Migrate { .. } => Some("has it move".to_owned()),
            NodeRequest::Access {
                access, user, what, ..
            } => Some(what.deed(access, user)),
            NodeRequest::Impair {
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
            NodeRequest::SwitchNode { what, .. } => Some(
                match what {
                    NodeSwitch::Stop => "stops it",
                    NodeSwitch::Start => "starts it",
                    NodeSwitch::Restart => "restarts it",
                }
                .to_owned(),
            ),
            NodeRequest::SwitchLink {
                interface, is_up, ..
            } => {
                let word = if *is_up { "up" } else { "down" };
                Some(format!("takes the link at {} {word}", noted(interface)))
            }
            NodeRequest::Copy {
                since: 0,
                wait_ms: 0,
                interface,
                ..
            } => Some(format!("captures at {}", noted(interface))),
            _ => None,
        }
    }

    /// The verb that a caller must be granted for this request.
    #[must_use]
    pub fn verb(&self) -> Verb {
        match self {
            NodeRequest::Look {} => Verb::See,
            NodeRequest::Exec { .. }
            | NodeRequest::Begin { .. }
            | NodeRequest::Output { .. }
            | NodeRequest::EndExec { .. } => Verb::Exec,
            NodeRequest::Watch { .. } | NodeRequest::Leave { .. } => Verb::Watch,
            NodeRequest::Type { .. } => Verb::Console,
            NodeRequest::Echo { .. }
            | NodeRequest::Receive { .. }
            | NodeRequest::Send { .. }
            | NodeRequest::Seek { .. }
            | NodeRequest::Found { .. } => Verb::Test,
            NodeRequest::Copy { .. } | NodeRequest::StopCapture { .. } => Verb::Capture,
            NodeRequest::Impair { .. } | NodeRequest::SwitchLink { .. } => Verb::Impair,
            NodeRequest::SwitchNode { .. } => Verb::Restart,
            // Only a PIP may request watches; the roles below a VNO refuse them to all others.
            NodeRequest::Migrate { .. }
            | NodeRequest::WatchEchoes { .. }
            | NodeRequest::EndEchoes { .. } => Verb::Migrate,
            NodeRequest::Access { .. } | NodeRequest::Users {} => Verb::Token,
        }
    }
}

/// The requests that give a link the impairments `wanted`: one for each end whose impairment
/// differs at present.
#[must_use]
pub fn impairments(link: &LinkReport, wanted: &LinkImpairment) -> Vec<NodeRequest> {
    let sides = [0, 1].into_iter();
    let differ = sides.filter(|side| wanted.of_side(*side) != link.impairment.of_side(*side));
    let ask = |side: usize| {
        let (node, interface) = link.ends[side].split_once(':')?;
        Some(NodeRequest::Impair {
            node: node.to_owned(),
            interface: interface.to_owned(),
            impairment: wanted.of_side(side),
        })
    };
    differ.filter_map(ask).collect()
}

/// The requests that take a link down or up, one for each end at a node.
#[must_use]
pub fn link_switches(link: &LinkReport, is_up: bool) -> Vec<NodeRequest> {
    let ends = link.ends.iter();
    let ends = ends.filter_map(|end| end.split_once(':'));
    let ask = |(node, interface): (&str, &str)| NodeRequest::SwitchLink {
        node: node.to_owned(),
        interface: interface.to_owned(),
        is_up,
    };
    ends.map(ask).collect()
}

fn noted(text: &str) -> String {
    text.chars().take(NOTED).collect()
}

/// Time for an answer in addition to the request's own limit: emulated guests are slow.
const MARGIN: Duration = Duration::from_secs(35);
const LIMIT_MS_MAX: u64 = 3_600_000;
/// Longest time for a host to report its state.
const OF_HOST: Duration = Duration::from_secs(10);
/// Longest time for which a host waits for output or captured bytes before it answers a request,
/// ms.
pub const WATCH_MS_MAX: u64 = 10_000;
/// Longest time for a machine to migrate, or for a node to start or stop, ms.
pub const CHANGE_MS: u64 = 300_000;
/// Largest number of characters of a command or name in the access log.
const NOTED: usize = 200;
