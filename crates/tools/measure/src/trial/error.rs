//! Why a measurement did not take place.

use std::io;
use std::time::Duration;

use super::job::Message;
use crate::traffic::ParseError;
use crate::transport::TransportError;

/// Why a measurement did not take place.
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
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The other side sent no control message in this time.
    #[error("the other side said nothing for {0:?}")]
    Silent(Duration),
    /// A control message came at a moment at which it has no meaning.
    #[error("a control message came out of turn: {0:?}")]
    OutOfTurn(Box<Message>),
    /// The server closed the control channel.
    #[error("the server closed the control channel")]
    ServerClosed,
    /// The server did not do what it was asked.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The flow stalled; see [`Trial::stall`](super::client::Trial::stall).
    #[error("{0}")]
    Stalled(String),
    /// The other side has a socket whose address it did not say.
    #[error("the other side opened a socket and did not say where")]
    NoAddress,
    /// The client went away between its request and its connection.
    #[error("the client left before it connected")]
    ClientLeft,
    /// The server serves flows only; sockets and files are for benches.
    #[error("this server measures flows only")]
    FlowsOnly,
    /// The client asks for sizes that no SDU has.
    #[error("{0}")]
    Sizes(#[from] ParseError),
    /// Too many data flows wait for their jobs.
    #[error("{0} data flows already wait for a job")]
    WaitingFlows(usize),
    /// The data flow of a job did not arrive in time.
    #[error("the client's data flow did not arrive")]
    NoDataFlow,
    /// The server closed the transport before it answered.
    #[error("the server closed before it answered")]
    ClosedEarly,
    /// An answer differs in length from what was sent.
    #[error("sent {sent} bytes, the answer has {received}")]
    AnswerLength {
        /// Bytes that were sent.
        sent: usize,
        /// Bytes of the answer.
        received: usize,
    },
    /// No SDU came at all.
    #[error("no SDU came within {} s of the start", .0.as_secs())]
    NothingCame(Duration),
    /// The measuring thread could not be pinned to its CPU.
    #[error("pinning to CPU {cpu}: {source}")]
    Pin {
        /// The CPU.
        cpu: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The measuring thread panicked.
    #[error("the measuring thread panicked")]
    Panicked,
}
