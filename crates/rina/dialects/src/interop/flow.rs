//! A flow of another stack's dialect, and the messages about flows.

use alloc::string::String;
use core::fmt::Debug;

use carina_cdap::Message;
use carina_ipcp::config::QosCube;
use carina_time::{Duration, Instant};
use carina_wire::FlowSpec;
use carina_wire::dif::CepId;

/// Encodes the messages about flows of one dialect. [`FlowAllocator`] sets their invoke ids.
pub(crate) trait Codec {
    /// The part of a request that is kept to answer it.
    type Request: Clone + Debug;

    /// Makes the request for a flow.
    fn request(&self, flow: &Flow<Self::Request>) -> Message;

    /// Makes the acceptance of a flow; the CEP-ids and port-ids of both ends are known.
    fn accept(&self, flow: &Flow<Self::Request>, request: &Self::Request) -> Message;

    /// Makes the refusal of a flow.
    fn refuse(&self, request: &Self::Request, reason: &str) -> Message;

    /// Makes the message that ends a flow. The reason is empty if the application closed the flow.
    /// In a dialect whose message has no reason, the receiver always takes the reason for empty.
    fn end(&self, flow: &Flow<Self::Request>, reason: &str) -> Message;

    /// Makes the message that ends a flow which this member requested and which has no answer yet.
    /// `None` in a dialect where the flow's name is only known from the answer.
    fn abandon(&self, flow: &Flow<Self::Request>) -> Option<Message>;
}

/// Times and numbers of a dialect's flow allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowAllocatorProfile {
    /// Smallest port-id. A new flow gets the lowest free one.
    pub(crate) first_port: u32,
    /// First invoke id.
    pub(crate) first_invoke_id: i32,
    /// The message that ends a flow has an invoke id.
    pub(crate) ends_are_numbered: bool,
    /// Time limit for the answer to a request.
    pub(crate) answer: Duration,
    /// Time limit for the decision of the called application.
    pub(crate) decision: Duration,
    /// How long the end of a flow waits for PDUs that the end message has overtaken.
    pub(crate) linger: Duration,
    /// When the caller repeats the end of a flow, which is not acknowledged. All times are shorter
    /// than `rest`. Only the caller repeats: a dialect may identify the flow by the caller's
    /// port-id, which the caller may already use for another flow.
    pub(crate) end_repeats: &'static [Duration],
    /// How long a freed port-id is held back, so that a late message about the old flow is not
    /// taken for one about a new flow.
    pub(crate) rest: Duration,
    /// Largest number of flows.
    pub(crate) flows: usize,
}

/// This member's side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// A flow of this member.
#[derive(Clone, Debug)]
pub(crate) struct Flow<R> {
    pub(crate) role: Role,
    /// Name of the application at this end.
    pub(crate) local: String,
    /// Name of the application at the other end.
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    /// Port-id of this end.
    pub(crate) port: u32,
    /// Port-id of the other end; 0 until it is known.
    pub(crate) remote_port: u32,
    pub(crate) local_cep: CepId,
    pub(crate) remote_cep: CepId,
    /// Name of the member at the other end.
    pub(crate) member: String,
    pub(crate) address: u64,
    /// Invoke id of the request.
    pub(crate) invoke_id: i32,
    pub(crate) state: State<R>,
    /// Time at which the request was received or sent.
    pub(crate) since: Instant,
    /// Since when the other member is unreachable; `None` while it is reachable.
    pub(crate) unreachable: Option<Instant>,
}

/// State of a flow.
#[derive(Clone, Debug)]
pub(crate) enum State<R> {
    /// This member has sent the request to another member, and has no answer yet.
    Requesting { until: Instant },
    /// The application no longer wants the flow, but the answer may still arrive.
    Abandoned { until: Instant },
    /// Another member requests the flow. The application of this system has not accepted or refused
    /// it yet.
    Pending { request: R, until: Instant },
    /// The flow carries data.
    Open,
    /// The application of this system has ended the flow; SDUs that it wrote are still being sent,
    /// until `until` at most.
    Draining { until: Option<Instant> },
    /// The other side has ended the flow. SDUs that it sent before may still arrive, until `until`.
    /// `reason` says why the flow failed; it is empty if the other application closed the flow.
    Lingering { until: Instant, reason: String },
}

/// A flow that an application of this member requests.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    /// Name of the application at this end.
    pub(crate) local: String,
    /// Name of the application at the other end.
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    /// Name of the member that holds `remote`.
    pub(crate) member: String,
    pub(crate) address: u64,
}

/// A flow that another member requests, after its sender has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Offer<R> {
    /// Name of the application at this end.
    pub(crate) local: String,
    /// Name of the application at the other end.
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    /// Port-id of the other end.
    pub(crate) remote_port: u32,
    pub(crate) remote_cep: CepId,
    pub(crate) member: String,
    pub(crate) address: u64,
    pub(crate) invoke_id: i32,
    pub(crate) request: R,
}

/// The ids in the acceptance of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Port-id of the other end.
    pub(crate) remote_port: u32,
    pub(crate) remote_cep: CepId,
}

/// A message to the member with this address, which may be this member itself.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) address: u64,
    pub(crate) message: Message,
}

impl<R> Flow<R> {
    /// True while the request has not been answered; it may have been abandoned.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(
            self.state,
            State::Requesting { .. } | State::Abandoned { .. }
        )
    }

    /// The next deadline of the flow.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Requesting { until }
            | State::Abandoned { until }
            | State::Pending { until, .. }
            | State::Lingering { until, .. } => Some(*until),
            State::Draining { until } => *until,
            State::Open => None,
        };
        [state, self.lost_at()].into_iter().flatten().min()
    }

    /// When the flow fails because the other member is unreachable: after R of delta-t.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        Some(self.unreachable? + self.retransmission_time())
    }

    /// R of delta-t.
    pub(super) fn retransmission_time(&self) -> Duration {
        Duration::from_millis(u64::from(self.cube.retransmit_ms))
    }
}
