//! Errors of making, using and removing networks on a host.

use std::io;
use std::time::Duration;

use carina_frame_engine::{ConfigureError, GraphError};
use carina_graph::runner::RunnerError;
use carina_vnet::host_part::{Cause, LimitError, NodeState};
use carina_vnet_images::ImageError;

/// Why an agent could not make, change, show or remove a virtual network on its host.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a file or process of this system fails.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed, as a phrase for people.
        what: String,
        /// The error of the failed operation.
        source: io::Error,
    },
    /// An operation on a namespace or interface, or a program, fails.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A running guest cannot be reached, or a command in it fails.
    #[error(transparent)]
    Guest(#[from] carina_vm::Error),
    /// Starting or controlling a virtual machine, its image or its QEMU fails.
    #[error("{what}: {source}")]
    Vm {
        /// The operation that failed, as text.
        what: String,
        /// The error of the virtual machine.
        source: carina_vm::Error,
    },
    /// The interface through which links leave this host cannot be used.
    #[error("opening the underlay interface: {0}")]
    Underlay(carina_netdev::NetdevError),
    /// The agent cannot build a graph of apps for the links of its networks.
    #[error("the graph of the links: {0}")]
    Graph(#[from] GraphError),
    /// The engine refuses the graph of apps for the links.
    #[error("the graph of the links: {0}")]
    Configure(#[from] ConfigureError),
    /// The engine does not run.
    #[error("the engine: {0}")]
    Runner(#[from] RunnerError),
    /// A record cannot be read or written.
    #[error("{what}: {source}")]
    Json {
        /// The operation that failed, as text.
        what: String,
        /// What is wrong with the JSON of the record.
        source: serde_json::Error,
    },
    /// A configuration command fails inside a node.
    #[error("node {node}: `{command}` failed with exit status {status}: {output}")]
    NodeCommand {
        /// Name of the node in which the command ran.
        node: String,
        /// The command that failed.
        command: String,
        /// Exit status of the command.
        status: i32,
        /// Output of the command.
        output: String,
    },
    /// A command that a document gives a node fails, or a file cannot be written into the node.
    #[error("node {node}: `{command}`: {problem}")]
    Start {
        /// Name of the node at whose start the command or file fails.
        node: String,
        /// The command that failed, or a description of the attempt.
        command: String,
        /// Why the command failed.
        problem: String,
    },
    /// A node exceeds the limits of this host.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// The image of a node is unknown, or its disk cannot be made.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A program of this host is missing or fails.
    #[error("{what}: {output}")]
    Tool {
        /// The operation that failed, as text.
        what: String,
        /// Output of the program.
        output: String,
    },
    /// The agent of another host refuses.
    #[error("host {host}: {reason}")]
    Peer {
        /// Name of the host whose agent refuses.
        host: String,
        /// Why the other host's agent refuses.
        reason: String,
    },
    /// A node arrives for which there is no order.
    #[error("node {0} arrives without an order for it, or from another host than the order names")]
    NotAwaited(String),
    /// A link with carrier `dif` has no flow.
    #[error("link {link} has no flow at node {node}: {reason}")]
    NoFlow {
        /// Number of the link that has no flow.
        link: u32,
        /// Name of the node whose member has no flow.
        node: String,
        /// Why the link has no flow.
        reason: String,
    },
    /// A node does not answer an echo over the network's DIF.
    #[error("node {to} did not answer an echo of node {from} in DIF {dif}: {output}")]
    NoEcho {
        /// Name of the node that does not answer.
        to: String,
        /// Name of the node that asked.
        from: String,
        /// Name of the network's DIF, over which the node does not answer.
        dif: String,
        /// Output of the command that asked.
        output: String,
    },
    /// This host does not support what was requested.
    #[error("{what}: {instead}")]
    Unsupported {
        /// The request that this host does not support.
        what: String,
        /// Why the request is not possible, and what is possible in its place.
        instead: &'static str,
    },
    /// The network has no such node.
    #[error("network {vnet} has no node {node}; it has: {known}")]
    NoNode {
        /// Name of the network that lacks the node.
        vnet: String,
        /// The name for which no node was found.
        node: String,
        /// The nodes of the network.
        known: String,
    },
    /// The node is stopped.
    #[error("node {0} is stopped; `carina vnet start {0}` starts it")]
    NodeStopped(String),
    /// The network has no such link.
    #[error("network {vnet} has no link {link}")]
    NoLink {
        /// Name of the network that lacks the link.
        vnet: String,
        /// The requested link number.
        link: u32,
    },
    /// A node has no such interface.
    #[error("node {node} has no interface {interface}")]
    NoInterface {
        /// Name of the node that lacks the interface.
        node: String,
        /// The name for which the node has no interface.
        interface: String,
    },
    /// An impairment of a link has a value out of range; holds what would be right.
    #[error("impairment: {0}")]
    Impairment(String),
    /// A network of this name exists already.
    #[error(
        "network {0} already exists: `carina vnet apply` changes it, `carina vnet down {0}` \
         removes it"
    )]
    Exists(String),
    /// There is no network of this name.
    #[error("this host has no network {name}; it has: {known}")]
    NoVnet {
        /// The name that no network has.
        name: String,
        /// The names of the existing networks, as a list in text.
        known: String,
    },
    /// Another client uses the named thing, such as a console, which only one client can use at a
    /// time.
    #[error("{0} is in use: another user is connected with write access")]
    Taken(&'static str),
    /// The agent has waited for an answer or an event in vain.
    #[error("{what} within {} s", limit.as_secs_f32())]
    Timeout {
        /// What did not happen within the limit, as text.
        what: String,
        /// How long the agent waited before it gave this error.
        limit: Duration,
    },
    /// The network does not fit on this host.
    #[error("network {vnet} does not fit: {reason}")]
    NotAdmitted {
        /// Name of the network that does not fit.
        vnet: String,
        /// The binding constraint, and what would fit.
        reason: String,
    },
    /// The network cannot be divided into parts.
    #[error(transparent)]
    Division(#[from] carina_vnet::division::DivisionError),
    /// A provider orders a part of a network that violates a rule.
    #[error("the part: {0}")]
    Part(#[from] carina_vnet::host_part::PartError),
    /// A provider has ordered this network; operators of this host cannot change it.
    #[error(
        "network {0} was ordered by a provider: change it at the provider (VNO), not on this host"
    )]
    OfProvider(String),
    /// A network cannot be restored.
    #[error(transparent)]
    Saved(Box<crate::saved_error::SavedError>),
    /// The register of an access point, or its keys, cannot be read or written.
    #[error(transparent)]
    Access(#[from] carina_vnet_access::register::RegisterError),
    /// The network has no such access point.
    #[error("network {vnet} has no access point {access} on this host; it has: {known}")]
    NoAccess {
        /// Name of the network that lacks the access point.
        vnet: String,
        /// The requested access point.
        access: String,
        /// The access points of the network.
        known: String,
    },
    /// No address is known at which users would reach this host.
    #[error("no address of this host is known that users could reach; give one with --at ADDRESS")]
    NoAddress,
    /// Two links would use the same tunnel.
    #[error("link {link}: network {other} has a tunnel with the same end addresses and tag")]
    TunnelTaken {
        /// Number of the link whose tunnel is taken.
        link: u32,
        /// The network that already uses the tunnel.
        other: String,
    },
    /// A change of a network has failed, or the virtual machine at an end of a probed link has
    /// ended; holds the reasons.
    #[error("the network is not ready: {0}")]
    NotReady(String),
    /// Nothing of the network is made yet; holds its name, or the access point that does not exist
    /// yet.
    #[error("network {0} is not created yet")]
    NotMade(String),
    /// The agent is ending and makes no more networks.
    #[error("the agent is ending because it has no network; try again, which starts another agent")]
    Ending,
    /// The network is being removed.
    #[error("the network is being removed")]
    Cancelled,
    /// A thread that does part of the work has ended.
    #[error("{0} has ended")]
    Ended(&'static str),
}

impl Error {
    /// Whether a retry on this host would fail again until the document or the host has changed.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Error::Image(error) => error.is_final(),
            Error::Limit(_) | Error::Unsupported { .. } | Error::Division(_) | Error::Part(_) => {
                true
            }
            _ => false,
        }
    }

    /// The node that the error is about; `None` if it is not about a single node.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Error::Limit(limit) => Some(limit.node()),
            Error::NodeCommand { node, .. } | Error::Start { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The state to report for a node that could not be made because of this error.
    #[must_use]
    pub fn state(&self) -> NodeState {
        let (reason, cause) = (self.to_string(), self.cause());
        if self.is_final() {
            NodeState::Refused { reason, cause }
        } else {
            NodeState::Failed { reason, cause }
        }
    }

    /// The class of the error, for operators who must not know this host.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Error::Image(error) if error.is_final() => Cause::Image,
            Error::Image(ImageError::Locked { .. }) => Cause::Silent,
            Error::Limit(limit) => limit.cause(),
            Error::NotAdmitted { .. } => Cause::Room,
            Error::Unsupported { .. } | Error::Division(_) | Error::Part(_) => Cause::Impossible,
            Error::NodeCommand { .. } | Error::Start { .. } => Cause::Configuration,
            Error::Timeout { .. } | Error::NoEcho { .. } => Cause::Silent,
            Error::Ended(_) => Cause::Ended,
            Error::Underlay(_) | Error::NoFlow { .. } | Error::TunnelTaken { .. } => Cause::Carrier,
            _ => Cause::Host,
        }
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Adds to an error what was attempted.
pub(crate) trait Attempt<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::System {
            what: what.into(),
            source,
        })
    }
}

impl<T> Attempt<T> for rustix::io::Result<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(io::Error::from).attempt(what)
    }
}

impl<T> Attempt<T> for std::result::Result<T, carina_vm::Error> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Vm {
            what: what.into(),
            source,
        })
    }
}

impl<T> Attempt<T> for serde_json::Result<T> {
    fn attempt(self, what: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Json {
            what: what.into(),
            source,
        })
    }
}
