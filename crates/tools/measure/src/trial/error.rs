//! Errors of measurements.

use std::io;
use std::time::Duration;

use super::job::Message;
use crate::traffic::ParseError;
use crate::transport::TransportError;

/// Why a measurement failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// A flow or another transport failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A control message could not be written or read.
    #[error("{action} a control message: {source}")]
    Json {
        /// `reading` or `writing`.
        action: &'static str,
        /// What is wrong with the message.
        source: serde_json::Error,
    },
    /// The other side sent no control message within this time.
    #[error("the other side sent no control message for {0:?}")]
    Silent(Duration),
    /// A control message arrived when another one was expected.
    #[error("an unexpected control message arrived: {0:?}")]
    OutOfTurn(Box<Message>),
    /// The server closed the control channel.
    #[error("the server closed the control channel")]
    ServerClosed,
    /// The server refused the job.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The flow stalled; see [`Trial::stall`](super::client::Trial::stall).
    #[error("{0}")]
    Stalled(String),
    /// The other side opened a socket without reporting its address.
    #[error("the other side opened a socket without reporting its address")]
    NoAddress,
    /// The other side granted memory without reporting the grant reference.
    #[error("the other side granted memory without reporting the grant reference")]
    NoReference,
    /// The client ended between its request and its connection.
    #[error("the client left before it connected")]
    ClientLeft,
    /// The job needs sockets or files, but the server serves flows only. Jobs over sockets and
    /// files are for benchmarks.
    #[error("this server measures flows only, not sockets or files")]
    FlowsOnly,
    /// The SDU sizes of the job are not possible.
    #[error("{0}")]
    Sizes(#[from] ParseError),
    /// Too many data flows wait for their jobs; this is their number.
    #[error("{0} data flows already wait for a job, which is the limit")]
    WaitingFlows(usize),
    /// The data flow of a job did not arrive in time.
    #[error("the client's data flow did not arrive")]
    NoDataFlow,
    /// The server closed the transport before it answered.
    #[error("the server closed before it answered")]
    ClosedEarly,
    /// An answer differs in length from its SDU.
    #[error("sent {sent} bytes, but the answer has {received} bytes")]
    AnswerLength {
        /// Length of the SDU that was sent, in bytes.
        sent: usize,
        /// Length of the answer that came, in bytes.
        received: usize,
    },
    /// No SDU arrived within this time after the start.
    #[error("no SDU arrived within {} s of the start", .0.as_secs())]
    NothingCame(Duration),
    /// The measuring thread could not be pinned to its CPU.
    #[error("pinning to CPU {cpu}: {source}")]
    Pin {
        /// Number of the CPU to which the thread was to be pinned.
        cpu: usize,
        /// Why the kernel did not pin the thread to the CPU.
        source: io::Error,
    },
    /// The measuring thread panicked.
    #[error("the measuring thread panicked")]
    Panicked,
}
