//! Messages on `ipc.sock` and on the control socket of a flow.
//!
//! Both sockets are `SOCK_SEQPACKET`. Every message is one JSON object of at most
//! [`MESSAGE_BYTES_MAX`] bytes; file descriptors travel with it as ancillary data. One connection
//! to `ipc.sock` is one registration or one allocation:
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
//! A flow lives as long as the application holds the descriptors of its `flow` message. In ring
//! mode the first descriptor is the flow's control socket, on which the node sends `closed`. In
//! socket mode and in stream mode the data socket is the only descriptor.
//!
//! In stream mode the client may attach one connected stream socket to `allocate`, or to `respond`
//! with `accept`. The node uses this socket as its end of the byte stream. If the other application
//! is on the same system, the node may pass the socket to that application instead. The `flow`
//! message to the client that attached a socket carries no descriptor.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, PortId};

/// A message from a client to the node on `ipc.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Registers an application. From then on the connection represents the registration: closing
    /// it unregisters the name.
    Register {
        /// Version of this protocol, [`VERSION`].
        version: u32,
        /// The name to register.
        name: AppName,
        /// The DIF to register in; `None` for all DIFs that exist now or later.
        #[serde(default)]
        dif: Option<DifName>,
        /// The node accepts every request for a flow itself, in mode [`Mode::Stream`], once the
        /// client has sent [`Request::Listen`]; before, it refuses every request. Each flow is one
        /// [`Reply::Flow`] with its descriptor, so that several processes may read from one
        /// registration.
        #[serde(default, skip_serializing_if = "is_false")]
        streams: bool,
        /// With `streams`: the same user may register the same name several times. The node gives
        /// one flow after the other to these registrations in turn.
        #[serde(default, skip_serializing_if = "is_false")]
        shared: bool,
    },
    /// Tells the node to accept flows for a registration with `streams` from now on, without asking
    /// the application.
    Listen {},
    /// Answers a [`FlowRequest`].
    Respond {
        /// Number of the [`FlowRequest`] that is answered.
        request: u32,
        /// Whether the application accepts the flow.
        accept: bool,
        /// The reason of a refusal, for the remote application; only with `accept: false`.
        #[serde(default)]
        reason: Option<String>,
        /// How this end wants to exchange SDUs with the node.
        #[serde(default)]
        mode: Mode,
        /// Whether this process has registered for expedited memory barriers (membarrier(2)).
        #[serde(default)]
        membarrier: bool,
    },
    /// Allocates a flow; the answer is [`Reply::Flow`] or [`Reply::Error`].
    Allocate {
        /// Version of this protocol, [`VERSION`].
        version: u32,
        /// Name of the calling application; it need not be registered.
        local: AppName,
        /// Name of the application to call.
        remote: AppName,
        /// The DIF to use; `None` to search all DIFs, in the order of the configuration.
        #[serde(default)]
        dif: Option<DifName>,
        /// The QoS that the application requests.
        #[serde(default)]
        spec: FlowSpec,
        /// How this end wants to exchange SDUs with the node.
        #[serde(default)]
        mode: Mode,
        /// Whether this process has registered for expedited memory barriers (membarrier(2)).
        #[serde(default)]
        membarrier: bool,
        /// Bytes of each ring: a power of two from [`RING_BYTES_MIN`] to [`RING_BYTES_MAX`]; `None`
        /// for the node's default.
        #[serde(default)]
        ring_bytes: Option<u64>,
        /// In mode [`Mode::Stream`] with a descriptor: bytes, at most [`FILLER_BYTES_MAX`], that
        /// the node takes off the descriptor once the flow is allocated, before anyone reads from
        /// it. They keep the client's end unwritable until then. When the flow is refused, the
        /// descriptor is closed with them unread, which the client's end sees as `ECONNRESET`.
        #[serde(default, skip_serializing_if = "is_zero")]
        filler: u32,
        /// Whether the allocation continues when the connection on which it was requested is
        /// closed.
        #[serde(default, skip_serializing_if = "is_false")]
        detached: bool,
        /// Whether the node closes the connection once it has sent [`Reply::Flow`]. That saves a
        /// wake-up of the node. With `detached` it always does.
        #[serde(default, skip_serializing_if = "is_false")]
        closes: bool,
    },
}

/// How an application exchanges the SDUs of a flow with its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Two rings in shared memory, with doorbells (default).
    #[default]
    Ring,
    /// A `SOCK_SEQPACKET` socket; one message is one SDU.
    Socket,
    /// A `SOCK_STREAM` socket: a byte stream in each direction, which ends independently of the
    /// other. On the flow, an empty SDU ends a direction.
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

/// A message from the node to a client on `ipc.sock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The application is registered: every requested DIF of which this system is a member has
    /// confirmed it. DIFs that this system joins later register the name when it joins them.
    Registered(Registered),
    /// A remote application requests a flow to this registration.
    FlowRequest(FlowRequest),
    /// The flow exists; its descriptors travel with the message.
    Flow(Flow),
    /// The node refuses a request. For an existing registration, an error without a request number
    /// means that the registration has ended: this system has joined the DIF only now, and the DIF
    /// refuses the name. The node then closes the connection.
    Error(Refusal),
}

/// The body of [`Reply::Registered`]: the name and the DIFs in which it is registered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The registered application name.
    pub name: AppName,
    /// The DIFs in which the name is registered now.
    pub difs: Vec<DifName>,
}

/// The body of [`Reply::FlowRequest`]: a flow that a remote application requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowRequest {
    /// Number of this request, which the client repeats in [`Request::Respond`]; unique within the
    /// connection.
    pub request: u32,
    /// The name that the remote application called: the name of the registration.
    pub local: AppName,
    /// Name of the remote application that requests the flow.
    pub remote: AppName,
    /// Name of the DIF through which the request came.
    pub dif: DifName,
    /// The flow specification that the remote application requests.
    pub spec: FlowSpec,
}

/// The body of [`Reply::Flow`].
///
/// Descriptors in ring mode: control socket, memory, own data doorbell, own space doorbell, peer's
/// data doorbell, peer's space doorbell ([`RING_FDS`]). In socket and stream mode: the data socket
/// ([`SOCKET_FDS`]). In stream mode, a client that attached a socket of its own to its request gets
/// no descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Number of the [`FlowRequest`] that the client accepted; `None` when the client allocated the
    /// flow.
    #[serde(default)]
    pub request: Option<u32>,
    /// Port-id of the flow on this system.
    pub port: PortId,
    /// Name of the application at this end.
    pub local: AppName,
    /// Name of the application at the other end.
    pub remote: AppName,
    /// Name of the DIF that carries the flow.
    pub dif: DifName,
    /// The flow specification that the allocating application requested.
    pub spec: FlowSpec,
    /// Size of the data area of each of the two rings, in bytes; 0 in socket and stream mode.
    pub ring_bytes: u64,
    /// The ring in which this end writes, 0 or 1; it reads from the other.
    pub tx_ring: u8,
    /// Whether both processes have registered for expedited memory barriers. Both then use the wake
    /// protocol that needs no fence in the sender.
    pub light_wake: bool,
    /// Longest SDU that the flow carries, in bytes; 0 when only memory limits it.
    pub sdu_max: u64,
    /// How this end exchanges SDUs with the node.
    pub mode: Mode,
}

/// The body of [`Reply::Error`]: which request the node refuses, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Number of the [`FlowRequest`] that the client could not accept; `None` for any other
    /// request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u32>,
    /// What the node refused, and why.
    #[serde(flatten)]
    pub error: ErrorBody,
}

/// A message from the node on a flow's control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowNotice {
    /// The other end has ended the flow or has failed. Queued SDUs can still be read.
    Closed {
        /// Why the other end ended the flow or failed, as text for people.
        reason: String,
        /// True when the other end deallocated the flow, false when the flow failed.
        #[serde(default)]
        graceful: bool,
    },
}

/// Why a message of `ipc.sock` could not be encoded or decoded.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MessageError {
    /// The message is longer than [`MESSAGE_BYTES_MAX`].
    #[error("a message has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are allowed")]
    TooLong {
        /// Length of the message.
        bytes: usize,
    },
    /// The message is not the expected JSON.
    #[error("a message could not be read: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<MessageError> for ErrorBody {
    fn from(error: MessageError) -> Self {
        ErrorBody::new(ErrorCode::BadRequest, error.to_string())
    }
}

/// Encodes a message as JSON.
///
/// # Errors
/// [`MessageError::TooLong`] when the message is longer than [`MESSAGE_BYTES_MAX`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, MessageError> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a message from JSON.
///
/// # Errors
/// [`MessageError`] when the message is too long or is not valid JSON for type `T`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    Ok(serde_json::from_slice(bytes)?)
}

fn is_false(value: &bool) -> bool {
    !value
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

/// Checks that a ring size is a power of two within the limits.
///
/// # Errors
/// An [`ErrorBody`] that states the limits.
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

/// Longest message on `ipc.sock`, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Default size of each ring of a flow, in bytes.
pub const RING_BYTES_DEFAULT: u64 = 1 << 20;

/// Smallest ring of a flow, in bytes.
pub const RING_BYTES_MIN: u64 = 4096;

/// Largest ring of a flow, in bytes.
pub const RING_BYTES_MAX: u64 = 64 << 20;

/// Number of file descriptors that accompany a `flow` message in ring mode ([`Mode::Ring`]).
pub const RING_FDS: usize = 6;

/// Number of file descriptors that accompany a `flow` message in socket mode ([`Mode::Socket`]) and
/// in stream mode ([`Mode::Stream`]). In stream mode, a client that attached a socket of its own to
/// its request gets no descriptor.
pub const SOCKET_FDS: usize = 1;

/// Number of descriptors that a client may attach to an `allocate` or a `respond` in stream mode.
pub const ATTACHED_FDS_MAX: usize = 1;

/// Largest number of filler bytes that a client may announce in [`Request::Allocate`].
pub const FILLER_BYTES_MAX: u32 = 64;

/// Longest reason in a refusal, in bytes; longer ones are truncated.
pub const REASON_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests;
