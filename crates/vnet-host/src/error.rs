//! Why something of a network cannot be made, reached or removed.

use std::io;
use std::time::Duration;

use carina_apps::runner::RunnerError;
use carina_engine::frames::{ConfigureError, GraphError};

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
    Lab(#[from] carina_lab::Error),
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
    /// There is no such link.
    #[error("network {vnet} has no link {link}")]
    NoLink {
        /// The network.
        vnet: String,
        /// The number.
        link: u32,
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
    #[error("{0} is taken by another, who has it longer")]
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
    /// Two links would have the same tunnel.
    #[error("link {link}: network {other} has a tunnel of the same ends and tag")]
    TunnelTaken {
        /// The link.
        link: u32,
        /// The network that has it.
        other: String,
    },
    /// Nothing of a network is there yet.
    #[error("network {0} is not made yet")]
    NotMade(String),
    /// The network is being removed.
    #[error("the network is being removed")]
    Cancelled,
    /// A thread that does a part of the work has ended.
    #[error("{0} has ended")]
    Ended(&'static str),
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
