//! What can go wrong with a guest, said so that it can be put right.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program of the host is missing.
    #[error(
        "{program} is not installed; it is in the package {package}: \
         apt-get install --no-install-recommends {package}"
    )]
    Missing {
        /// The program that was looked for.
        program: String,
        /// The Debian and Ubuntu package that holds it.
        package: &'static str,
    },
    /// A file or socket operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A program of the host ran and failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// The command line, shortened.
        command: String,
        /// Its last words.
        detail: String,
    },
    /// A value that was asked for cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// Which value.
        what: String,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A machine did not do in time what was awaited.
    #[error("machine {name}: no {awaited} within {seconds} s{hint}")]
    Timeout {
        /// The machine.
        name: String,
        /// What was awaited.
        awaited: String,
        /// For how long, in seconds.
        seconds: u64,
        /// Where to look, or empty.
        hint: String,
    },
    /// The guest's kernel has stopped for good.
    #[error("machine {name}: the guest's kernel panicked: {panic}{hint}")]
    Panicked {
        /// The machine.
        name: String,
        /// What the kernel said, after "Kernel panic".
        panic: String,
        /// What would help, where that is known.
        hint: String,
    },
    /// QEMU has ended.
    #[error("machine {name}: QEMU has ended ({status}): {detail}")]
    Ended {
        /// The machine.
        name: String,
        /// The exit status.
        status: String,
        /// What it wrote to standard error.
        detail: String,
    },
    /// QEMU refused a QMP command, or spoke no QMP.
    #[error("QMP: {0}")]
    Qmp(String),
    /// The guest's answer on the command port could not be understood.
    #[error("guest: {0}")]
    Guest(String),
    /// A running machine cannot be found or connected to.
    #[error("reaching VM {vm}: {source}")]
    Unreachable {
        /// The VM.
        vm: String,
        /// Why.
        source: Box<Error>,
    },
    /// No machine of this name runs.
    #[error("no VM {0} started by Carina runs here")]
    NoMachine(String),
    /// A guest does not answer.
    #[error("VM {vm}: {what}: {}", if *is_closed {
        "it has ended, or another process talks to it".to_owned()
    } else {
        format!("no answer within {} s", limit.as_secs_f32())
    })]
    Silent {
        /// The VM.
        vm: String,
        /// What was attempted.
        what: String,
        /// The connection was closed; it timed out otherwise.
        is_closed: bool,
        /// How long the answer was waited for.
        limit: Duration,
    },
    /// A command in a guest failed.
    #[error("in VM {vm}: `{command}` ended with {status}: {said}")]
    GuestCommand {
        /// The VM.
        vm: String,
        /// The command.
        command: String,
        /// Its exit status.
        status: i32,
        /// What it wrote to standard error.
        said: String,
    },
}

/// The result of this crate's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Gives an `io::Error` its action and its path.
pub(crate) trait Context<T> {
    /// Names what was tried (a verb) and on what.
    fn context(self, action: &'static str, path: &Path) -> Result<T>;
}

impl<T> Context<T> for std::io::Result<T> {
    fn context(self, action: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io {
            action,
            path: path.to_owned(),
            source,
        })
    }
}
