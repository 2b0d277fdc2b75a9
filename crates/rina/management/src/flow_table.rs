//! The flows of this member and their keys.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use carina_cdap::Message;
use carina_ipcp::api::FlowKey;
use carina_ipcp::config::QosCube;
use carina_time::{Duration, Instant};
use carina_wire::FlowSpec;
use carina_wire::dif::CepId;

use super::requester::Requester;

/// Largest number of flows of one member.
pub(super) const FLOWS_MAX: usize = 65_536;

/// Number of freed keys that are held back before one is reused, so that a late message about the
/// old flow is not taken for one about the new flow.
const KEYS_RESTING: usize = 64;

/// Largest number of refusals that are kept to answer repeated requests.
const REFUSALS_MAX: usize = 1024;

/// Largest number of ended flows that the called member remembers.
const ENDED_MAX: usize = 4096;

/// This member's side of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// A flow of this member.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) role: Role,
    /// Name of the application at this end.
    pub(super) local: String,
    /// Name of the application at the other end.
    pub(super) remote: String,
    pub(super) spec: FlowSpec,
    pub(super) cube: QosCube,
    /// Name of the flow, the same at both members.
    pub(super) name: String,
    /// Name of the member at the other end; empty until it is chosen.
    pub(super) member: String,
    pub(super) address: u64,
    pub(super) incarnation: u64,
    pub(super) local_cep: CepId,
    pub(super) remote_cep: CepId,
    pub(super) state: State,
    /// Since when the other member is unreachable; `None` while it is reachable.
    pub(super) unreachable: Option<Instant>,
    /// The request that opens the connection to replace the present one; `None` without a renewal.
    pub(super) renewal: Option<Exchange>,
    pub(super) last_renewal: Option<(CepId, Message)>,
}

/// State of a flow.
#[derive(Debug)]
pub(super) enum State {
    /// An application of this system requests the flow. This member looks for the remote
    /// application in the directory.
    Resolving,
    /// This member has sent the request to another member, and asks `others` next if that member
    /// refuses.
    Requesting {
        exchange: Exchange,
        others: Vec<String>,
    },
    /// Another member requests the flow. The application of this system has not accepted or refused
    /// it yet.
    Pending {
        requester: Requester,
        request: Message,
    },
    /// The flow carries data. `answer` is repeated for repeated requests.
    Open { answer: Option<Message> },
    /// The application of this system has ended the flow; SDUs that it wrote are still being sent.
    Draining,
    /// The other side has ended the flow; SDUs that it sent may still arrive.
    Lingering {
        until: Instant,
        is_graceful: bool,
        reason: String,
    },
}

/// A request that is repeated until it is answered.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) address: u64,
    pub(super) message: Message,
    pub(super) repeat_at: Instant,
    pub(super) repeat_after: Duration,
    pub(super) give_up_at: Instant,
    /// The other side has confirmed the request and will answer it later.
    pub(super) is_pending: bool,
}

/// All flows of this member.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) flows: BTreeMap<FlowKey, Flow>,
    by_name: BTreeMap<(String, Role), FlowKey>,
    /// The flows that may have a deadline: a small part of all.
    timed: BTreeSet<FlowKey>,
    /// M_DELETE requests that the other member has not answered yet, by invoke id.
    pub(super) pending_deletes: BTreeMap<i32, Exchange>,
    /// Recent refusals by flow name: the answer, and until when it is kept.
    pub(super) refusals: BTreeMap<String, (Message, Instant)>,
    /// Flows that have ended at this member as the called one.
    pub(super) ended: EndedFlows,
    resting: VecDeque<FlowKey>,
    /// Keys of ended flows whose end the owner of the IPCP has not received yet.
    unknown_ends: BTreeSet<FlowKey>,
    next: u32,
}

/// Names of the called flows that ended most recently. A late copy of a request must not open such
/// a flow again. The names contain random numbers, so none is used twice.
#[derive(Debug, Default)]
pub(super) struct EndedFlows {
    names: BTreeSet<String>,
    in_order: VecDeque<String>,
}

impl EndedFlows {
    pub(super) fn insert(&mut self, name: String) {
        if !self.names.insert(name.clone()) {
            return;
        }
        self.in_order.push_back(name);
        if self.in_order.len() > ENDED_MAX
            && let Some(oldest) = self.in_order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.contains(name)
    }
}

impl Flows {
    pub(super) fn insert(&mut self, flow: Flow) -> Option<FlowKey> {
        if self.flows.len() + self.unknown_ends.len() >= FLOWS_MAX {
            return None;
        }
        let key = match self.resting.pop_front() {
            Some(key) if self.resting.len() >= KEYS_RESTING => key,
            other => {
                if let Some(key) = other {
                    self.resting.push_front(key);
                }
                self.next += 1;
                FlowKey(self.next - 1)
            }
        };
        self.by_name.insert((flow.name.clone(), flow.role), key);
        self.flows.insert(key, flow);
        self.timed.insert(key);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.take(key)?;
        self.resting.push_back(key);
        Some(flow)
    }

    /// Like [`Flows::remove`], for a flow whose [`Event::Closed`](carina_ipcp::Event::Closed)
    /// follows. The key is not reused until the owner of the IPCP has received that event.
    pub(super) fn remove_closed(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.take(key)?;
        self.unknown_ends.insert(key);
        Some(flow)
    }

    /// Frees the key of a flow, since the owner of the IPCP has received the flow's end.
    pub(super) fn end_is_known(&mut self, key: FlowKey) {
        if self.unknown_ends.remove(&key) {
            self.resting.push_back(key);
        }
    }

    fn take(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.flows.remove(&key)?;
        self.by_name.remove(&(flow.name.clone(), flow.role));
        self.timed.remove(&key);
        if flow.role == Role::Responder {
            self.ended.insert(flow.name.clone());
        }
        Some(flow)
    }

    pub(super) fn find(&self, name: &str, role: Role) -> Option<FlowKey> {
        self.by_name.get(&(String::from(name), role)).copied()
    }

    /// Stores the answer to a refused request until `until`, unless there are too many.
    pub(super) fn refused(&mut self, now: Instant, name: &str, answer: Message, until: Instant) {
        if self.refusals.len() >= REFUSALS_MAX {
            self.refusals.retain(|_, (_, until)| *until > now);
        }
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.insert(String::from(name), (answer, until));
        }
    }

    /// Marks a flow that may have a deadline from now on.
    pub(super) fn touch(&mut self, key: FlowKey) {
        self.timed.insert(key);
    }

    /// Flows that may have a deadline.
    pub(super) fn timed(&self) -> Vec<FlowKey> {
        self.timed.iter().copied().collect()
    }

    /// Unmarks the flows that no longer have a deadline.
    pub(super) fn process_pending(&mut self) {
        let flows = &self.flows;
        self.timed.retain(|key| {
            flows.get(key).is_some_and(|flow| {
                let waits = matches!(flow.state, State::Resolving | State::Requesting { .. });
                waits || flow.due().is_some()
            })
        });
    }

    pub(super) fn due(&self) -> Option<Instant> {
        let timed = self
            .timed
            .iter()
            .filter_map(|key| self.flows.get(key)?.due());
        let pending_deletes = self.pending_deletes.values().map(Exchange::due);
        timed.chain(pending_deletes).min()
    }
}

impl Flow {
    fn due(&self) -> Option<Instant> {
        let state = match &self.state {
            State::Requesting { exchange, .. } => Some(exchange.due()),
            State::Lingering { until, .. } => Some(*until),
            _ => None,
        };
        let renewal = self.renewal.as_ref().map(Exchange::due);
        [state, renewal, self.lost_at()].into_iter().flatten().min()
    }

    /// When the flow fails because the other member is unreachable: after R of delta-t. `None` for
    /// a request that is not confirmed yet: routes to the member may still be computed, so it is
    /// repeated as long as to any silent member.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        match &self.state {
            State::Requesting { exchange, .. } if !exchange.is_pending => None,
            _ => Some(self.unreachable? + Duration::from_millis(self.cube.retransmit_ms.into())),
        }
    }
}

impl Exchange {
    pub(super) fn due(&self) -> Instant {
        self.repeat_at.min(self.give_up_at)
    }
}
