//! Control events of an IPCP, for the log of the program that drives it.
//!
//! A [`TraceSink`] receives a [`TraceEvent`] at each step of the control side, such as the start of
//! an enrollment, the loss of a neighbour, a stalled connection, or the first drop for a reason.
//! Nothing is reported per PDU. Events borrow their data and are built only when a sink is set. The
//! sink turns them into text.

use alloc::sync::Arc;
use core::fmt;

use carina_time::Instant;
use carina_wire::dif::{Address, CepId};

use crate::api::{FlowKey, N1Port};

/// Receives the control events of an IPCP.
pub trait TraceSink: Send + Sync {
    /// Receives one event, which happened at `now`. Must not block: it runs on the thread that
    /// drives the IPCP.
    fn on_event(&self, now: Instant, event: &TraceEvent<'_>);
}

/// The receiver of an IPCP's control events; `None`, as in [`Tracer::default`], reports nothing.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<dyn TraceSink>>);

impl Tracer {
    /// Makes a tracer that reports all events to `sink`.
    #[must_use]
    pub fn new(sink: Arc<dyn TraceSink>) -> Tracer {
        Tracer(Some(sink))
    }

    /// Whether this tracer has a sink that receives events.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Reports the event that `make` builds; `make` is not called when tracing is off.
    #[inline]
    pub(crate) fn emit<'a>(&self, now: Instant, make: impl FnOnce() -> TraceEvent<'a>) {
        if let Some(sink) = &self.0 {
            sink.on_event(now, &make());
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracer").field(&self.is_on()).finish()
    }
}

/// A step of the control side of an IPCP that a [`TraceSink`] receives: an N-1 flow, a connection,
/// a member, a name or a flow has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceEvent<'a> {
    /// An N-1 flow came up.
    N1Added {
        /// The N-1 flow that the event is about.
        n1: N1Port,
        /// Name of the N-1 DIF that provides the flow.
        dif: &'a str,
        /// Name of the IPCP at the other end of the N-1 flow; empty when unknown.
        remote: &'a str,
    },
    /// An N-1 flow ended.
    N1Lost {
        /// The N-1 flow that the event is about.
        n1: N1Port,
    },
    /// An N-1 flow took no PDU within the time allowed although PDUs wait for it.
    N1Blocked {
        /// The N-1 flow that the event is about.
        n1: N1Port,
    },
    /// A connection was opened; its other end may not be known yet.
    ConnectionOpened {
        /// Local CEP-id of the connection.
        cep: CepId,
        /// The flow that the connection serves; `None` for a management channel.
        flow: Option<FlowKey>,
        /// Name of the QoS cube.
        cube: &'a str,
    },
    /// The other end of a connection became known.
    ConnectionEstablished {
        /// Local CEP-id of the connection.
        cep: CepId,
        /// Address of the other end.
        remote: Address,
        /// CEP-id of the other end.
        remote_cep: CepId,
    },
    /// A connection was removed.
    ConnectionClosed {
        /// Local CEP-id of the connection.
        cep: CepId,
    },
    /// A connection failed.
    ConnectionFailed {
        /// Local CEP-id of the connection.
        cep: CepId,
        /// Why the connection failed, as text for operators.
        reason: &'a str,
    },
    /// A connection stalled: the peer keeps the window closed, and no PDU is unacknowledged.
    ConnectionStalled {
        /// Local CEP-id of the connection.
        cep: CepId,
    },
    /// The window of a stalled connection opened.
    ConnectionResumed {
        /// Local CEP-id of the connection.
        cep: CepId,
    },
    /// The retransmission timer of a connection expired.
    RetransmissionTimeout {
        /// Local CEP-id of the connection.
        cep: CepId,
        /// Number of expiries in a row without an acknowledgement, this one included.
        in_a_row: u32,
    },
    /// A PDU or an SDU was dropped for a reason that had not occurred before in this IPCP.
    FirstDrop {
        /// The reason, as the counters name it.
        reason: &'a str,
    },
    /// A policy was changed while the DIF runs.
    PolicyChanged {
        /// Name of the component whose policy was changed.
        component: &'a str,
        /// The policy that applies from this event on.
        policy: &'a str,
    },
    /// An enrollment, or an exchange by which two members become neighbours, began.
    EnrollmentStarted {
        /// The N-1 flow that the exchange uses.
        n1: N1Port,
        /// Whether this IPCP began the enrollment or exchange.
        is_initiator: bool,
    },
    /// This IPCP became a member of the DIF.
    Enrolled {
        /// Address of this IPCP.
        address: Address,
    },
    /// An enrollment, or an exchange by which two members become neighbours, failed.
    EnrollmentFailed {
        /// The N-1 flow that the exchange used.
        n1: N1Port,
        /// Why the enrollment or exchange failed, as text for operators.
        reason: &'a str,
    },
    /// This IPCP left the DIF.
    Left {
        /// Why this IPCP left the DIF, as text for operators.
        reason: &'a str,
    },
    /// A member became a neighbour.
    NeighbourAdded {
        /// Name of the neighbour.
        name: &'a str,
        /// Address of the neighbour.
        address: Address,
        /// The N-1 flow to the neighbour.
        n1: N1Port,
    },
    /// A neighbour is lost: no N-1 flow to it is left.
    NeighbourLost {
        /// Name of the neighbour.
        name: &'a str,
        /// Why the neighbour was lost, as text for operators.
        reason: &'a str,
    },
    /// Two running IPCPs have the same name.
    NameConflict {
        /// The name that both IPCPs have.
        name: &'a str,
    },
    /// Another member uses the same address as this IPCP. This IPCP takes a new address.
    AddressConflict {
        /// Name of the other member.
        name: &'a str,
        /// The address that both members used.
        address: Address,
    },
    /// An application of this system was registered with this IPCP.
    NameRegistered {
        /// Name of the application that was registered.
        name: &'a str,
    },
    /// The registration of an application with this IPCP was withdrawn.
    NameUnregistered {
        /// Name of the application whose registration was withdrawn.
        name: &'a str,
    },
    /// A flow was requested to a name that the directory forwarding table does not have.
    NameUnknown {
        /// Name of the application to which the flow was requested.
        name: &'a str,
    },
    /// An application of this system or of another member's system requests a flow.
    FlowRequested {
        /// Key of the requested flow.
        flow: FlowKey,
        /// Name of the application at this end.
        local: &'a str,
        /// Name of the application at the other end.
        remote: &'a str,
        /// Whether an application at this IPCP requested the flow.
        is_initiator: bool,
    },
    /// A flow was allocated.
    FlowAllocated {
        /// Key of the allocated flow.
        flow: FlowKey,
        /// Name of the QoS cube that serves the flow.
        cube: &'a str,
    },
    /// A flow allocation was refused.
    FlowRefused {
        /// Key of the flow that was refused.
        flow: FlowKey,
        /// Why the flow was refused, as text for operators.
        reason: &'a str,
    },
    /// A flow ended.
    FlowEnded {
        /// Key of the flow that ended.
        flow: FlowKey,
        /// The reason; empty for an ordinary end.
        reason: &'a str,
    },
}
