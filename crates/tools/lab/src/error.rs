//! Why a lab could not be made, reached or removed.

use std::io;
use std::time::Duration;

use carina_api::NameError;
use carina_api::control::ClientError;

use carina_topology::LoadError;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A topology cannot be read.
    #[error("{what}: {source}")]
    Topology {
        /// What was attempted.
        what: String,
        /// The place in the file, and what would be right.
        source: LoadError,
    },
    /// A namespace, or a process in it.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A guest that is reached, or a command in it.
    #[error(transparent)]
    Guest(#[from] carina_vm::Error),
    /// A file or a process of this system.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
    /// The system refused a call.
    #[error("{what}: {source}")]
    Errno {
        /// What was attempted.
        what: String,
        /// The system's reason.
        source: rustix::io::Errno,
    },
    /// A node did not answer, or refused.
    #[error("{what}: {source}")]
    Node {
        /// What was attempted.
        what: String,
        /// The node's reason.
        source: ClientError,
    },
    /// A guest, its image or its QEMU.
    #[error("{what}: {source}")]
    Vm {
        /// What was attempted.
        what: String,
        /// The reason.
        source: carina_vm::Error,
    },
    /// A record or an answer in JSON.
    #[error("{what}: {source}")]
    Json {
        /// What was attempted.
        what: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A name that an application, a DIF or a VM cannot have.
    #[error("{what}: {source}")]
    Name {
        /// What was to be named.
        what: String,
        /// What is wrong with the name.
        source: NameError,
    },
    /// A program ran and failed.
    #[error("{command}: {said}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The node in a guest has not attached to that of its host.
    #[error("the node in VM {0} has not attached; see /var/log/carina.log in it")]
    GuestNotAttached(String),
    /// The kernel does not let this user make namespaces.
    #[error(
        "{0}: network namespaces are not allowed here; root in a container needs \
             CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NamespacesForbidden(String),
    /// A namespace that a new lab needs is there and belongs to no lab.
    #[error(
        "there is a network namespace {namespace} that no lab knows; `carina lab down {lab}` \
             removes it"
    )]
    StrayNamespace {
        /// The namespace.
        namespace: String,
        /// The lab that needs the name.
        lab: String,
    },
    /// A lab of this name exists.
    #[error(
        "there is a lab {0} already; `carina lab down {0}` takes it down, --name gives this \
             one another name"
    )]
    LabExists(String),
    /// No lab has this name.
    #[error("no lab is called {name}; {}", known(.labs))]
    NoSuchLab {
        /// The name.
        name: String,
        /// The names of the labs that are up.
        labs: Vec<String>,
    },
    /// No lab is up.
    #[error("no lab is up")]
    NoLab,
    /// Several labs are up, and none was named.
    #[error("name the lab; {}", known(.0))]
    WhichLab(Vec<String>),
    /// The topology has no such system that is a namespace.
    #[error("{0} is no system that is a namespace")]
    NotANamespace(String),
    /// An empty command.
    #[error("no program is given")]
    NoProgram,
    /// A process ended that should run.
    #[error("{0} has ended")]
    Ended(String),
    /// An application ended before its name was registered.
    #[error("`{command}` has ended; waited for {what}")]
    AppEnded {
        /// The application.
        command: String,
        /// What was awaited.
        what: String,
    },
    /// A node has no member of a DIF.
    #[error("{system} has no member of {dif}")]
    NoMember {
        /// The system of the node.
        system: String,
        /// The DIF.
        dif: String,
    },
    /// The node runs in the network namespace of this process and has none of its own.
    #[error("{0} has no network namespace of its own")]
    NoNamespace(String),
    /// The member of a DIF is gone.
    #[error("{0} is gone")]
    MemberGone(String),
    /// [`Options::is_interrupted`](crate::Options::is_interrupted) was set.
    #[error("interrupted")]
    Interrupted,
    /// Something was not so in time.
    #[error("waited {limit:?} for {what}")]
    Timeout {
        /// What was awaited.
        what: String,
        /// For how long.
        limit: Duration,
    },
    /// An error with what the processes involved have said.
    #[error("{source}{context}")]
    With {
        /// The error.
        source: Box<Error>,
        /// More about it, such as the ends of logs.
        context: String,
    },
}

impl Error {
    /// This error with more about it, such as the ends of logs. An interruption needs no more.
    #[must_use]
    pub fn with(self, context: impl Into<String>) -> Self {
        match self {
            Self::Interrupted => self,
            error => Self::With {
                source: Box::new(error),
                context: context.into(),
            },
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
    rustix::io::Errno => Errno,
    ClientError => Node,
    carina_vm::Error => Vm,
    serde_json::Error => Json,
    NameError => Name,
    LoadError => Topology
);

fn known(labs: &[String]) -> String {
    if labs.is_empty() {
        "no lab is up".to_owned()
    } else {
        format!("there are: {}", labs.join(", "))
    }
}
