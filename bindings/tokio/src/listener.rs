//! A registered name, and the flows to it.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use carina_client::{AppName, DifName, Error, FlowRequest, Registration, RegistrationEvent};
use futures_core::Stream;

use crate::byte_stream::ByteStream;
use crate::messages::Messages;
use crate::watched::Watched;

/// A registered name. It accepts every request for a flow; the flows come from [`Self::accept`], or
/// from the `Stream`, which does not end before an error. Dropping it withdraws the name.
#[derive(Debug)]
pub struct Listener<F> {
    watched: Watched,
    registration: Registration,
    ended: bool,
    flows: PhantomData<fn() -> F>,
}

/// What a [`Listener`] accepts: [`Messages`] or [`ByteStream`].
pub trait Accepted: Sized + sealed::Flow {}

impl Accepted for Messages {}
impl Accepted for ByteStream {}

mod sealed {
    use carina_client::{Error, FlowRequest, Registration, RegistrationEvent};

    /// How a kind of flow is accepted.
    pub trait Flow: Sized {
        /// Tells the node to accept the request.
        fn start(registration: &mut Registration, request: &FlowRequest) -> Result<(), Error>;
        /// Makes a flow of the event that answers an acceptance.
        fn finish(event: RegistrationEvent) -> Result<Self, Error>;
    }
}

impl sealed::Flow for Messages {
    fn start(registration: &mut Registration, request: &FlowRequest) -> Result<(), Error> {
        registration.start_accept(request)
    }

    fn finish(event: RegistrationEvent) -> Result<Messages, Error> {
        match event {
            RegistrationEvent::AcceptedFlow { flow, .. } => Messages::new(*flow),
            other => Err(unexpected(&other)),
        }
    }
}

impl sealed::Flow for ByteStream {
    fn start(registration: &mut Registration, request: &FlowRequest) -> Result<(), Error> {
        registration.start_accept_stream(request, None)
    }

    fn finish(event: RegistrationEvent) -> Result<ByteStream, Error> {
        match event {
            RegistrationEvent::Accepted { socket, info, .. } => ByteStream::new(socket, info),
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(event: &RegistrationEvent) -> Error {
    Error::Protocol(format!("a flow was accepted in another mode: {event:?}"))
}

impl<F: Accepted> Listener<F> {
    pub(crate) fn new(registration: Registration) -> Result<Listener<F>, Error> {
        Ok(Listener {
            watched: Watched::new(&registration)?,
            registration,
            ended: false,
            flows: PhantomData,
        })
    }

    /// Returns the registered name.
    #[must_use]
    pub fn name(&self) -> &AppName {
        self.registration.name()
    }

    /// Returns the DIFs in which the name was registered when the listener was made.
    #[must_use]
    pub fn difs(&self) -> &[DifName] {
        self.registration.difs()
    }

    /// Waits for a flow. Requests whose callers give up meanwhile, and requests for byte streams
    /// over flows that are not reliable, are passed over.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends; [`Error::Refused`] when the registration ends,
    /// because this system has joined a DIF that refuses the name.
    pub async fn accept(&mut self) -> Result<F, Error> {
        std::future::poll_fn(|context| self.poll_accept(context)).await
    }

    /// Polls for a flow; see [`Self::accept`].
    ///
    /// # Errors
    ///
    /// As for [`Self::accept`].
    pub fn poll_accept(&mut self, context: &mut Context<'_>) -> Poll<Result<F, Error>> {
        loop {
            match self.registration.try_next_event()? {
                Some(RegistrationEvent::Request(request)) => {
                    F::start(&mut self.registration, &request)?;
                }
                Some(RegistrationEvent::NotAccepted { .. }) => {}
                Some(accepted) => return Poll::Ready(F::finish(accepted)),
                None => ready!(self.watched.poll_event(context))?,
            }
        }
    }
}

impl<F: Accepted> Stream for Listener<F> {
    type Item = Result<F, Error>;

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<F, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let accepted = ready!(self.poll_accept(context));
        self.ended = accepted.is_err();
        Poll::Ready(Some(accepted))
    }
}
