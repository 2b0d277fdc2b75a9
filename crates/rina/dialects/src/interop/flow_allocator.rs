//! The flow allocator of the dialects of other stacks.
//!
//! ```text
//!   initiator                                           responder
//!
//!   allocate            -- request -------------->      offer
//!   REQUESTING                                          PENDING       Event::Incoming
//!     |                                                    | respond
//!     | answer          <- acceptance or refusal --        |
//!     v                                                    v
//!   OPEN  Event::Allocated                              OPEN
//!     |                                                    |
//!     | deallocate                                         |
//!     v                                                    |
//!   DRAINING: written SDUs are sent                      |
//!     | drained, or R passes while the window is closed     v
//!     x                 -- end ------------------>      LINGERING: received SDUs are delivered
//!                                                          | `linger` later
//!                                                          x          Event::Closed
//! ```
//!
//! Either side may end a flow. Requests are not repeated: a request without an answer fails after a
//! while (REQUESTING). If the dialect allows it, the end of the flow is then sent. If the request
//! is accepted after all, the other side's end of the flow is ended (ABANDONED). A [`Codec`]
//! encodes the messages.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::ToString;

use carina_cdap::Message;
use carina_ipcp::api::{Event, FlowKey, Reason};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner};
use carina_ipcp::event_log::EventLog;
use carina_ipcp::layer::AllocateError;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, CepId};

pub(crate) use super::flow::{
    Accepted, Allocation, Codec, Flow, FlowAllocatorProfile, Offer, Outgoing, Role, State,
};

mod port_ids;

/// All flows of one member. The key of a flow is its port-id.
#[derive(Debug)]
pub(crate) struct FlowAllocator<C: Codec> {
    pub(crate) codec: C,
    profile: FlowAllocatorProfile,
    pub(super) flows: BTreeMap<FlowKey, Flow<C::Request>>,
    asked: BTreeMap<i32, FlowKey>,
    /// Flows that other members requested, by their address and port-id.
    by_initiator: BTreeMap<(u64, u32), FlowKey>,
    deadlines: BTreeSet<(Instant, FlowKey)>,
    due_of: BTreeMap<FlowKey, Instant>,
    free: BTreeSet<u32>,
    resting: VecDeque<(Instant, u32)>,
    /// Keys of ended flows whose end the owner of the IPCP has not received yet, and until when
    /// each is held back.
    unknown_ends: BTreeMap<FlowKey, Instant>,
    next_port: u32,
    next_invoke_id: i32,
    reuses_invoke_ids: bool,
    outbox: VecDeque<Outgoing>,
    /// Ends to send again, by time and a number that makes the key unique.
    repeats: BTreeMap<(Instant, u64), Outgoing>,
    next_repeat: u64,
    pub(super) events: VecDeque<Event>,
}

/// A second request for the same flow within this time is taken for a duplicate of the first.
const DUPLICATE_WINDOW: Duration = Duration::from_secs(5);

impl<C: Codec> FlowAllocator<C> {
    /// Makes a flow allocator without flows.
    pub(crate) fn new(codec: C, profile: FlowAllocatorProfile) -> FlowAllocator<C> {
        FlowAllocator {
            codec,
            profile,
            flows: BTreeMap::new(),
            asked: BTreeMap::new(),
            by_initiator: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            due_of: BTreeMap::new(),
            free: BTreeSet::new(),
            resting: VecDeque::new(),
            unknown_ends: BTreeMap::new(),
            next_port: profile.first_port,
            next_invoke_id: profile.first_invoke_id,
            reuses_invoke_ids: false,
            outbox: VecDeque::new(),
            repeats: BTreeMap::new(),
            next_repeat: 0,
            events: VecDeque::new(),
        }
    }

    /// Makes invoke ids the smallest that no unanswered request has, instead of increasing ones.
    #[must_use]
    pub(crate) fn reusing_invoke_ids(mut self) -> FlowAllocator<C> {
        self.reuses_invoke_ids = true;
        self
    }

    /// Takes the next message to send.
    pub(crate) fn poll_message(&mut self) -> Option<Outgoing> {
        self.outbox.pop_front()
    }

    /// Takes the next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`FlowAllocator::handle_timeout`] is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let flow = self.deadlines.first().map(|(at, _)| *at);
        let repeats = self.repeats.first_key_value().map(|((at, _), _)| *at);
        flow.into_iter().chain(repeats).min()
    }

    /// A flow by its key.
    pub(crate) fn get(&self, key: FlowKey) -> Option<&Flow<C::Request>> {
        self.flows.get(&key)
    }

    /// All flows.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowKey, &Flow<C::Request>)> {
        self.flows.iter().map(|(key, flow)| (*key, flow))
    }

    /// The flow that another member requested, by that member's address and port-id.
    pub(crate) fn requested_by(&self, address: u64, remote_port: u32) -> Option<FlowKey> {
        self.by_initiator.get(&(address, remote_port)).copied()
    }

    /// Requests a flow from the member that holds the application. [`Event::Allocated`] follows.
    ///
    /// # Errors
    /// There are too many flows, or data transfer cannot open a connection.
    pub(crate) fn allocate(
        &mut self,
        now: Instant,
        allocation: Allocation,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError> {
        let Some(key) = self.free_key(now) else {
            return Err(AllocateError::TooManyFlows);
        };
        let open = Open {
            owner: Owner::Flow(key),
            cube: allocation.cube.clone(),
            msg_boundaries: allocation.spec.msg_boundaries,
            pinned: None,
        };
        let local_cep = match dt.open(now, open) {
            Ok(cep) => cep,
            Err(error) => {
                self.free.insert(key.0);
                return Err(error.into());
            }
        };
        let flow = Flow {
            role: Role::Initiator,
            local: allocation.local,
            remote: allocation.remote,
            spec: allocation.spec,
            cube: allocation.cube,
            port: key.0,
            remote_port: 0,
            local_cep,
            remote_cep: CepId(0),
            member: allocation.member,
            address: allocation.address,
            invoke_id: self.invoke_id(),
            state: State::Requesting {
                until: now + self.profile.answer,
            },
            since: now,
            unreachable: None,
        };
        let mut message = self.codec.request(&flow);
        message.invoke_id = flow.invoke_id;
        self.asked.insert(flow.invoke_id, key);
        self.send(flow.address, message);
        self.flows.insert(key, flow);
        self.update_deadline(key);
        Ok(key)
    }

    /// Handles the request of another member for a flow. [`Event::Incoming`] follows.
    ///
    /// # Errors
    /// The name of the counter for the discarded request.
    pub(crate) fn offer(
        &mut self,
        now: Instant,
        offer: Offer<C::Request>,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        if let Some(old) = self.requested_by(offer.address, offer.remote_port) {
            let is_again = self.flows.get(&old).is_some_and(|flow| {
                flow.invoke_id == offer.invoke_id && now < flow.since + DUPLICATE_WINDOW
            });
            if is_again {
                return Err("flow-request-duplicated");
            }
            let reason = format!("{} uses the port-id for a new flow", offer.member);
            self.close(now, old, false, reason, dt);
        }
        let Some(key) = self.free_key(now) else {
            self.refuse(&offer, "this member has as many flows as it can");
            return Err("too-many-flows");
        };
        let Offer { local, remote, .. } = &offer;
        self.events.push_back(Event::Incoming {
            flow: key,
            local: local.clone(),
            remote: remote.clone(),
            spec: offer.spec,
        });
        self.by_initiator
            .insert((offer.address, offer.remote_port), key);
        let flow = Flow {
            role: Role::Responder,
            local: offer.local,
            remote: offer.remote,
            spec: offer.spec,
            cube: offer.cube,
            port: key.0,
            remote_port: offer.remote_port,
            local_cep: CepId(0),
            remote_cep: offer.remote_cep,
            member: offer.member,
            address: offer.address,
            invoke_id: offer.invoke_id,
            state: State::Pending {
                request: offer.request,
                until: now + self.profile.decision,
            },
            since: now,
            unreachable: None,
        };
        self.flows.insert(key, flow);
        self.update_deadline(key);
        Ok(())
    }

    /// Refuses a flow without asking the called application.
    pub(crate) fn refuse(&mut self, offer: &Offer<C::Request>, reason: &str) {
        let mut message = self.codec.refuse(&offer.request, reason);
        message.invoke_id = offer.invoke_id;
        self.send(offer.address, message);
    }

    /// Records that another member than the one asked answers a request, because the request was
    /// forwarded. Call it before [`FlowAllocator::answer`].
    pub(crate) fn answered_by(&mut self, key: FlowKey, address: u64, member: &str) {
        if let Some(flow) = self.flows.get_mut(&key)
            && flow.is_unanswered()
        {
            flow.address = address;
            flow.member = member.to_string();
        }
    }

    /// Handles the answer to a request, from the member with address `from`.
    ///
    /// # Errors
    /// The name of the counter for the discarded answer.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        from: u64,
        invoke_id: i32,
        answer: Result<Accepted, Reason>,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let key = *self.asked.get(&invoke_id).ok_or("response-unsolicited")?;
        let flow = self.flows.get_mut(&key).ok_or("response-unsolicited")?;
        if flow.address != from {
            return Err("response-of-another");
        }
        self.asked.remove(&invoke_id);
        let is_wanted = matches!(flow.state, State::Requesting { .. });
        match answer {
            Ok(accepted) => {
                flow.remote_port = accepted.remote_port;
                flow.remote_cep = accepted.remote_cep;
                if is_wanted {
                    flow.state = State::Open;
                    dt.connect(now, flow.local_cep, Address(from), accepted.remote_cep);
                    let result = Ok(());
                    self.events
                        .push_back(Event::Allocated { flow: key, result });
                    self.update_deadline(key);
                } else {
                    self.end(now, key, "", dt);
                }
            }
            Err(reason) => {
                let reason = if reason.is_empty() {
                    format!("{} refused the flow", flow.member)
                } else {
                    reason.into()
                };
                self.close(now, key, false, reason, dt);
            }
        }
        Ok(())
    }

    /// Handles the decision of the called application. Returns true when the flow is allocated now.
    pub(crate) fn respond(
        &mut self,
        now: Instant,
        key: FlowKey,
        answer: Result<(), Reason>,
        dt: &mut dyn DataTransfer,
    ) -> bool {
        let Some(flow) = self.flows.get_mut(&key) else {
            return false;
        };
        let State::Pending { request, .. } = &flow.state else {
            return false;
        };
        let request = request.clone();
        let open = Open {
            owner: Owner::Flow(key),
            cube: flow.cube.clone(),
            msg_boundaries: flow.spec.msg_boundaries,
            pinned: None,
        };
        let opened = answer.and_then(|()| {
            dt.open(now, open).map_err(|error| {
                let reason = format!("no connection: {error}");
                self.events.push_back(Event::Closed {
                    flow: key,
                    is_graceful: false,
                    reason,
                });
                Reason::from(error.to_string())
            })
        });
        let (address, invoke_id) = (flow.address, flow.invoke_id);
        let is_allocated = opened.is_ok();
        let mut message = match opened {
            Ok(cep) => {
                flow.local_cep = cep;
                flow.state = State::Open;
                dt.connect(now, cep, Address(address), flow.remote_cep);
                self.codec.accept(flow, &request)
            }
            Err(reason) => {
                self.remove(now, key);
                self.codec.refuse(&request, &reason)
            }
        };
        message.invoke_id = invoke_id;
        self.send(address, message);
        self.update_deadline(key);
        is_allocated
    }

    /// Reports the allocation of a flow to the tracer of `log`.
    pub(crate) fn trace_allocated(&self, key: FlowKey, log: &EventLog) {
        if let Some(flow) = self.flows.get(&key) {
            let cube = flow.cube.name.as_str();
            log.trace(|| TraceEvent::FlowAllocated { flow: key, cube });
        }
    }

    /// Sends an end to the member at `address`, which has a flow that this member does not have.
    pub(crate) fn send_stray_end(&mut self, address: u64, mut end: Message) {
        if self.profile.ends_are_numbered {
            end.invoke_id = self.invoke_id();
        }
        self.send(address, end);
    }

    /// True when a flow leads to this port-id of the member at `address`.
    pub(crate) fn leads_to(&self, address: u64, remote_port: u32) -> bool {
        let mut flows = self.flows.values();
        flows.any(|flow| flow.address == address && flow.remote_port == remote_port)
    }

    pub(super) fn send(&mut self, address: u64, message: Message) {
        self.outbox.push_back(Outgoing { address, message });
    }

    /// Schedules the repetitions of a message that is sent now.
    pub(super) fn schedule_repeats(&mut self, now: Instant, address: u64, message: &Message) {
        for pause in self.profile.end_repeats {
            let message = message.clone();
            let key = (now + *pause, self.next_repeat);
            self.next_repeat += 1;
            self.repeats.insert(key, Outgoing { address, message });
        }
    }

    /// Sends the repetitions that are due.
    pub(super) fn send_repeats(&mut self, now: Instant) {
        while let Some(entry) = self
            .repeats
            .first_entry()
            .filter(|first_entry| first_entry.key().0 <= now)
        {
            self.outbox.push_back(entry.remove());
        }
    }

    /// Cancels all repetitions, because the membership ends.
    pub(super) fn cancel_repeats(&mut self) {
        self.repeats.clear();
    }

    pub(super) fn profile(&self) -> &FlowAllocatorProfile {
        &self.profile
    }

    /// Returns an unused invoke id.
    pub(super) fn invoke_id(&mut self) -> i32 {
        if self.reuses_invoke_ids {
            self.next_invoke_id = self.profile.first_invoke_id;
        }
        loop {
            let id = self.next_invoke_id;
            self.next_invoke_id = id.checked_add(1).unwrap_or(self.profile.first_invoke_id);
            if !self.asked.contains_key(&id) {
                return id;
            }
        }
    }

    /// Takes the next flow whose deadline has passed, and removes its deadline.
    pub(super) fn pop_overdue(&mut self, now: Instant) -> Option<FlowKey> {
        let (at, key) = *self.deadlines.first()?;
        if at > now {
            return None;
        }
        self.deadlines.remove(&(at, key));
        self.due_of.remove(&key);
        Some(key)
    }

    /// Recomputes the deadline of a flow.
    pub(super) fn update_deadline(&mut self, key: FlowKey) {
        if let Some(at) = self.due_of.remove(&key) {
            self.deadlines.remove(&(at, key));
        }
        if let Some(at) = self.flows.get(&key).and_then(Flow::due) {
            self.due_of.insert(key, at);
            self.deadlines.insert((at, key));
        }
    }
}
