//! Why a transport did not carry an SDU.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

/// Why a transport did not carry an SDU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The system refused a call.
    #[error("{action}: {source}")]
    System {
        /// What was attempted.
        action: Cow<'static, str>,
        /// What the system said.
        source: io::Error,
    },
    /// A flow refused a call, or could not be allocated.
    #[error("{action}: {source}")]
    Flow {
        /// What was attempted.
        action: Cow<'static, str>,
        /// What the application library said.
        source: carina_client::Error,
    },
    /// An SDU is longer than the transport, or the buffer given to it, can hold.
    #[error("an SDU of {bytes} bytes where at most {fits} fit")]
    SduTooLarge {
        /// Its length in bytes.
        bytes: usize,
        /// What would have fitted, in bytes.
        fits: usize,
    },
    /// A TCP connection ended before an SDU was complete.
    #[error("the TCP connection ended within an SDU")]
    CutShort,
    /// A part of an SDU was sent, and the rest found no room.
    #[error("the TCP connection took {sent} bytes of an SDU and no more for {} s", limit.as_secs_f32())]
    Stuck {
        /// Bytes of it that were sent, with the length in front.
        sent: usize,
        /// How long the rest waited.
        limit: Duration,
    },
    /// A first datagram was sent many times, and no answer came.
    #[error("the other side does not answer first datagrams")]
    NoAnswer,
    /// The peer of a bare ring has stopped reading.
    #[error("the peer of the bare ring takes nothing")]
    PeerStopped,
    /// An SDU was to be sent after [`Transport::finish`](super::Transport::finish).
    #[error("sending after the end")]
    Finished,
}

/// Says what was attempted when a call failed.
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
