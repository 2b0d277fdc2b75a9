//! The interface between the data-plane thread and the app of an IPCP, whatever its kind.
//!
//! The thread makes the app with an [`IpcpBuilder`] and leaves [`Request`]s for it in a queue. The
//! app of an IPCP has a pair of links to the user of each of its flows: a flow app, or the app of a
//! normal IPCP above.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_engine::counters::Row;
use carina_engine::tap::Taps;
use carina_engine::{App, AppId, Close, LinkId, Links, Pool};
use carina_ipcp::{ConnectReader, N1Port, N1Properties};
use thiserror::Error;

use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::port_table::PortTable;

/// Makes the app of an IPCP on the data-plane thread.
///
/// The manager opens devices and sockets before, so that it can report at once what is wrong with
/// them, and then gives the builder to the data plane ([`Command::AddIpcp`](crate::Command)).
pub trait IpcpBuilder: Send {
    /// The name of the IPCP in the counters.
    fn label(&self) -> String;

    /// True when the IPCP's protocol keeps the peer within the credit that a flow's reader has.
    /// Otherwise the links toward the flows are windowed, and what exceeds the window is dropped
    /// or held by the app.
    fn enforces_credit(&self) -> bool;

    /// True when the app uses N-1 flows and takes [`Request::Member`].
    fn uses_n1_flows(&self) -> bool {
        false
    }

    /// Makes the app.
    ///
    /// # Errors
    /// What is wrong with the configuration, or what the system refuses.
    fn build(self: Box<Self>, context: AppContext) -> Result<Box<dyn App>, BuildError>;
}

/// Why an IPCP cannot be added to the data plane.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// The id is in use.
    #[error("IPCP {0} exists already; choose another id")]
    Exists(IpcpId),
    /// The system refuses a descriptor.
    #[error("{0}")]
    System(#[from] io::Error),
    /// The builder of its kind refuses.
    #[error("{0}")]
    Kind(Box<dyn std::error::Error + Send + Sync>),
}

/// What the data plane gives to the app of an IPCP.
pub struct AppContext {
    /// The app's id in the engine.
    pub id: AppId,
    /// The id that events carry.
    pub ipcp: IpcpId,
    /// Where the plane leaves its requests; it wakes the app afterwards.
    pub requests: RequestQueue,
    /// Where the app puts its events.
    pub events: Mailbox<Event>,
    /// The port-ids of the data plane.
    pub ports: PortTable,
    /// The app's counters.
    pub row: Row,
    /// Buffers for packets.
    pub pool: Pool,
    /// Captures of the app's packets.
    pub taps: Taps,
}

/// What the plane requests of the app of an IPCP.
pub enum Request {
    /// Makes a name reachable. The reader knows the first PDU of a flow to it, where it is that of
    /// an IPCP.
    Register(AppName, Option<ConnectReader>),
    /// Withdraws a registration.
    Unregister(AppName),
    /// Requests a flow of the peer.
    Allocate {
        /// The port-id of the flow.
        port: PortId,
        /// The calling application.
        local: AppName,
        /// The called application.
        remote: AppName,
        /// The requested quality.
        spec: FlowSpec,
        /// The links to the flow's user.
        links: FlowLinks,
    },
    /// Answers an incoming flow.
    Respond {
        /// The port-id that the event carried.
        port: PortId,
        /// The links to the accepting user, or why the flow is refused.
        answer: Result<FlowLinks, String>,
    },
    /// Refuses an incoming flow that the manager has not answered.
    Refuse {
        /// The port-id that the event carried.
        port: PortId,
        /// The reason for the peer.
        reason: String,
    },
    /// Only for an app that uses N-1 flows.
    Member(MemberRequest),
    /// Ends the IPCP: its flows fail, and the app leaves the engine.
    Remove,
}

/// What the plane requests of the app of a normal IPCP, beside what every IPCP is asked.
pub enum MemberRequest {
    /// A command to the machine.
    Command(carina_ipcp::Command),
    /// Attaches a flow of another IPCP as an N-1 flow, which is not in use yet.
    Attach {
        /// The IPCP's number for it.
        n1: N1Port,
        /// Its links.
        links: N1Links,
    },
    /// The N-1 flow is allocated and may be used.
    N1Up {
        /// Which one.
        n1: N1Port,
        /// Its properties.
        props: N1Properties,
    },
    /// Closes an N-1 flow.
    DropN1 {
        /// Which one.
        n1: N1Port,
        /// The reason for the peer; empty for a graceful close.
        reason: String,
    },
}

/// The links between the app of an IPCP and the user of a flow.
#[derive(Clone, Copy)]
pub struct FlowLinks {
    /// Toward the user.
    pub to_flow: LinkId,
    /// From the user.
    pub from_flow: LinkId,
    /// Ring bytes that may be on their way to the user.
    pub window: u64,
}

impl FlowLinks {
    /// Closes the links of a flow that could not be opened: the user gets the reason.
    pub fn refuse(&self, reason: String, links: &mut Links) {
        links.close(self.to_flow, Close::Refused(reason));
        links.disconnect(self.from_flow);
    }
}

/// The links of an N-1 flow as the IPCP above, its user, sees them.
pub struct N1Links {
    /// The port-id of the flow.
    pub port: PortId,
    /// PDUs from below.
    pub input: LinkId,
    /// PDUs toward below.
    pub output: LinkId,
    /// The other end of a relay reports the end of the flow.
    pub is_silent: bool,
}

/// Requests of the plane in order. Clones share one queue.
#[derive(Clone, Default)]
pub struct RequestQueue(Rc<RefCell<VecDeque<Request>>>);

impl RequestQueue {
    /// Adds a request.
    pub fn push(&self, request: Request) {
        self.0.borrow_mut().push_back(request);
    }

    /// Takes the oldest request.
    #[must_use]
    pub fn pop(&self) -> Option<Request> {
        self.0.borrow_mut().pop_front()
    }

    /// True when no request waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }
}
