//! Errors of transports.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

/// Why a transport did not carry an SDU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The action that failed, as text, such as "starting QEMU".
        action: Cow<'static, str>,
        /// The error of the system call.
        source: io::Error,
    },
    /// A flow refused a call, or could not be allocated.
    #[error("{action}: {source}")]
    Flow {
        /// The action that failed, as text, such as "starting QEMU".
        action: Cow<'static, str>,
        /// The error of the application library.
        source: carina_client::Error,
    },
    /// The SDU is longer than the transport, or the buffer given to it, can hold.
    #[error("an SDU of {bytes} bytes is too large for the transport; must be at most {fits}")]
    SduTooLarge {
        /// Length of the SDU in bytes.
        bytes: usize,
        /// Largest length that fits, in bytes.
        fits: usize,
    },
    /// The TCP connection ended before an SDU was complete.
    #[error("the TCP connection ended within an SDU")]
    CutShort,
    /// A part of an SDU was sent, but there was no room for the rest in time.
    #[error(
        "the TCP connection accepted {sent} bytes of an SDU, and no more bytes for {} s",
        limit.as_secs_f32()
    )]
    Stuck {
        /// Number of bytes that were sent, including the length in front.
        sent: usize,
        /// How long the rest waited for room.
        limit: Duration,
    },
    /// The server of a crowd of flows has not received everything that was sent.
    #[error(
        "{flows} flows of the crowd still carry SDUs {} s after the last SDU was sent",
        limit.as_secs()
    )]
    Unfinished {
        /// Number of flows that the server has not closed.
        flows: usize,
        /// How long the client waited for the server after the last SDU.
        limit: Duration,
    },
    /// The vsock device of a guest refused a connection.
    #[error("the vsock device refused a connection to port {port} of the guest")]
    NoVsock {
        /// The vsock port of the guest that does not accept connections.
        port: u32,
    },
    /// First datagrams were sent many times, and none was answered.
    #[error("the other side does not answer the first datagrams over UDP")]
    NoAnswer,
    /// The peer of a bare ring does not take messages from the full ring.
    #[error("the peer of the bare ring reads nothing")]
    PeerStopped,
    /// The caller sent an SDU after [`Transport::finish`](super::Transport::finish).
    #[error("sending after the end")]
    Finished,
}

/// Adds to an error what was attempted.
pub(crate) trait Attempt<T> {
    /// Turns the error of a call into a [`TransportError`].
    fn attempt(self, action: impl Into<Cow<'static, str>>) -> Result<T, TransportError>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, action: impl Into<Cow<'static, str>>) -> Result<T, TransportError> {
        self.map_err(|source| TransportError::System {
            action: action.into(),
            source,
        })
    }
}

impl<T> Attempt<T> for Result<T, rustix::io::Errno> {
    fn attempt(self, action: impl Into<Cow<'static, str>>) -> Result<T, TransportError> {
        self.map_err(io::Error::from).attempt(action)
    }
}

impl<T> Attempt<T> for Result<T, carina_client::Error> {
    fn attempt(self, action: impl Into<Cow<'static, str>>) -> Result<T, TransportError> {
        self.map_err(|source| TransportError::Flow {
            action: action.into(),
            source,
        })
    }
}
