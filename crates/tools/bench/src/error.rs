//! Why a bench could not measure.

use std::io;

use carina_measure::figure::FigureError;
use carina_measure::transport::TransportError;
use carina_measure::trial::TrialError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A node, a guest or a namespace.
    #[error(transparent)]
    Lab(#[from] carina_lab::Error),
    /// A namespace, or a process in it.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A measurement.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// A transport.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A figure of goodput.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A case of embedding that cannot be drawn.
    #[cfg(feature = "all")]
    #[error(transparent)]
    Case(#[from] carina_embed::cases::CaseError),
    /// An embedding that breaks a constraint of its request.
    #[cfg(feature = "all")]
    #[error("an embedding does not fit: {0}")]
    Misfit(#[from] carina_embed::residual::Misfit),
    /// Another figure.
    #[error("drawing {path}: {reason}")]
    Plot {
        /// The file.
        path: String,
        /// The reason of the back end.
        reason: String,
    },
    /// A figure of nothing.
    #[error("{0}: nothing was measured, so there is nothing to draw")]
    NothingToDraw(String),
    /// The system refused a call.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A flow or a registration.
    #[error("{what}: {source}")]
    Flow {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_client::Error,
    },
    /// The kernel of the guest.
    #[error("{what}: {source}")]
    Vm {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_vm::Error,
    },
    /// A name that an application or a DIF cannot have.
    #[error("{what}: {source}")]
    Name {
        /// What was to be named.
        what: String,
        /// What is wrong with the name.
        source: carina_api::NameError,
    },
    /// A request or a result in JSON.
    #[error("{what}: {source}")]
    Json {
        /// What was attempted.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A measurement in another system failed.
    #[error("{0}")]
    Client(String),
    /// `carina ping` to the guest failed.
    #[error("ping: {0}")]
    Ping(String),
    /// An answer differs from what was sent.
    #[error("{0} got another answer than its ping")]
    WrongAnswer(String),
    /// No answer came in time.
    #[error("{0}")]
    NoAnswer(String),
    /// SDUs were lost or damaged on a transport that loses none.
    #[error("{system}: {sdus} SDUs were lost or damaged")]
    Damaged {
        /// The system.
        system: String,
        /// How many.
        sdus: u64,
    },
    /// The nodes do not have the flows that were allocated.
    #[error("{wanted} flows are open, the nodes have {found:?}")]
    FlowsMissing {
        /// Flows that were allocated.
        wanted: usize,
        /// Flows of the two nodes.
        found: Option<[usize; 2]>,
    },
    /// The document of a virtual network.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Document {
        /// What was attempted.
        what: String,
        /// What is wrong with it.
        source: carina_vnet::document::DocumentError,
    },
    /// Keys of roles of virtual networks.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Keys {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_vnet_roles::keys::KeyError,
    },
    /// A call of a role of virtual networks.
    #[cfg(feature = "all")]
    #[error("{what}: {source}")]
    Call {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_vnet_roles::calling::connection::CallError,
    },
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A graph of apps, or its pool.
    #[error("{0}")]
    Graph(String),
    /// `/proc` does not have a value.
    #[error("{0}")]
    Proc(String),
    /// The limit of open files is too low; nothing was tried.
    #[error(
        "a process may open {limit} files here; {flows} flows need one each and {beside} beside \
             (the hard limit, ulimit -Hn)"
    )]
    FileLimit {
        /// The limit.
        limit: u64,
        /// Flows that were asked for.
        flows: usize,
        /// Open files beside those of flows.
        beside: usize,
    },
    /// An error with the case in which it happened.
    #[error("{case}: {source}")]
    In {
        /// The case.
        case: String,
        /// The error.
        source: Box<Error>,
    },
    /// An error with more about it, such as the ends of logs.
    #[error("{source}\n{context}")]
    With {
        /// The error.
        source: Box<Error>,
        /// More about it.
        context: String,
    },
}

impl Error {
    /// This error with more about it, such as the ends of logs.
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
    /// `what` is shown before the reason.
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
