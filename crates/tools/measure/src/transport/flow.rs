//! SDUs over a flow of Carina, through the application library.

use std::time::{Duration, Instant};

use carina_client::{Error, Flow, FlowReceiver, FlowSender};

use super::error::{Attempt, TransportError};
use super::{Arrival, FOR_EVER, Transport};

/// A transport over a flow of Carina. Its sending half can be closed alone.
#[derive(Debug)]
pub struct FlowTransport {
    sender: Option<FlowSender>,
    receiver: FlowReceiver,
    is_lossy: bool,
}

impl FlowTransport {
    /// A transport that carries each SDU as one SDU of `flow`.
    pub fn new(flow: Flow) -> Self {
        let is_lossy = flow.info().spec.max_loss > 0;
        let (sender, receiver) = flow.split();
        Self {
            sender: Some(sender),
            receiver,
            is_lossy,
        }
    }

    #[inline]
    fn sender(&mut self) -> Result<&mut FlowSender, TransportError> {
        let sender = self.sender.as_mut();
        sender.ok_or(TransportError::Finished)
    }
}

impl Transport for FlowTransport {
    #[inline]
    fn send_until(&mut self, sdu: &[u8], until: Instant) -> Result<bool, TransportError> {
        let sent = self.sender()?.send_until(sdu, until);
        sent.attempt("sending on the flow")
    }

    #[inline]
    fn recv(&mut self, buffer: &mut [u8], limit: Duration) -> Result<Arrival, TransportError> {
        if limit >= FOR_EVER {
            return match self.receiver.recv(buffer) {
                Ok(len) => Ok(Arrival::Sdu(len)),
                Err(error) => ended(error),
            };
        }
        match self.receiver.recv_timeout(buffer, limit) {
            Ok(Some(len)) => Ok(Arrival::Sdu(len)),
            Ok(None) => Ok(Arrival::Idle),
            Err(error) => ended(error),
        }
    }

    fn finish(&mut self) -> Result<(), TransportError> {
        // Dropping the sending half closes its ring. The peer still reads what is queued before
        // that.
        self.sender = None;
        Ok(())
    }

    fn is_lossy(&self) -> bool {
        self.is_lossy
    }
}

fn ended(error: Error) -> Result<Arrival, TransportError> {
    match error {
        Error::Closed => Ok(Arrival::End),
        other => Err(other).attempt("receiving on the flow"),
    }
}
