//! Why a namespace or a process cannot be made, reached or removed.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

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
    /// A program ran and failed.
    #[error("{command}: {said}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The kernel does not let this user make a user namespace.
    #[error(
        "an ordinary user needs user namespaces to make a lab, and they are not allowed \
             here ({0}): run it as root, or allow them \
             (sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    UserNamespacesForbidden(String),
    /// The system allows no private network namespace with taps.
    #[error(
        "no network namespaces with taps can be made here: run as root, or allow user \
             namespaces"
    )]
    PrivateForbidden,
    /// A child process ended that should run.
    #[error("{what} ended at once: {status}")]
    ChildEnded {
        /// The child.
        what: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// A program did not end in time.
    #[error("waited {limit:?} for {what} to end: {said}")]
    RunsOn {
        /// The program.
        what: String,
        /// For how long it was waited for.
        limit: Duration,
        /// What it wrote to standard error.
        said: String,
    },
    /// A process has no entry in `/proc`.
    #[error("there is no process {0}")]
    NoProcess(u32),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds what was attempted to an error of the system.
pub(crate) trait Attempt<T> {
    /// `what` is shown before the reason.
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
