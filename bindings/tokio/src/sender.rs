//! The sending half of a flow of SDUs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use carina_client::{Error, FlowSender};
use futures_sink::Sink;

use crate::watched::Watched;

/// The sending half of a flow of SDUs. Closing the `Sink`, or dropping it, tells the peer that no
/// more SDUs follow.
#[derive(Debug)]
pub struct MessageSender {
    /// `None` once the sink was closed.
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    watched: Watched,
    flow: FlowSender,
    /// An SDU that was taken and is not sent, or sent in part.
    pending: Option<Bytes>,
}

impl MessageSender {
    pub(crate) fn new(flow: FlowSender) -> Result<MessageSender, Error> {
        let watched = Watched::new(flow.poll_fd()?)?;
        let open = Open {
            watched,
            flow,
            pending: None,
        };
        Ok(MessageSender { open: Some(open) })
    }

    /// Returns the longest SDU in bytes that is sent in one piece, about a quarter of the ring; 0
    /// once the sink is closed.
    #[must_use]
    pub fn piece_max(&self) -> usize {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.flow.piece_max())
    }

    /// Sends one SDU of 0 bytes or more, and waits for space.
    ///
    /// If the future is dropped before it is ready, the SDU was not sent. An SDU of more than
    /// [`Self::piece_max`] bytes may have been sent in part; the next call sends the rest first.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::FlowFailed`] or [`Error::NodeGone`] when the flow has ended;
    /// [`Error::SduTooLarge`] when the flow does not carry SDUs of that length.
    pub async fn send(&mut self, sdu: impl Into<Bytes>) -> Result<(), Error> {
        let open = self.open()?;
        let sdu = sdu.into();
        std::future::poll_fn(|context| open.poll_pending(context)).await?;
        if sdu.len() > open.flow.piece_max() {
            open.pending = Some(sdu);
            return std::future::poll_fn(|context| open.poll_pending(context)).await;
        }
        std::future::poll_fn(|context| open.poll_sdu(&sdu, context)).await
    }

    fn open(&mut self) -> Result<&mut Open, Error> {
        self.open.as_mut().ok_or(Error::Closed)
    }
}

impl Open {
    /// Sends the SDU that was taken before.
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(sdu) = self.pending.take() else {
            return Poll::Ready(Ok(()));
        };
        let sent = self.poll_sdu(&sdu, context);
        if sent.is_pending() {
            self.pending = Some(sdu);
        }
        sent
    }

    fn poll_sdu(&mut self, sdu: &[u8], context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // A task whose peer is never slow lets others run.
        let turn = ready!(tokio::task::coop::poll_proceed(context));
        while !self.flow.try_send(sdu)? {
            // A sender that woke up for the space of one small SDU would wake up for each.
            if self.flow.arm(self.flow.piece_max())? {
                ready!(self.watched.poll_event(context))?;
            }
        }
        turn.made_progress();
        Poll::Ready(Ok(()))
    }
}

impl Sink<Bytes> for MessageSender {
    type Error = Error;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.open()?.poll_pending(context)
    }

    fn start_send(mut self: Pin<&mut Self>, sdu: Bytes) -> Result<(), Error> {
        let open = self.open()?;
        if let Some(pending) = &open.pending {
            // The caller did not wait until the sink was ready.
            return Err(Error::Unfinished {
                expected: pending.len(),
                got: sdu.len(),
            });
        }
        if !open.flow.try_send(&sdu)? {
            open.pending = Some(sdu);
        }
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        match &mut self.open {
            Some(open) => open.poll_pending(context),
            None => Poll::Ready(Ok(())),
        }
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        ready!(self.as_mut().poll_flush(context))?;
        self.open = None;
        Poll::Ready(Ok(()))
    }
}
