//! What can go wrong between an application and its node.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use carina_api::ErrorBody;

/// Why a call of this library failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing listens on the node's socket.
    #[error("no node answers at {path}: {source}{}", advice(source))]
    NoNode {
        /// The socket that was tried.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The node understood the request and refused it.
    #[error("the node refused: {}", .0.message)]
    Refused(ErrorBody),
    /// The node ended while the call was under way, or the flow's node has died.
    #[error("the node has ended, or has closed the connection")]
    NodeGone,
    /// The node has the request and does not answer: it is stopped, stuck or very busy.
    #[error("the node has not answered {asked} within {} s; it is stopped, stuck or very busy", limit.as_secs_f32())]
    NoAnswer {
        /// What was asked.
        asked: &'static str,
        /// How long the answer was waited for.
        limit: Duration,
    },
    /// The remote application closed the flow; every SDU that it sent has been received.
    #[error("the remote application closed the flow")]
    Closed,
    /// The flow broke: its peer died, the link below failed, or the node tore it down.
    #[error("the flow failed: {reason}")]
    FlowFailed {
        /// What the node said, or what was wrong in the shared memory.
        reason: String,
    },
    /// An SDU is larger than the flow carries, or than the buffer it was to be received into. A
    /// received SDU that was too large is gone: its beginning is in the buffer, the rest is not
    /// kept.
    #[error("an SDU of {len} bytes where at most {max} bytes fit")]
    SduTooLarge {
        /// Length of the SDU in bytes.
        len: u64,
        /// What would have fitted, in bytes.
        max: u64,
    },
    /// `try_send` had begun an SDU and was then called with another one.
    #[error("an SDU of {expected} bytes is half sent and must be finished first, not one of {got}")]
    Unfinished {
        /// Length in bytes of the SDU that is under way.
        expected: usize,
        /// Length in bytes of the SDU that was given instead.
        got: usize,
    },
    /// The node said something that the protocol of `ipc.sock` does not allow.
    #[error("the node broke the protocol of ipc.sock: {0}")]
    Protocol(String),
    /// The operating system refused something.
    #[error("{action}: {source}")]
    System {
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// What to do about a node that cannot be reached: one that accepts nothing runs already.
fn advice(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::TimedOut => "",
        _ => "; start one with `carina node`",
    }
}

impl Error {
    /// Says whether the flow has come to its end, in whatever way: no later call can succeed.
    #[must_use]
    pub fn is_end_of_flow(&self) -> bool {
        matches!(
            self,
            Error::Closed | Error::FlowFailed { .. } | Error::NodeGone
        )
    }

    /// Makes a closure for `map_err` that says what was being done.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System {
            action,
            source: source.into(),
        }
    }
}
