//! Descriptors in tokio's reactor.

#![expect(
    unsafe_code,
    reason = "tokio asks for it where a descriptor is registered"
)]

use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll, ready};

use carina_client::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Puts a descriptor into the reactor of the current runtime.
pub(crate) fn register(descriptor: OwnedFd, interest: Interest) -> Result<AsyncFd<OwnedFd>, Error> {
    // SAFETY: An `OwnedFd` is open, and stays the same descriptor, until it is dropped. It belongs
    // to the `AsyncFd` from here on.
    let registered = unsafe { AsyncFd::register_with_interest(descriptor, interest) };
    registered.map_err(|error| failed(error.into()))
}

/// The readiness of a descriptor that another value reads.
#[derive(Debug)]
pub(crate) struct Watched(AsyncFd<OwnedFd>);

impl Watched {
    /// Watches a duplicate of the descriptor.
    pub(crate) fn new(descriptor: impl AsFd) -> Result<Watched, Error> {
        let duplicate = descriptor.as_fd().try_clone_to_owned().map_err(failed)?;
        register(duplicate, Interest::READABLE).map(Watched)
    }

    /// Ready when the descriptor became readable since the last call that was ready.
    pub(crate) fn poll_event(&self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let mut guard = ready!(self.0.poll_read_ready(context)).map_err(failed)?;
        guard.clear_ready();
        Poll::Ready(Ok(()))
    }

    /// Waits until the descriptor became readable since the last call.
    pub(crate) async fn event(&self) -> Result<(), Error> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::System {
        action: "cannot wait for a descriptor in tokio's reactor",
        source,
    }
}
