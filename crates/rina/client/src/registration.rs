//! A registered name, and the flow requests to it.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use carina_api::ipc::{Mode, Refusal, Reply, Request};
use carina_api::{AppName, DifName, ErrorBody, FlowSpec};

use crate::error::Error;
use crate::flow::{Flow, SocketFlow, StreamFlow};
use crate::ipc::{self, Answer, Connection};
use crate::link::FlowInfo;

/// A name under which this application is registered at the node. The name stays registered while
/// this value lives.
#[derive(Debug)]
pub struct Registration {
    connection: Connection,
    name: AppName,
    difs: Vec<DifName>,
    waiting: VecDeque<FlowRequest>,
}

/// A registration that was requested from the node; its answer has not been read yet.
#[derive(Debug)]
pub struct PendingRegistration {
    /// `None` once the answer was read.
    connection: Option<Connection>,
}

/// A remote application's request for a flow. Answer it with [`Registration::accept_request`] or
/// [`Registration::refuse`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowRequest {
    /// The registered name to which the flow is requested.
    pub local: AppName,
    /// Name of the application that requests the flow.
    pub remote: AppName,
    /// Name of the DIF through which the request came.
    pub dif: DifName,
    /// The flow specification that the calling application requests.
    pub spec: FlowSpec,
    request: u32,
}

/// An event of a registration, for an event loop: a flow request, or the outcome of a request that
/// was accepted without waiting.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegistrationEvent {
    /// A remote application requests a flow.
    Request(FlowRequest),
    /// A request that [`Registration::start_accept_stream`] or
    /// [`Registration::start_accept_socket`] accepted has become a flow.
    Accepted {
        /// Number of the [`FlowRequest`] that was accepted.
        number: u32,
        /// The socket; `None` when this end attached one.
        socket: Option<OwnedFd>,
        /// Names at the two ends of the flow, its DIF and its limits.
        info: FlowInfo,
    },
    /// A request that [`Registration::start_accept`] accepted has become a flow.
    AcceptedFlow {
        /// Number of the [`FlowRequest`] that was accepted.
        number: u32,
        /// The flow; its SDUs pass rings in shared memory.
        flow: Box<Flow>,
    },
    /// A request was accepted without waiting, but the flow was not allocated.
    NotAccepted {
        /// Number of the [`FlowRequest`] that was accepted.
        number: u32,
        /// Why the request led to no flow.
        error: ErrorBody,
    },
}

impl FlowRequest {
    /// Returns the number of the request, unique within its registration.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.request
    }
}

impl PendingRegistration {
    pub(crate) fn new(
        mut connection: Connection,
        name: &AppName,
        dif: Option<&DifName>,
    ) -> Result<PendingRegistration, Error> {
        connection.send_request(&Request::Register {
            version: carina_api::ipc::VERSION,
            name: name.clone(),
            dif: dif.cloned(),
            streams: false,
            shared: false,
        })?;
        Ok(PendingRegistration {
            connection: Some(connection),
        })
    }

    /// Waits for the answer and returns the registration.
    ///
    /// # Errors
    ///
    /// As for [`crate::Node::register`].
    pub fn finish(mut self) -> Result<Registration, Error> {
        let mut connection = self.connection.take().ok_or(Error::NodeGone)?;
        let answer = connection.receive("the registration")?;
        registered(connection, answer)
    }

    /// Returns the registration if the answer has arrived, otherwise `None`. After a registration
    /// or an error the request has ended; drop it then.
    ///
    /// # Errors
    ///
    /// As for [`crate::Node::register`].
    pub fn try_finish(&mut self) -> Result<Option<Registration>, Error> {
        let Some(mut connection) = self.connection.take() else {
            return Err(Error::NodeGone);
        };
        match connection.try_hear()? {
            Some(answer) => registered(connection, answer).map(Some),
            None => {
                self.connection = Some(connection);
                Ok(None)
            }
        }
    }

    /// Returns the descriptor that becomes readable when the answer has arrived; `None` after
    /// [`Self::try_finish`] has returned it.
    #[must_use]
    pub fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        self.connection.as_ref().map(AsFd::as_fd)
    }
}

/// Makes a registration of the node's answer.
fn registered(connection: Connection, answer: Answer) -> Result<Registration, Error> {
    match answer.reply {
        Reply::Registered(registered) => Ok(Registration {
            connection,
            name: registered.name,
            difs: registered.difs,
            waiting: VecDeque::new(),
        }),
        _ => Err(ipc::unexpected(answer, "an answer to a registration")),
    }
}

impl Registration {
    /// Returns the registered name.
    #[must_use]
    pub fn name(&self) -> &AppName {
        &self.name
    }

    /// Returns the DIFs in which the name was registered when [`crate::Node::register`] returned.
    #[must_use]
    pub fn difs(&self) -> &[DifName] {
        &self.difs
    }

    /// Waits for a flow request and accepts it.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends. [`Error::Refused`] when the caller gave up
    /// meanwhile: the registration is still valid and the call may be repeated. [`Error::Refused`]
    /// also comes when this system joins a DIF late and the DIF refuses the name; the next call
    /// then returns [`Error::NodeGone`].
    pub fn accept(&mut self) -> Result<Flow, Error> {
        let request = self.next_request()?;
        self.accept_request(&request)
    }

    /// Waits for a flow request, and returns it without answering it.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn next_request(&mut self) -> Result<FlowRequest, Error> {
        loop {
            if let Some(request) = self.try_next_request()? {
                return Ok(request);
            }
            self.connection.wait(None)?;
        }
    }

    /// Waits for a flow request for at most `limit`; `None` when none arrived. Does not answer it.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn next_request_timeout(&mut self, limit: Duration) -> Result<Option<FlowRequest>, Error> {
        if let Some(request) = self.try_next_request()? {
            return Ok(Some(request));
        }
        self.connection.wait(Some(limit))?;
        self.try_next_request()
    }

    /// Returns a pending flow request; `None` if no request is pending. Does not wait. In an event
    /// loop, call it until it returns `None` before waiting for the descriptor: a call that
    /// answered one request may have read others from the socket.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn try_next_request(&mut self) -> Result<Option<FlowRequest>, Error> {
        if let Some(request) = self.waiting.pop_front() {
            return Ok(Some(request));
        }
        match self.connection.try_hear()? {
            None => Ok(None),
            Some(Answer {
                reply: Reply::FlowRequest(request),
                ..
            }) => Ok(Some(request.into())),
            Some(answer) => Err(ipc::unexpected(answer, "a request for a flow")),
        }
    }

    /// Accepts a request, waits for the node's answer, and returns the flow, which uses rings.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] when the caller gave up meanwhile; [`Error::NodeGone`] when the node
    /// ends.
    pub fn accept_request(&mut self, request: &FlowRequest) -> Result<Flow, Error> {
        let membarrier = ipc::membarrier();
        let answer = self.respond(request, Mode::Ring, membarrier, None)?;
        ipc::ring_flow(answer)
    }

    /// Accepts a request like [`Self::accept_request`], but does not wait;
    /// [`Self::try_next_event`] returns the flow later.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn start_accept(&mut self, request: &FlowRequest) -> Result<(), Error> {
        let accepted = accepted(request, Mode::Ring, ipc::membarrier());
        self.connection.send_request(&accepted)
    }

    /// Accepts a request with a flow that uses a socket in place of rings.
    ///
    /// # Errors
    ///
    /// As for [`Self::accept_request`].
    pub fn accept_request_socket(&mut self, request: &FlowRequest) -> Result<SocketFlow, Error> {
        let answer = self.respond(request, Mode::Socket, false, None)?;
        ipc::socket_flow(answer)
    }

    /// Accepts a request with a flow that is a byte stream. `attached` has the same meaning as in
    /// [`Node::allocate_stream`](crate::Node::allocate_stream).
    ///
    /// # Errors
    ///
    /// As for [`Self::accept_request`]; also [`Error::Refused`] when the caller requested a flow
    /// that may lose or reorder bytes, or `attached` is not a connected stream socket. The node
    /// then refuses the flow.
    pub fn accept_request_stream(
        &mut self,
        request: &FlowRequest,
        attached: Option<OwnedFd>,
    ) -> Result<StreamFlow, Error> {
        let answer = self.respond(request, Mode::Stream, false, attached)?;
        ipc::stream_flow(answer)
    }

    /// Accepts a request like [`Self::accept_request_stream`], but does not wait;
    /// [`Self::try_next_event`] returns the flow later.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn start_accept_stream(
        &mut self,
        request: &FlowRequest,
        attached: Option<OwnedFd>,
    ) -> Result<(), Error> {
        let accepted = accepted(request, Mode::Stream, false);
        self.connection.send_attaching(&accepted, attached)
    }

    /// Accepts a request like [`Self::accept_request_socket`], but does not wait;
    /// [`Self::try_next_event`] returns the flow later.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn start_accept_socket(&mut self, request: &FlowRequest) -> Result<(), Error> {
        let accepted = accepted(request, Mode::Socket, false);
        self.connection.send_request(&accepted)
    }

    /// Returns the next event: a flow request, or the outcome of a request that was accepted
    /// without waiting. `None` if there is no event now. Does not wait. In an event loop, call it
    /// until it returns `None`.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends; [`Error::Refused`] when the registration has ended.
    pub fn try_next_event(&mut self) -> Result<Option<RegistrationEvent>, Error> {
        if let Some(request) = self.waiting.pop_front() {
            return Ok(Some(RegistrationEvent::Request(request)));
        }
        let Some(mut answer) = self.connection.try_hear()? else {
            return Ok(None);
        };
        let event = match answer.reply {
            Reply::FlowRequest(request) => RegistrationEvent::Request(request.into()),
            Reply::Flow(ref flow) if flow.request.is_some() && flow.mode == Mode::Ring => {
                RegistrationEvent::AcceptedFlow {
                    number: flow.request.unwrap_or_default(),
                    flow: Box::new(ipc::ring_flow(answer)?),
                }
            }
            Reply::Flow(flow) if flow.request.is_some() => RegistrationEvent::Accepted {
                number: flow.request.unwrap_or_default(),
                socket: answer.fds.pop(),
                info: ipc::info_of(flow),
            },
            Reply::Error(Refusal {
                request: Some(number),
                error,
            }) => RegistrationEvent::NotAccepted { number, error },
            _ => return Err(ipc::unexpected(answer, "a request for a flow")),
        };
        Ok(Some(event))
    }

    /// Refuses a request; the calling application receives `reason`.
    ///
    /// # Errors
    ///
    /// [`Error::NodeGone`] when the node ends.
    pub fn refuse(&mut self, request: &FlowRequest, reason: &str) -> Result<(), Error> {
        self.connection.send_request(&Request::Respond {
            request: request.request,
            accept: false,
            reason: Some(reason.to_owned()),
            mode: Mode::Socket,
            membarrier: false,
        })
    }

    /// Accepts a request and waits for the flow. Requests that arrive before it are queued.
    fn respond(
        &mut self,
        request: &FlowRequest,
        mode: Mode,
        membarrier: bool,
        attached: Option<OwnedFd>,
    ) -> Result<Answer, Error> {
        let number = request.request;
        let accepted = accepted(request, mode, membarrier);
        self.connection.send_attaching(&accepted, attached)?;
        loop {
            let answer = self.connection.receive("the acceptance of a flow")?;
            match &answer.reply {
                Reply::FlowRequest(request) => self.waiting.push_back(request.clone().into()),
                Reply::Flow(flow) if flow.request == Some(number) => return Ok(answer),
                Reply::Error(refusal) if refusal.request.is_some_and(|of| of != number) => {}
                _ => return Err(ipc::unexpected(answer, "the accepted flow")),
            }
        }
    }
}

fn accepted(request: &FlowRequest, mode: Mode, membarrier: bool) -> Request {
    Request::Respond {
        request: request.request,
        accept: true,
        reason: None,
        mode,
        membarrier,
    }
}

impl AsFd for Registration {
    /// The descriptor is readable when a flow request has arrived or the node has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl From<carina_api::ipc::FlowRequest> for FlowRequest {
    fn from(request: carina_api::ipc::FlowRequest) -> FlowRequest {
        FlowRequest {
            local: request.local,
            remote: request.remote,
            dif: request.dif,
            spec: request.spec,
            request: request.request,
        }
    }
}
