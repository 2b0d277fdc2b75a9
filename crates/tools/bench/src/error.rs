//! Errors of benchmarks.

use std::io;

use carina_measure::figure::FigureError;
use carina_measure::transport::TransportError;
use carina_measure::trial::TrialError;

/// Why a benchmark or a demonstration could not be carried out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node, or a guest attached to one, failed.
    #[error(transparent)]
    Lab(#[from] carina_lab::Error),
    /// A namespace, or a process in it, failed.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A temporary directory could not be made.
    #[error(transparent)]
    Scratch(#[from] carina_scratch::ScratchError),
    /// A measurement between a client and a server failed.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// What carries the SDUs of a measurement failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A figure of goodput could not be drawn.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A case of embedding cannot be drawn.
    #[cfg(feature = "all")]
    #[error(transparent)]
    Case(#[from] carina_embed::cases::CaseError),
    /// An embedding violates a constraint of its request.
    #[cfg(feature = "all")]
    #[error("an embedding does not fit: {0}")]
    Misfit(#[from] carina_embed::residual::Misfit),
    /// The drawing library could not draw a figure.
    #[error("drawing {path}: {reason}")]
    Plot {
        /// Path of the figure's file that could not be drawn.
        path: String,
        /// Error of the drawing library.
        reason: String,
    },
    /// There are no values for a figure.
    #[error("{0}: nothing was measured, so there is nothing to draw")]
    NothingToDraw(String),
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// The error of the refused call.
        source: io::Error,
    },
    /// A request for a flow or a registration of a name failed.
    #[error("{what}: {source}")]
    Flow {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// The error of the client library.
        source: carina_client::Error,
    },
    /// The guest's kernel could not be obtained.
    #[error("{what}: {source}")]
    Vm {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// Why the VM does not work.
        source: carina_vm::Error,
    },
    /// The name of an application or a DIF is not well formed.
    #[error("{what}: {source}")]
    Name {
        /// What the name was to be used for, as text.
        what: String,
        /// What is wrong with the name of the application or DIF.
        source: carina_api::NameError,
    },
    /// A request or a result is not valid JSON.
    #[error("{what}: {source}")]
    Json {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// What is wrong with the JSON.
        source: serde_json::Error,
    },
    /// A measurement in another system failed.
    #[error("{0}")]
    Client(String),
    /// `carina ping` to the guest failed.
    #[error("ping: {0}")]
    Ping(String),
    /// The answer to a request differs from the request.
    #[error("{0} received an answer that differs from its ping")]
    WrongAnswer(String),
    /// No answer came in time.
    #[error("{0}")]
    NoAnswer(String),
    /// SDUs were lost or damaged on a transport that loses none.
    #[error("{system}: {sdus} SDUs were lost or damaged")]
    Damaged {
        /// Name of the measured system that lost or damaged SDUs.
        system: String,
        /// Number of lost and damaged SDUs.
        sdus: u64,
    },
    /// The nodes do not have as many flows as were allocated.
    #[error("{wanted} flows are open, but the nodes count {found:?}")]
    FlowsMissing {
        /// Number of flows that were allocated.
        wanted: usize,
        /// Number of flows at each of the two nodes; `None` if a node does not answer.
        found: Option<[usize; 2]>,
    },
    /// The document of a virtual network is wrong.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Document {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// What is wrong with the document.
        source: carina_vnet::document::DocumentError,
    },
    /// Keys of roles of virtual networks could not be made or read.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Keys {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// Why the keys could not be made or read.
        source: carina_vnet_roles::keys::KeyError,
    },
    /// A request to a role of virtual networks failed.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Call {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// Why the request failed.
        source: carina_vnet_roles::calling::connection::CallError,
    },
    /// SIGINT or SIGTERM ended the benchmark.
    #[error("interrupted")]
    Interrupted,
    /// A graph of apps, or its pool, could not be made.
    #[error("{0}")]
    Graph(String),
    /// A value is missing in `/proc`.
    #[error("{0}")]
    Proc(String),
    /// The limit of open files is too low, so the benchmark was not started.
    #[error(
        "a process may open {limit} files (the hard limit, ulimit -Hn), but {flows} flows need \
         one each, and {beside} more"
    )]
    FileLimit {
        /// The hard limit of open files of a process (`ulimit -Hn`).
        limit: u64,
        /// Number of flows that the benchmark was to open.
        flows: usize,
        /// Number of files that are open in addition to the files of flows.
        beside: usize,
    },
    /// A member of `carina ip` does not start.
    #[cfg(feature = "all")]
    #[error(transparent)]
    Member(#[from] carina_ip::IpError),
    /// A network interface cannot be made.
    #[cfg(feature = "all")]
    #[error(transparent)]
    Interface(#[from] carina_netdev::NetdevError),
    /// An error, with the name of the case in which it happened.
    #[error("{case}: {source}")]
    In {
        /// Name of the case in which the error happened.
        case: String,
        /// The error that happened in the case.
        source: Box<Error>,
    },
    /// An error with more context.
    #[error("{source}\n{context}")]
    With {
        /// The error without the context.
        source: Box<Error>,
        /// The context, such as the last lines of logs.
        context: String,
    },
}

impl Error {
    /// Adds context to this error, such as the last lines of logs.
    #[must_use]
    pub fn with(self, context: impl Into<String>) -> Self {
        Self::With {
            source: Box::new(self),
            context: context.into(),
        }
    }

    pub(crate) fn in_case(self, case: impl Into<String>) -> Self {
        Self::In {
            case: case.into(),
            source: Box::new(self),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was attempted to an error of another crate.
pub(crate) trait Attempt<T> {
    /// `what` was attempted; it is printed before the reason.
    fn attempt(self, what: impl Into<String>) -> Result<T>;
}

macro_rules! attempts {
    ($($source:ty => $variant:ident),*) => {$(
        impl<T> Attempt<T> for std::result::Result<T, $source> {
            fn attempt(self, what: impl Into<String>) -> Result<T> {
                self.map_err(|source| Error::$variant { what: what.into(), source })
            }
        }
    )*};
}

attempts!(
    io::Error => System,
    carina_client::Error => Flow,
    carina_vm::Error => Vm,
    carina_api::NameError => Name,
    serde_json::Error => Json
);

#[cfg(feature = "all")]
attempts!(
    carina_vnet::document::DocumentError => Document,
    carina_vnet_roles::keys::KeyError => Keys,
    carina_vnet_roles::calling::connection::CallError => Call
);
