//! The control channel of a measurement: JSON messages over a flow.

use std::time::{Duration, Instant};

use carina_client::{Error, Flow};

use super::error::TrialError;
use super::job::Message;
use crate::transport::error::Attempt;

/// The largest control message in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// How long a control message may wait for room in the channel.
const SEND_WAIT: Duration = Duration::from_secs(20);

/// One end of a control channel.
#[derive(Debug)]
pub(super) struct Control {
    flow: Flow,
}

impl Control {
    /// A control channel over `flow`.
    pub(super) fn new(flow: Flow) -> Self {
        Self { flow }
    }

    /// Sends a message to the other side.
    ///
    /// # Errors
    /// The other side has ended.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), TrialError> {
        let text = serde_json::to_vec(message).map_err(|source| TrialError::Json {
            action: "writing",
            source,
        })?;
        let until = Instant::now() + SEND_WAIT;
        let sent = self.flow.send_until(&text, until);
        if sent.attempt("sending a control message")? {
            Ok(())
        } else {
            Err(TrialError::Silent(SEND_WAIT))
        }
    }

    /// Waits up to `limit` for a message. Returns `None` when the other side has closed the
    /// channel.
    ///
    /// # Errors
    /// [`TrialError::Silent`] if nothing arrives within `limit`, or an error if the message is
    /// invalid.
    pub(super) fn receive(&mut self, limit: Duration) -> Result<Option<Message>, TrialError> {
        let received = self.receive_within(limit)?;
        received.ok_or(TrialError::Silent(limit))
    }

    /// Like [`Control::receive`], but returns `Ok(None)` if nothing arrives within `limit`.
    ///
    /// # Errors
    /// The message is invalid.
    pub(super) fn receive_within(
        &mut self,
        limit: Duration,
    ) -> Result<Option<Option<Message>>, TrialError> {
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        match self.flow.recv_timeout(&mut buffer, limit) {
            Ok(Some(len)) => {
                let message = serde_json::from_slice(&buffer[..len]);
                let message = message.map_err(|source| TrialError::Json {
                    action: "reading",
                    source,
                })?;
                Ok(Some(Some(message)))
            }
            Ok(None) => Ok(None),
            Err(Error::Closed) => Ok(Some(None)),
            Err(error) => Ok(Err(error).attempt("receiving a control message")?),
        }
    }

    /// Returns the flow, so that it can carry the SDUs of a job.
    pub(super) fn into_flow(self) -> Flow {
        self.flow
    }
}
