//! Errors of making, reaching and removing labs.

use std::io;
use std::time::Duration;

use carina_api::NameError;
use carina_api::control::ClientError;

use carina_topology::LoadError;

/// Why a lab could not be loaded, made, used or removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A topology cannot be loaded.
    #[error("{what}: {source}")]
    Topology {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// Position in the file, and what would be right.
        source: LoadError,
    },
    /// A network namespace, or a process in one, failed.
    #[error(transparent)]
    Host(#[from] carina_namespaces::Error),
    /// A temporary directory could not be made.
    #[error(transparent)]
    Scratch(#[from] carina_scratch::ScratchError),
    /// A guest cannot be reached, or a command in it failed.
    #[error(transparent)]
    Guest(#[from] carina_vm::Error),
    /// A file or a process of this system failed.
    #[error("{what}: {source}")]
    System {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// The error of the failed operation.
        source: io::Error,
    },
    /// The system refused a call.
    #[error("{what}: {source}")]
    Errno {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// The error of the refused call.
        source: rustix::io::Errno,
    },
    /// A node did not answer, or refused.
    #[error("{what}: {source}")]
    Node {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// The error of the node's client.
        source: ClientError,
    },
    /// A guest, its image or its QEMU failed.
    #[error("{what}: {source}")]
    Vm {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// Why the VM does not work.
        source: carina_vm::Error,
    },
    /// A record or an answer is not valid JSON.
    #[error("{what}: {source}")]
    Json {
        /// The action that failed, as text, such as "starting QEMU".
        what: String,
        /// What is wrong with the JSON.
        source: serde_json::Error,
    },
    /// The name of an application, DIF or VM is not well formed.
    #[error("{what}: {source}")]
    Name {
        /// What the name was to be used for, as text.
        what: String,
        /// What is wrong with the name of the application, DIF or VM.
        source: NameError,
    },
    /// A program ran and failed.
    #[error("{command}: {reason}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// What the program wrote to standard error, or why it was killed.
        reason: String,
    },
    /// The node in this guest has not attached to its host's node.
    #[error(
        "the node in VM {0} did not attach to its host's node; see /var/log/carina.log in the VM"
    )]
    GuestNotAttached(String),
    /// The kernel does not let this user make namespaces.
    #[error(
        "{0}: network namespaces are not allowed here; root in a container needs \
             CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )]
    NamespacesForbidden(String),
    /// A namespace with a name that a new lab needs exists already, and belongs to no lab.
    #[error(
        "network namespace {namespace} exists, but belongs to no lab; `carina lab down {lab}` \
         removes it"
    )]
    StrayNamespace {
        /// Name of the network namespace that exists already.
        namespace: String,
        /// Name of the new lab, one of whose systems or its links need a namespace of this name.
        lab: String,
    },
    /// A lab of this name exists.
    #[error(
        "lab {0} already exists; remove it with `carina lab down {0}`, or give the new lab \
         another name with --name"
    )]
    LabExists(String),
    /// No lab has the given name.
    #[error("there is no lab {name}; {}", known(.labs))]
    NoSuchLab {
        /// The name that no lab has.
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
    /// The topology has no such system, or the system is not a namespace.
    #[error("{0} is not a system of the lab that runs in a network namespace")]
    NotANamespace(String),
    /// The command to run has no words.
    #[error("no program is given")]
    NoProgram,
    /// A process that should run has ended.
    #[error("{0} has ended")]
    Ended(String),
    /// An application ended before its name was registered.
    #[error("`{command}` ended while the lab waited for {what}")]
    AppEnded {
        /// Shell command of the application that ended.
        command: String,
        /// What the lab was waiting for.
        what: String,
    },
    /// The node of a system has no member of a DIF.
    #[error("{system} has no member of {dif}")]
    NoMember {
        /// Name of the system whose node has no member of the DIF.
        system: String,
        /// Name of the DIF of which the node has no member.
        dif: String,
    },
    /// The node shares the network namespace of this process, so it has none of its own.
    #[error("{0} has no network namespace of its own")]
    NoNamespace(String),
    /// The member of a DIF no longer exists.
    #[error("the member of {0} no longer exists")]
    MemberGone(String),
    /// [`Options::is_interrupted`](crate::Options::is_interrupted) was set.
    #[error("interrupted")]
    Interrupted,
    /// A condition did not become true in time.
    #[error("waited {limit:?} for {what}")]
    Timeout {
        /// The condition, as text.
        what: String,
        /// The time limit that has passed.
        limit: Duration,
    },
    /// An error with more context.
    #[error("{source}{context}")]
    With {
        /// The error without the context.
        source: Box<Error>,
        /// The context, such as the last lines of logs.
        context: String,
    },
}

impl Error {
    /// Adds context to this error, such as the last lines of logs. An interruption gets no context.
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
