//! The flows that this member knows, and their keys.

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

/// Most flows of one member.
pub(super) const FLOWS_MAX: usize = 65_536;

/// Keys that rest before one of them is used again, so that a late message about the old flow is
/// not taken for one about the new.
const KEYS_RESTING: usize = 64;

/// Refusals that are remembered, to answer repeated requests.
const REFUSALS_MAX: usize = 1024;

/// Called flows that are remembered after their end.
const ENDED_MAX: usize = 4096;

/// Which end of a flow this member has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Initiator,
    Responder,
}

/// A flow of this member.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) role: Role,
    /// Application here, and at the other end.
    pub(super) local: String,
    pub(super) remote: String,
    pub(super) spec: FlowSpec,
    pub(super) cube: QosCube,
    /// What both members call it.
    pub(super) name: String,
    /// The member at the other end; empty when it is not chosen yet.
    pub(super) member: String,
    pub(super) address: u64,
    pub(super) incarnation: u64,
    pub(super) local_cep: CepId,
    pub(super) remote_cep: CepId,
    pub(super) state: State,
    /// Since when the other member cannot be reached.
    pub(super) unreachable: Option<Instant>,
    /// A connection that is to replace the present one.
    pub(super) renewal: Option<Exchange>,
    pub(super) last_renewal: Option<(CepId, Message)>,
}

/// State of a flow.
#[derive(Debug)]
pub(super) enum State {
    /// The directory lookup is under way.
    Resolving,
    /// The other member has been asked; these may be asked after it.
    Requesting {
        exchange: Exchange,
        others: Vec<String>,
    },
    /// The application here decides.
    Pending {
        requester: Requester,
        request: Message,
    },
    /// It carries data. The answer is kept for repeated requests.
    Open { answer: Option<Message> },
    /// The application has ended it; what it wrote is on its way.
    Draining,
    /// The other side has ended it; what it wrote may still be on its way.
    Lingering {
        until: Instant,
        is_graceful: bool,
        reason: String,
    },
}

/// A message that is repeated until it is answered.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) address: u64,
    pub(super) message: Message,
    pub(super) repeat_at: Instant,
    pub(super) repeat_after: Duration,
    pub(super) give_up_at: Instant,
    /// The other side has said that it will answer.
    pub(super) is_pending: bool,
}

/// All flows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    pub(super) flows: BTreeMap<FlowKey, Flow>,
    by_name: BTreeMap<(String, Role), FlowKey>,
    /// Flows that may have a deadline: few of many.
    timed: BTreeSet<FlowKey>,
    /// Ends that the other member has not acknowledged yet, by invoke id.
    pub(super) pending_deletes: BTreeMap<i32, Exchange>,
    /// What was refused lately: the answer, and until when it is kept.
    pub(super) refusals: BTreeMap<String, (Message, Instant)>,
    /// Called flows that have ended.
    pub(super) ended: EndedFlows,
    resting: VecDeque<FlowKey>,
    /// Keys of flows that have ended, which the owner of the IPCP does not know yet.
    unknown_ends: BTreeSet<FlowKey>,
    next: u32,
}

/// Names of called flows that have ended, the latest of them: a copy of a request that comes when
/// all is over must not open the flow again. The names hold random numbers; none is used twice.
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

    /// As [`Flows::remove`], for a flow of which [`Event::Closed`](carina_ipcp::Event::Closed)
    /// follows: the key is not used again before its owner has that.
    pub(super) fn remove_closed(&mut self, key: FlowKey) -> Option<Flow> {
        let flow = self.take(key)?;
        self.unknown_ends.insert(key);
        Some(flow)
    }

    /// The owner of the IPCP knows that a flow has ended.
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

    /// Remembers a refusal.
    pub(super) fn refused(&mut self, now: Instant, name: &str, answer: Message, until: Instant) {
        if self.refusals.len() >= REFUSALS_MAX {
            self.refusals.retain(|_, (_, until)| *until > now);
        }
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.insert(String::from(name), (answer, until));
        }
    }

    /// The flow may have a deadline from here on.
    pub(super) fn touch(&mut self, key: FlowKey) {
        self.timed.insert(key);
    }

    /// Flows that may have a deadline.
    pub(super) fn timed(&self) -> Vec<FlowKey> {
        self.timed.iter().copied().collect()
    }

    /// Forgets about flows that have no deadline any more.
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

    /// When the flow is over because the other member cannot be reached: after R of delta-t. A
    /// member that has not answered yet may be one whose routes are still on their way: it is
    /// asked as long as any other that is silent.
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
