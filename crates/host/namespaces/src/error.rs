//! Errors of creating, reaching and removing namespaces and processes.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

/// Why an operation on a namespace or a process of this host failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operation on a file or process failed.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed, as a phrase for people.
        what: String,
        /// Why the operating system refused the operation.
        source: io::Error,
    },
    /// A program ended with an exit status other than 0.
    #[error("{command}: {stderr}")]
    Command {
        /// The program and its arguments.
        command: String,
        /// Text that the program wrote to standard error.
        stderr: String,
    },
    /// The kernel does not allow this user to create a user namespace.
    #[error(
        "an ordinary user needs user namespaces to make network namespaces, and this system does \
             not allow them ({0}): run the command as root, or allow them \
             (sysctl kernel.unprivileged_userns_clone=1, \
             kernel.apparmor_restrict_unprivileged_userns=0)"
    )]
    UserNamespacesForbidden(String),
    /// The system does not allow a private network namespace with taps.
    #[error(
        "no network namespaces with taps can be made here: run as root, or allow user \
             namespaces"
    )]
    PrivateForbidden,
    /// A child process that should keep running has ended.
    #[error("{what} ended at once: {status}")]
    ChildEnded {
        /// Name of the child.
        what: String,
        /// Exit status of the child.
        status: ExitStatus,
    },
    /// A program did not end within its time limit.
    #[error("waited {limit:?} for {what} to end: {stderr}")]
    RunsOn {
        /// Name of the program.
        what: String,
        /// The time limit of the program.
        limit: Duration,
        /// Text that the program wrote to standard error until then.
        stderr: String,
    },
    /// No process has this pid.
    #[error("there is no process {0}")]
    NoProcess(u32),
}

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the attempted operation to an error of the system.
pub(crate) trait Attempt<T> {
    /// Adds `what`, which is shown before the reason.
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
