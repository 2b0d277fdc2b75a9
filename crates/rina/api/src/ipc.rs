//! Messages on `ipc.sock` and on the control socket of a flow.
//!
//! Both are `SOCK_SEQPACKET`; every message is one JSON object of at most [`MESSAGE_BYTES_MAX`]
//! bytes, file descriptors ride beside it. One connection is one object:
//!
//! ```text
//! client                                node
//!   register ------------------------->
//!            <------------------------- registered | error        (connection stays)
//!            <------------------------- flow_request               (any number)
//!   respond -------------------------->
//!            <------------------------- flow + fds | error         (both carry "request")
//!   (close unregisters)
//!
//!   allocate ------------------------->
//!            <------------------------- flow + fds | error         (connection may be closed)
//! ```
//!
//! The life of a flow is bound to the descriptors in its `flow` message: in ring mode the first is
//! its control socket, on which the node says `closed`; in socket and stream mode the data socket
//! is all.
//!
//! In stream mode the client may attach one connected stream socket to `allocate`, or to `respond`
//! with `accept`. The node, or the other application where both are on this system, takes it as its
//! end of the byte stream; the `flow` message then carries no descriptor.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, PortId};

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Registers an application; the connection then is the registration.
    Register {
        /// Version of this protocol, [`VERSION`].
        version: u32,
        /// The name to register.
        name: AppName,
        /// The DIF to register in; `None` for all that exist and that will exist.
        #[serde(default)]
        dif: Option<DifName>,
    },
    /// Answers a [`FlowRequest`].
    Respond {
        /// The number of the request answered.
        request: u32,
        /// Whether the flow is taken.
        accept: bool,
        /// Why not, for the other side; only with `accept: false`.
        #[serde(default)]
        reason: Option<String>,
        /// How this end wants to move SDUs.
        #[serde(default)]
        mode: Mode,
        /// This process has registered for expedited memory barriers.
        #[serde(default)]
        membarrier: bool,
    },
    /// Allocates a flow; the answer is [`Reply::Flow`] or [`Reply::Error`].
    Allocate {
        /// Version of this protocol, [`VERSION`].
        version: u32,
        /// The name of the application that asks; it needs no registration.
        local: AppName,
        /// The name of the application wanted.
        remote: AppName,
        /// The DIF to use; `None` to search all in configured order.
        #[serde(default)]
        dif: Option<DifName>,
        /// What the flow must give.
        #[serde(default)]
        spec: FlowSpec,
        /// How this end wants to move SDUs.
        #[serde(default)]
        mode: Mode,
        /// This process has registered for expedited memory barriers.
        #[serde(default)]
        membarrier: bool,
        /// Bytes of each ring: a power of two from [`RING_BYTES_MIN`] to [`RING_BYTES_MAX`];
        /// `None` for the node's default.
        #[serde(default)]
        ring_bytes: Option<u64>,
    },
}

/// How an end of a flow moves SDUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Rings in shared memory with doorbells.
    #[default]
    Ring,
    /// A `SOCK_SEQPACKET` socket, one SDU per message.
    Socket,
    /// A `SOCK_STREAM` socket: bytes both ways, each direction with an end of its own. An SDU of no
    /// bytes ends a direction.
    Stream,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Ring => "ring",
            Mode::Socket => "socket",
            Mode::Stream => "stream",
        })
    }
}

/// What the node says on `ipc.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The registration stands: every DIF in which it was asked for has said so, or does when this
    /// system is a member of it.
    Registered(Registered),
    /// An application wants a flow to this registration.
    FlowRequest(FlowRequest),
    /// The flow exists; its descriptors ride beside the message.
    Flow(Flow),
    /// Refused. To a registration that stands, without the number of a request: it has ended,
    /// because the DIF, which could not be asked before, does not take it; the connection is closed
    /// then.
    Error(Refusal),
}

/// The body of [`Reply::Registered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The name registered.
    pub name: AppName,
    /// The DIFs in which it is registered now.
    pub difs: Vec<DifName>,
}

/// The body of [`Reply::FlowRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Number to answer with; unique within the connection.
    pub request: u32,
    /// The name asked for: that of the registration.
    pub local: AppName,
    /// The name of the application that asks.
    pub remote: AppName,
    /// The DIF through which it asks.
    pub dif: DifName,
    /// What it asks of the flow.
    pub spec: FlowSpec,
}

/// The body of [`Reply::Flow`].
///
/// Descriptors in ring mode: control socket, memory, own data doorbell, own space doorbell, peer's
/// data doorbell, peer's space doorbell ([`RING_FDS`]). In socket and stream mode: the data socket
/// ([`SOCKET_FDS`]), or none when this end attached a socket of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// The [`FlowRequest`] this answers; `None` after an allocation.
    #[serde(default)]
    pub request: Option<u32>,
    /// Identifier of the flow in this system.
    pub port: PortId,
    /// Name of this end.
    pub local: AppName,
    /// Name of the other end.
    pub remote: AppName,
    /// The DIF that carries the flow.
    pub dif: DifName,
    /// What was asked of the flow.
    pub spec: FlowSpec,
    /// Bytes of data in each of the two rings; 0 in socket and stream mode.
    pub ring_bytes: u64,
    /// The ring in which this end writes, 0 or 1; it reads from the other.
    pub tx_ring: u8,
    /// Both ends have registered for expedited barriers, so the light wake protocol is in use.
    pub light_wake: bool,
    /// Longest SDU the flow carries, in bytes; 0 when only memory limits it.
    pub sdu_max: u64,
    /// How this end moves SDUs.
    pub mode: Mode,
}

/// The body of [`Reply::Error`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The [`FlowRequest`] whose answer failed; `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u32>,
    /// What was refused and why.
    #[serde(flatten)]
    pub error: ErrorBody,
}

/// What the node says on a flow's control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowNotice {
    /// The other end is gone; SDUs already queued may still be read.
    Closed {
        /// Why.
        reason: String,
        /// The other end deallocated; false when the flow failed.
        #[serde(default)]
        graceful: bool,
    },
}

/// Why a message could not be coded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not the JSON expected.
    #[error("a message could not be read: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<MessageError> for ErrorBody {
    fn from(error: MessageError) -> Self {
        ErrorBody::new(ErrorCode::BadRequest, error.to_string())
    }
}

/// Codes a message.
///
/// # Errors
/// [`MessageError::TooLong`] when it does not fit in one datagram of the protocol.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, MessageError> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Reads a message.
///
/// # Errors
/// [`MessageError`] when it is too long or not what was expected.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Checks the size of a ring.
///
/// # Errors
/// An [`ErrorBody`] that names the range.
pub fn ring_bytes_checked(bytes: u64) -> Result<usize, ErrorBody> {
    if !bytes.is_power_of_two() || !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&bytes) {
        return Err(ErrorBody::new(
            ErrorCode::BadRequest,
            format!(
                "ring_bytes is {bytes}; it must be a power of two from {RING_BYTES_MIN} to \
                 {RING_BYTES_MAX}"
            ),
        ));
    }
    Ok(bytes as usize)
}

/// Version of the protocol on `ipc.sock`.
pub const VERSION: u32 = 1;

/// Longest message, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Bytes of each ring of a flow unless its application or the node's configuration says otherwise.
pub const RING_BYTES_DEFAULT: u64 = 1 << 20;

/// Smallest ring of a flow, in bytes.
pub const RING_BYTES_MIN: u64 = 4096;

/// Largest ring of a flow, in bytes.
pub const RING_BYTES_MAX: u64 = 64 << 20;

/// Number of descriptors beside a `flow` message in ring mode.
pub const RING_FDS: usize = 6;

/// Number of descriptors beside a `flow` message in socket mode, and in stream mode unless this end
/// attached one.
pub const SOCKET_FDS: usize = 1;

/// Number of descriptors that a client may attach to an `allocate` or a `respond` in stream mode.
pub const ATTACHED_FDS_MAX: usize = 1;

/// Longest reason that one side may give the other, in bytes; longer ones are cut.
pub const REASON_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests;
