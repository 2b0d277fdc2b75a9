//! The receiving half of a flow of SDUs.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use carina_client::{Error, FlowInfo, FlowReceiver};
use futures_core::Stream;

use crate::watched::Watched;

/// The receiving half of a flow of SDUs. The `Stream` ends when the peer has closed the flow, and
/// after an error.
#[derive(Debug)]
pub struct MessageReceiver {
    watched: Watched,
    flow: FlowReceiver,
    sdu_max: usize,
    ended: bool,
}

impl MessageReceiver {
    pub(crate) fn new(flow: FlowReceiver) -> Result<MessageReceiver, Error> {
        Ok(MessageReceiver {
            watched: Watched::new(flow.poll_fd()?)?,
            flow,
            sdu_max: SDU_MAX,
            ended: false,
        })
    }

    /// Sets the longest SDU that is received, in bytes (default: 16 MiB). A longer one is an error,
    /// and its bytes are lost.
    #[must_use]
    pub fn with_sdu_max(mut self, bytes: usize) -> MessageReceiver {
        self.sdu_max = bytes;
        self
    }

    /// Returns the names at the ends of the flow, its DIF and its limits.
    #[must_use]
    pub fn info(&self) -> &FlowInfo {
        self.flow.info()
    }

    /// Waits for one SDU; `None` when the peer has closed the flow and all its SDUs were received.
    ///
    /// # Errors
    ///
    /// [`Error::FlowFailed`] or [`Error::NodeGone`] when the flow failed; [`Error::SduTooLarge`]
    /// for an SDU that is too long, after which the next call receives the next SDU.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, Error> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// Polls for one SDU; see [`Self::recv`].
    ///
    /// # Errors
    ///
    /// As for [`Self::recv`].
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Error>> {
        // A task whose flow is never empty lets others run.
        let turn = ready!(tokio::task::coop::poll_proceed(context));
        let received = self.poll_flow(context);
        if received.is_ready() {
            turn.made_progress();
        }
        match received {
            Poll::Ready(Err(Error::Closed)) => Poll::Ready(Ok(None)),
            Poll::Ready(received) => Poll::Ready(received.map(Some)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flow(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Error>> {
        loop {
            if let Some(sdu) = self.flow.try_recv_vec(self.sdu_max)? {
                return Poll::Ready(Ok(sdu.into()));
            }
            if self.flow.arm()? {
                ready!(self.watched.poll_event(context))?;
            }
        }
    }
}

impl Stream for MessageReceiver {
    type Item = Result<Bytes, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let received = ready!(self.poll_recv(context)).transpose();
        self.ended = match &received {
            None => true,
            Some(received) => received.as_ref().is_err_and(Error::is_end_of_flow),
        };
        Poll::Ready(received)
    }
}

/// Default of the longest SDU that is received, in bytes.
const SDU_MAX: usize = 16 << 20;
