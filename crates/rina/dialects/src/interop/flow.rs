//! A flow and what is said about it.

use alloc::string::String;
use core::fmt::Debug;

use carina_cdap::Message;
use carina_ipcp::config::QosCube;
use carina_time::{Duration, Instant};
use carina_wire::FlowSpec;
use carina_wire::dif::CepId;

/// Writes the messages about flows of one dialect. Invoke ids are filled in by [`FlowAllocator`].
pub(crate) trait Codec {
    /// What is kept of a request so that it can be answered.
    type Request: Clone + Debug;

    /// Asks for a flow.
    fn request(&self, flow: &Flow<Self::Request>) -> Message;

    /// Accepts one; both CEP-ids and port-ids are known.
    fn accept(&self, flow: &Flow<Self::Request>, request: &Self::Request) -> Message;

    /// Refuses one.
    fn refuse(&self, request: &Self::Request, reason: &str) -> Message;

    /// Ends one. An empty reason is an end in order; where the message has no room for another,
    /// an end because of a failure looks the same.
    fn end(&self, flow: &Flow<Self::Request>, reason: &str) -> Message;

    /// Ends one that this member asked for before it has an answer; `None` where only the answer
    /// tells what the flow is called.
    fn abandon(&self, flow: &Flow<Self::Request>) -> Option<Message>;
}

/// Times and numbers of the flow allocator of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowAllocatorProfile {
    /// First port-id; they are the lowest free ones from there on.
    pub(crate) first_port: u32,
    /// First invoke id.
    pub(crate) first_invoke_id: i32,
    /// The end of a flow has an invoke id too.
    pub(crate) ends_are_numbered: bool,
    /// How long an answer may take.
    pub(crate) answer: Duration,
    /// How long an application may take to decide.
    pub(crate) decision: Duration,
    /// How long the end of a flow waits for PDUs that are behind it.
    pub(crate) linger: Duration,
    /// After which times the caller of a flow says again that it has ended, because that is not
    /// answered; all shorter than `rest`. The responder must not: where the name of the flow is
    /// the caller's port-id, the caller may use that for another one.
    pub(crate) end_repeats: &'static [Duration],
    /// How long a port-id rests, so that a late word about the old flow is not taken for one about
    /// the new.
    pub(crate) rest: Duration,
    /// Flows at most.
    pub(crate) flows: usize,
}

/// Which end of a flow this member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// A flow of this member.
#[derive(Clone, Debug)]
pub(crate) struct Flow<R> {
    pub(crate) role: Role,
    /// Application here, and at the other end.
    pub(crate) local: String,
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    /// Port-ids here and there; the other one is 0 as long as it is not known.
    pub(crate) port: u32,
    pub(crate) remote_port: u32,
    pub(crate) local_cep: CepId,
    pub(crate) remote_cep: CepId,
    /// The member at the other end.
    pub(crate) member: String,
    pub(crate) address: u64,
    /// Of the request.
    pub(crate) invoke_id: i32,
    pub(crate) state: State<R>,
    /// When the request came or went.
    pub(crate) since: Instant,
    /// Since when the other member cannot be reached.
    pub(crate) unreachable: Option<Instant>,
}

/// State of a flow.
#[derive(Clone, Debug)]
pub(crate) enum State<R> {
    /// The other member has been asked.
    Requesting { until: Instant },
    /// The application does not want it any more; the answer may still come.
    Abandoned { until: Instant },
    /// The application here decides.
    Pending { request: R, until: Instant },
    /// It carries data.
    Open,
    /// The application has ended it; what it wrote is on its way, for so long at most.
    Draining { until: Option<Instant> },
    /// The other side has ended it; what it wrote may still be on its way. The reason is empty when
    /// it ended in order.
    Lingering { until: Instant, reason: String },
}

/// A flow that an application here wants.
#[derive(Clone, Debug)]
pub(crate) struct Allocation {
    pub(crate) local: String,
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    /// The member that holds `remote`, and its address.
    pub(crate) member: String,
    pub(crate) address: u64,
}

/// A flow that another member asks for. Its sender has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Offer<R> {
    /// Application here, and at the other end.
    pub(crate) local: String,
    pub(crate) remote: String,
    pub(crate) spec: FlowSpec,
    pub(crate) cube: QosCube,
    pub(crate) remote_port: u32,
    pub(crate) remote_cep: CepId,
    pub(crate) member: String,
    pub(crate) address: u64,
    pub(crate) invoke_id: i32,
    pub(crate) request: R,
}

/// What an acceptance says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) remote_port: u32,
    pub(crate) remote_cep: CepId,
}

/// A message to the member with this address, which may be this one's own.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) address: u64,
    pub(crate) message: Message,
}

impl<R> Flow<R> {
    /// The responder has not answered the request, which may be abandoned.
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

    /// When the flow is over because the other member cannot be reached: after R of delta-t.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        Some(self.unreachable? + self.retransmission_time())
    }

    /// R of delta-t.
    pub(super) fn retransmission_time(&self) -> Duration {
        Duration::from_millis(u64::from(self.cube.retransmit_ms))
    }
}
