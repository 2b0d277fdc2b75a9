//! Errors of calls of this library.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use carina_api::ErrorBody;

/// Why a call of this library failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No node listens on the socket, so the library cannot connect.
    #[error("{}", connecting(source))]
    NoNode {
        /// The socket to which the call tried to connect.
        path: PathBuf,
        /// Why the operating system refused the connection to the node's socket.
        source: io::Error,
    },
    /// The node understood the request and refused it, for this reason.
    #[error("the node refused: {}", .0.message)]
    Refused(ErrorBody),
    /// The node ended while the call waited, or the node of the flow has ended.
    #[error("the node has ended, or has closed the connection")]
    NodeGone,
    /// The node has received the request but does not answer: it is stopped, stuck or very busy.
    #[error("the node has not answered {asked} within {} s; it is stopped, stuck or very busy", limit.as_secs_f32())]
    NoAnswer {
        /// The request, as a phrase such as "the request for a flow".
        asked: &'static str,
        /// How long the call waited for the answer.
        limit: Duration,
    },
    /// The remote application closed the flow; every SDU that it sent has been received.
    #[error("the remote application closed the flow")]
    Closed,
    /// The flow failed: the remote application or its system died, the DIF that carries the flow
    /// failed, or the node ended the flow.
    #[error("the flow failed: {reason}")]
    FlowFailed {
        /// The reason that the node gave, or the fault that this library found in the shared
        /// memory.
        reason: String,
    },
    /// The SDU is longer than the flow carries, or longer than the buffer into which it was to be
    /// received. In the second case the buffer contains the beginning of the SDU, and the rest is
    /// lost.
    #[error("an SDU of {len} bytes where at most {max} bytes fit")]
    SduTooLarge {
        /// Length of the SDU in bytes.
        len: u64,
        /// Longest SDU that would have fitted, in bytes.
        max: u64,
    },
    /// An earlier `try_send` has sent a part of one SDU, and this call has an SDU of another
    /// length.
    #[error(
        "an SDU of {expected} bytes is sent in part and must be finished before an SDU of \
        {got} bytes"
    )]
    Unfinished {
        /// Length in bytes of the SDU that is partly sent.
        expected: usize,
        /// Length in bytes of the SDU of this call.
        got: usize,
    },
    /// The node sent a message that the protocol of `ipc.sock` does not allow.
    #[error("the node broke the protocol of ipc.sock: {0}")]
    Protocol(String),
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The operation that failed, as a phrase for people.
        action: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Text of the error that no connection was made. `source` names the socket. There is no advice
/// after a timeout: a node runs then, but accepts no connections.
fn connecting(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::PermissionDenied => format!("this user may not use the node: {source}"),
        io::ErrorKind::TimedOut => format!("no node answers: {source}"),
        _ => format!(
            "no node answers: {source}; start one with `carina node`, or give the run directory \
             of one that runs (--run, CARINA_RUN)"
        ),
    }
}

impl Error {
    /// Whether the error means that the flow has ended, for whatever reason. Later calls on the
    /// flow cannot succeed.
    #[must_use]
    pub fn is_end_of_flow(&self) -> bool {
        matches!(
            self,
            Error::Closed | Error::FlowFailed { .. } | Error::NodeGone
        )
    }

    /// Returns a closure for `map_err` that makes an [`Error::System`] of an I/O error; `action`
    /// describes what failed.
    pub(crate) fn system<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System {
            action,
            source: source.into(),
        }
    }
}
