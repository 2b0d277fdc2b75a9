//! A flow of SDUs.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use carina_client::{Error, Flow, FlowInfo};
use futures_core::Stream;
use futures_sink::Sink;

use crate::receiver::MessageReceiver;
use crate::sender::MessageSender;

/// A flow of SDUs over rings in shared memory: a `Stream` of what the peer sends, and a `Sink` of
/// what this end sends. Dropping it ends the flow.
#[derive(Debug)]
pub struct Messages {
    sender: MessageSender,
    receiver: MessageReceiver,
}

impl Messages {
    pub(crate) fn new(flow: Flow) -> Result<Messages, Error> {
        let (sender, receiver) = flow.split();
        Ok(Messages {
            sender: MessageSender::new(sender)?,
            receiver: MessageReceiver::new(receiver)?,
        })
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.receiver.info()
    }

    /// Receives one SDU; see [`MessageReceiver::recv`].
    ///
    /// # Errors
    ///
    /// As for [`MessageReceiver::recv`].
    pub async fn recv(&mut self) -> Result<Option<Bytes>, Error> {
        self.receiver.recv().await
    }

    /// Sends one SDU; see [`MessageSender::send`].
    ///
    /// # Errors
    ///
    /// As for [`MessageSender::send`].
    pub async fn send(&mut self, sdu: impl Into<Bytes>) -> Result<(), Error> {
        self.sender.send(sdu).await
    }

    /// Splits the flow into its two directions, which different tasks can use. The flow ends when
    /// both are dropped.
    #[must_use]
    pub fn split(self) -> (MessageSender, MessageReceiver) {
        (self.sender, self.receiver)
    }
}

impl Stream for Messages {
    type Item = Result<Bytes, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        Pin::new(&mut self.receiver).poll_next(context)
    }
}

impl Sink<Bytes> for Messages {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.sender).poll_ready(context)
    }

    fn start_send(mut self: Pin<&mut Self>, sdu: Bytes) -> Result<(), Error> {
        Pin::new(&mut self.sender).start_send(sdu)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.sender).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.sender).poll_close(context)
    }
}
