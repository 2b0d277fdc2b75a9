//! The interface between a data-plane thread and the app of an IPCP of any kind.
//!
//! The thread creates the app with an [`IpcpBuilder`], and puts [`Request`]s for it into a queue.
//! The app has a pair of links for each of its flows, to the user of the flow. The user is a flow
//! app, or the app of a normal IPCP above.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_engine::counters::Row;
use carina_engine::{App, AppId, Close, LinkId, Links, Pool};
use carina_frame_engine::tap::Taps;
use carina_ipcp::{ConnectReader, N1Port, N1Properties};
use thiserror::Error;

use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::port_table::PortTable;

/// Creates the app of an IPCP on the data-plane thread.
///
/// The manager opens devices and sockets first, so that it can report errors at once. It then sends
/// the builder to the data plane ([`Command::AddIpcp`](crate::Command)).
pub trait IpcpBuilder: Send {
    /// Returns the label of the IPCP in the counters.
    fn label(&self) -> String;

    /// Whether the IPCP's protocol keeps the peer within the credit that a flow's reader grants. If
    /// not, the links toward the flows have a window, and the app drops or holds packets that
    /// exceed the window.
    fn enforces_credit(&self) -> bool;

    /// Whether the app uses N-1 flows and accepts [`Request::Member`].
    fn uses_n1_flows(&self) -> bool {
        false
    }

    /// Creates the app.
    ///
    /// # Errors
    /// The configuration is wrong, or a system call failed.
    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError>;
}

/// Why an IPCP could not be added to the data plane.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The id is already in use.
    #[error("IPCP {0} exists already; choose another id")]
    Exists(IpcpId),
    /// No descriptor could be created.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The builder of this kind of IPCP failed, with this error.
    #[error("{0}")]
    Kind(Box<dyn std::error::Error + Send + Sync>),
}

/// What the data plane gives to the app of an IPCP when it creates the app.
pub struct AppContext {
    /// Id of the IPCP's app in the engine.
    pub id: AppId,
    /// Id of the IPCP, for the events that the app reports.
    pub ipcp: IpcpId,
    /// Queue of requests for the app. The data plane wakes the app after it has added one.
    pub requests: RequestQueue,
    /// Mailbox into which the app puts its events.
    pub events: Mailbox<Event>,
    /// Table of the port-ids that are in use on the worker.
    pub ports: PortTable,
    /// Counters of the app, a row of the shared table.
    pub row: Row,
    /// Pool of buffers for packets that the app makes or keeps.
    pub pool: Pool,
    /// Captures of the app's packets that are running.
    pub taps: Taps,
}

/// A request that a data-plane thread makes to the app of an IPCP.
pub enum Request {
    /// Registers a name. If the name is that of an IPCP, the reader decodes the first PDU of a flow
    /// to it.
    Register(AppName, Option<ConnectReader>),
    /// Withdraws the registration of a name.
    Unregister(AppName),
    /// Requests a flow.
    Allocate {
        /// Port-id of the flow.
        port: PortId,
        /// Name of the calling application.
        local: AppName,
        /// Name of the called application.
        remote: AppName,
        /// The QoS that the application requests for the flow.
        spec: FlowSpec,
        /// Engine links between the app and the application or IPCP that uses the flow.
        links: FlowLinks,
    },
    /// Answers an incoming flow.
    Respond {
        /// Port-id of the incoming flow, from the event that reported the flow.
        port: PortId,
        /// Accepts the flow: engine links to the application or IPCP that will use the flow.
        /// Refuses the flow: the reason, as text for the peer.
        answer: Result<FlowLinks, String>,
    },
    /// Refuses an incoming flow that the manager has neither accepted nor refused so far.
    Refuse {
        /// Port-id of the incoming flow, from the event that reported the flow.
        port: PortId,
        /// Why the flow is refused, as text for the peer.
        reason: String,
    },
    /// A request for an app that uses N-1 flows.
    Member(MemberRequest),
    /// Removes the IPCP: its flows fail, and the app leaves the engine.
    Remove,
}

/// A request that a data-plane thread makes only to the app of a normal IPCP.
pub enum MemberRequest {
    /// A command for the IPCP's state machine.
    Command(carina_ipcp::Command),
    /// Attaches a flow of another IPCP as an N-1 flow, which is not used yet.
    Attach {
        /// The IPCP's number for the N-1 flow.
        n1: N1Port,
        /// Links of the N-1 flow.
        links: N1Links,
    },
    /// Declares that the N-1 flow is allocated and may be used.
    N1Up {
        /// Number of the N-1 flow.
        n1: N1Port,
        /// Properties of the N-1 flow.
        props: N1Properties,
    },
    /// Closes an N-1 flow.
    DropN1 {
        /// Number of the N-1 flow.
        n1: N1Port,
        /// Reason for the peer; empty to close gracefully.
        reason: String,
    },
}

/// The links between the app of an IPCP and the user of a flow.
#[derive(Clone, Copy)]
pub struct FlowLinks {
    /// Link that carries packets to the user.
    pub to_flow: LinkId,
    /// Link that carries packets from the user.
    pub from_flow: LinkId,
    /// Largest number of ring bytes that may be in transit to the user.
    pub window: u64,
}

impl FlowLinks {
    /// Closes the links of a flow that could not be opened, and gives the user the reason.
    pub fn refuse(&self, reason: String, links: &mut Links) {
        links.close(self.to_flow, Close::Refused(reason));
        links.disconnect(self.from_flow);
    }
}

/// The links of an N-1 flow, from the point of view of the IPCP that uses it.
pub struct N1Links {
    /// Port-id of the N-1 flow on this system.
    pub port: PortId,
    /// Link that carries received PDUs to the IPCP.
    pub input: LinkId,
    /// Link on which the IPCP sends PDUs.
    pub output: LinkId,
    /// Whether the IPCP must not report the end of the flow, because the other end of a relay does.
    pub is_silent: bool,
}

/// A queue of requests to the app of one IPCP, oldest first. Clones share one queue.
#[derive(Clone, Default)]
pub struct RequestQueue(Rc<RefCell<VecDeque<Request>>>);

impl RequestQueue {
    /// Adds a request at the end of the queue.
    pub fn push(&self, request: Request) {
        self.0.borrow_mut().push_back(request);
    }

    /// Removes and returns the oldest request; `None` if the queue is empty.
    #[must_use]
    pub fn pop(&self) -> Option<Request> {
        self.0.borrow_mut().pop_front()
    }

    /// Whether no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
