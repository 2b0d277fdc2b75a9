//! Why something of a network cannot be made, reached or removed.

use std::io;
use std::time::Duration;

use carina_apps::runner::RunnerError;
use carina_frame_engine::{ConfigureError, GraphError};
use carina_vnet::host_part::{Cause, LimitError, NodeState};

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or a process of this system.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A namespace, a link or a program.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A running guest that is reached, or a command in it.
    #[error(transparent)]
    Guest(#[from] carina_vm::Error),
    /// A guest, its image or its QEMU.
    #[error("{what}: {source}")]
    Vm {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_vm::Error,
    },
    /// The interface over which links leave this host.
    #[error("the underlay: {0}")]
    Underlay(carina_netdev::NetdevError),
    /// The engine's part of the links.
    #[error("the graph of the links: {0}")]
    Graph(#[from] GraphError),
    /// The engine refuses the graph of the links.
    #[error("the graph of the links: {0}")]
    Configure(#[from] ConfigureError),
    /// The engine does not run.
    #[error("the engine: {0}")]
    Runner(#[from] RunnerError),
    /// A record cannot be read or written.
    #[error("{what}: {source}")]
    Json {
        /// What was attempted.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A configuration command fails inside a node.
    #[error("node {node}: `{command}` has failed with status {status}: {said}")]
    NodeCommand {
        /// The node.
        node: String,
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it said.
        said: String,
    },
    /// A node that this host can never make.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// There is no such image.
    #[error(
        "there is no image {name:?} here; there are: {known}; `carina vnet image add` adds one"
    )]
    NoImage {
        /// The name.
        name: String,
        /// The images that there are.
        known: String,
    },
    /// What is to become an image cannot be one.
    #[error("image {name:?}: {reason}")]
    ImageRefused {
        /// The name.
        name: String,
        /// Why.
        reason: String,
    },
    /// An image is the ground of a node's disk.
    #[error("image {name:?} is in use: node {user} has its disk over it")]
    ImageInUse {
        /// The name.
        name: String,
        /// The network and the node.
        user: String,
    },
    /// A program of this host that is missing or fails.
    #[error("{what}: {said}")]
    Tool {
        /// What was attempted.
        what: String,
        /// What it said.
        said: String,
    },
    /// The agent of another host refuses.
    #[error("host {host}: {reason}")]
    Peer {
        /// The host.
        host: String,
        /// Why.
        reason: String,
    },
    /// A node comes that no order says is to come.
    #[error("node {0} is not awaited here, or not from there")]
    NotAwaited(String),
    /// A link that is to be a flow of a DIF has not become one.
    #[error("link {link} is no flow at {node}: {reason}")]
    NoFlow {
        /// The link.
        link: u32,
        /// The node.
        node: String,
        /// Why not.
        reason: String,
    },
    /// A name in the DIF of a network does not answer.
    #[error("{to} has not answered {from} in DIF {dif}: {said}")]
    NoEcho {
        /// Who was asked.
        to: String,
        /// Who asked.
        from: String,
        /// The DIF.
        dif: String,
        /// What was said instead.
        said: String,
    },
    /// Something that is not possible on this host.
    #[error("{what}: {instead}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not, and what is possible.
        instead: &'static str,
    },
    /// There is no such node.
    #[error("network {vnet} has no node {node}; it has: {known}")]
    NoNode {
        /// The network.
        vnet: String,
        /// The node.
        node: String,
        /// The nodes that there are.
        known: String,
    },
    /// A node is stopped.
    #[error("node {0} is stopped; `carina vnet start {0}` starts it")]
    NodeStopped(String),
    /// There is no such link.
    #[error("network {vnet} has no link {link}")]
    NoLink {
        /// The network.
        vnet: String,
        /// The number.
        link: u32,
    },
    /// A node has no such interface.
    #[error("node {node} has no interface {interface}")]
    NoInterface {
        /// The node.
        node: String,
        /// The interface.
        interface: String,
    },
    /// A link cannot be impaired so.
    #[error("impairment: {0}")]
    Impairment(String),
    /// A network of this name is there already.
    #[error("network {0} is there already: change it, or remove it first")]
    Exists(String),
    /// There is no such network.
    #[error("there is no network {name} here; there are: {known}")]
    NoVnet {
        /// The name.
        name: String,
        /// The networks that there are.
        known: String,
    },
    /// Another client has what there is one of.
    #[error("{0} is taken by another, who types there")]
    Taken(&'static str),
    /// Nothing has answered in time.
    #[error("{what} within {} s", limit.as_secs_f32())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// A network does not fit on this host.
    #[error("network {vnet} does not fit: {reason}")]
    NotAdmitted {
        /// The network.
        vnet: String,
        /// What binds, and what would fit.
        reason: String,
    },
    /// A network cannot be divided into parts.
    #[error(transparent)]
    Division(#[from] carina_vnet::division::DivisionError),
    /// A part that a provider has handed over cannot be made.
    #[error("the part: {0}")]
    Part(#[from] carina_vnet::host_part::PartError),
    /// A part that a provider has handed over is not for operators of this host.
    #[error("network {0} is a part of one that a provider has handed over: it is changed there")]
    OfProvider(String),
    /// A network cannot be restored.
    #[error(transparent)]
    Saved(Box<crate::saved_error::SavedError>),
    /// The register of an access point, or its keys.
    #[error(transparent)]
    Access(#[from] carina_vnet_access::register::RegisterError),
    /// There is no such access point.
    #[error("network {vnet} has no access point {access} on this host; it has: {known}")]
    NoAccess {
        /// The network.
        vnet: String,
        /// The access point.
        access: String,
        /// The access points that there are.
        known: String,
    },
    /// No address is known at which users would find this host.
    #[error("this host has no address that users could reach; say one with --at ADDRESS")]
    NoAddress,
    /// Two links would have the same tunnel.
    #[error("link {link}: network {other} has a tunnel of the same ends and tag")]
    TunnelTaken {
        /// The link.
        link: u32,
        /// The network that has it.
        other: String,
    },
    /// A change of a network has not led to what is wanted.
    #[error("it is not ready: {0}")]
    NotReady(String),
    /// Nothing of a network is there yet.
    #[error("network {0} is not made yet")]
    NotMade(String),
    /// The agent makes no networks any more.
    #[error("the agent is ending, as it had no network: ask again, and the next one answers")]
    Ending,
    /// The network is being removed.
    #[error("the network is being removed")]
    Cancelled,
    /// A thread that does a part of the work has ended.
    #[error("{0} has ended")]
    Ended(&'static str),
}

impl Error {
    /// Whether the same attempt on this host fails each time, until the document or the host is
    /// another.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Error::Limit(_)
                | Error::NoImage { .. }
                | Error::ImageRefused { .. }
                | Error::Unsupported { .. }
                | Error::Division(_)
                | Error::Part(_)
        )
    }

    /// The node that it is about, if it is one.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        match self {
            Error::Limit(limit) => Some(limit.node()),
            Error::NodeCommand { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The state of a node that could not be made for this.
    #[must_use]
    pub fn state(&self) -> NodeState {
        let (reason, cause) = (self.to_string(), self.cause());
        if self.is_final() {
            NodeState::Refused { reason, cause }
        } else {
            NodeState::Failed { reason, cause }
        }
    }

    /// Of what kind it is, for those who must not know this host.
    #[must_use]
    pub fn cause(&self) -> Cause {
        match self {
            Error::NoImage { .. } | Error::ImageRefused { .. } => Cause::Image,
            Error::Limit(limit) => limit.cause(),
            Error::NotAdmitted { .. } => Cause::Room,
            Error::Unsupported { .. } | Error::Division(_) | Error::Part(_) => Cause::Impossible,
            Error::NodeCommand { .. } => Cause::Configuration,
            Error::Timeout { .. } | Error::NoEcho { .. } => Cause::Silent,
            Error::Ended(_) => Cause::Ended,
            Error::Underlay(_) | Error::NoFlow { .. } | Error::TunnelTaken { .. } => Cause::Carrier,
            _ => Cause::Host,
        }
    }
}

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was attempted.
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
