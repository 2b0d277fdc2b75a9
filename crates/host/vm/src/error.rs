//! Errors of guests, with a hint how to fix them.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why an operation on a virtual machine, its guest or its files failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program of the host is missing.
    #[error(
        "{program} is not installed; it is in the package {package}: \
         apt-get install --no-install-recommends {package}"
    )]
    Missing {
        /// The program that was not found.
        program: String,
        /// The Debian and Ubuntu package that contains it.
        package: &'static str,
    },
    /// A file or socket operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// Path of the file on which the operation failed.
        path: PathBuf,
        /// Why the operating system refused the operation.
        source: std::io::Error,
    },
    /// A program of the host failed.
    #[error("{command} failed: {detail}")]
    Command {
        /// The program and its arguments, such as `qemu-img info disk.qcow2`.
        command: String,
        /// The program's exit status and the last lines of its standard error, or why it did not
        /// start.
        detail: String,
    },
    /// The description of a machine has a value that cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// Name of the unusable value.
        what: String,
        /// What is wrong with the value, and what would be right.
        reason: String,
    },
    /// Something that Carina awaits of a machine did not happen within the time limit.
    #[error("machine {name}: no {awaited} within {seconds} s{hint}")]
    Timeout {
        /// Name of the machine that is too slow.
        name: String,
        /// What the machine did not do in time, as text.
        awaited: String,
        /// The time limit in seconds.
        seconds: u64,
        /// A hint where to look; may be empty.
        hint: String,
    },
    /// The guest's kernel has panicked.
    #[error("machine {name}: the guest's kernel panicked: {panic}{hint}")]
    Panicked {
        /// Name of the machine whose guest has panicked.
        name: String,
        /// The kernel's message after "Kernel panic".
        panic: String,
        /// A hint what would help; may be empty.
        hint: String,
    },
    /// The machine's QEMU has ended.
    #[error("machine {name}: QEMU has ended ({status}): {detail}")]
    Ended {
        /// Name of the machine whose QEMU has ended.
        name: String,
        /// QEMU's exit status.
        status: String,
        /// Text that QEMU wrote to standard error.
        detail: String,
    },
    /// QEMU refused a QMP command, or did not answer in QMP.
    #[error("QMP: {0}")]
    Qmp(String),
    /// The guest's answer on the command port was invalid, or an operation in the guest failed.
    #[error("guest: {0}")]
    Guest(String),
    /// A running machine was not found, or the connection to it failed.
    #[error("reaching VM {vm}: {source}")]
    Unreachable {
        /// Name of the VM that was to be reached.
        vm: String,
        /// Why the VM is not reached.
        source: Box<Error>,
    },
    /// No machine of this name is running.
    #[error("no VM {0} started by Carina runs here")]
    NoMachine(String),
    /// A guest does not answer.
    #[error("VM {vm}: {what}: {}", if *is_closed {
        "it has ended, or another process talks to it".to_owned()
    } else {
        format!("no answer within {} s", limit.as_secs_f32())
    })]
    Silent {
        /// Name of the VM whose guest does not answer.
        vm: String,
        /// The request to the guest, as text.
        what: String,
        /// Whether the connection was closed; otherwise the time limit has passed.
        is_closed: bool,
        /// The time limit for the answer.
        limit: Duration,
    },
    /// A command in a guest failed.
    #[error("in VM {vm}: `{command}` ended with {status}: {stderr}")]
    GuestCommand {
        /// Name of the VM in which the command ran.
        vm: String,
        /// The command that failed in the guest.
        command: String,
        /// The command's exit status.
        status: i32,
        /// What the command wrote to standard error.
        stderr: String,
    },
}

/// The result of this crate's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Adds an action and a path to an `io::Error`.
pub(crate) trait Context<T> {
    /// Adds the action (a verb) and the path that it was for.
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
