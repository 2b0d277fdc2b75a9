//! The flow allocator: the work of a flow allocator instance (FAI) for each flow.
//!
//! After the Pouzin Society's *Flow Allocator Specification*: Allocate, Create_Request and
//! Create_Response, Deallocate. The state of each FAI is in `flow_table`.
//!
//! ```text
//!  initiator                                               responder
//!    M_CREATE flow {applications, spec, cube,   --------->
//!                   CEP-id, address}            <---------  M_CREATE_R result 1 (pending)
//!                                                           Event::Incoming, Command::Respond
//!                                               <---------  M_CREATE_R {CEP-id}
//!    Event::Allocated
//!    =================== data, by EFCP ====================
//!    Command::Deallocate; written SDUs are sent first
//!    M_DELETE flow {is graceful, reason}        --------->  Event::Closed
//!                                               <---------  M_DELETE_R
//! ```
//!
//! Requests are repeated with the same invoke id until they are answered. The name of a flow (the
//! caller's address and a nonce) makes them idempotent.

mod deallocation;
mod exchange;
mod refusal;
mod renewal;
mod responder;

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::Cause;
use carina_ipcp::api::{Event, FlowKey};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner};
use carina_ipcp::layer::AllocateError;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, CepId};
use carina_wire::{FlowSpec, check_name};

use self::exchange::exchange;
use super::directory::Lookup;
use super::flow_table::{Flow, Role, State};
use super::queries::{LookupFailed, Purpose};
use super::requester::Requester;
use super::schema::{self, FlowObject, MemberValue, Object, SpecValue, result};
use super::{Management, qos};

/// First pause before a request is repeated.
const REPEAT_AFTER: Duration = Duration::from_millis(500);

/// Longest pause between repetitions.
const REPEAT_MAX: Duration = Duration::from_secs(4);

/// How long a request to a member that does not answer is repeated.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// How long the called application may take to accept or refuse.
const DECISION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long the end of a flow without retransmission waits for PDUs that M_DELETE has overtaken.
const LINGER: Duration = Duration::from_millis(100);

/// How long a refusal is kept, to answer repeated requests.
const REFUSED_TIME: Duration = Duration::from_secs(30);

/// Largest number of members to which the request for one flow is sent.
const CANDIDATES_MAX: usize = 8;

impl Management {
    pub(super) fn allocate_flow(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError> {
        let Some(member) = self.member.as_ref().filter(|_| self.leaving.is_none()) else {
            let dif = self.dif.clone();
            return Err(AllocateError::NotMember { dif });
        };
        check_name(local)?;
        check_name(remote)?;
        let cube = qos::select(&*self.policies.selection, &member.config.cubes, &spec)
            .map_err(|unmet| AllocateError::Specification(Cause::new(unmet)))?
            .clone();
        let name = format!("{}-{:016x}", member.address, self.random.nonce());
        let flow = Flow {
            role: Role::Initiator,
            local: local.to_string(),
            remote: remote.to_string(),
            spec,
            cube,
            name,
            member: String::new(),
            address: 0,
            incarnation: 0,
            local_cep: CepId(0),
            remote_cep: CepId(0),
            state: State::Resolving,
            unreachable: None,
            renewal: None,
            last_renewal: None,
        };
        let cube = flow.cube.clone();
        let Some(key) = self.flows.insert(flow) else {
            return Err(AllocateError::TooManyFlows);
        };
        self.log.trace(|| TraceEvent::FlowRequested {
            flow: key,
            local,
            remote,
            is_initiator: true,
        });
        let open = Open {
            owner: Owner::Flow(key),
            cube,
            msg_boundaries: spec.msg_boundaries,
            pinned: None,
        };
        match dt.open(now, open) {
            Ok(cep) => {
                if let Some(flow) = self.flows.flows.get_mut(&key) {
                    flow.local_cep = cep;
                }
            }
            Err(error) => {
                self.flows.remove(key);
                return Err(error.into());
            }
        }
        match self.lookup(now, remote, local) {
            Lookup::Known(members) => self.flow_located(now, key, Ok(members), dt),
            Lookup::Query(homes) => {
                let object = Object::Application(Some(remote.to_string()));
                let message = schema::request(Opcode::Start, &object, None);
                let what = Purpose::Lookup {
                    flow: key,
                    name: remote.to_string(),
                };
                self.query(now, homes, message, what, dt);
            }
        }
        Ok(key)
    }

    /// Continues an allocation with the result of the directory lookup.
    pub(super) fn flow_located(
        &mut self,
        now: Instant,
        key: FlowKey,
        members: Result<Vec<String>, LookupFailed>,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        if !matches!(flow.state, State::Resolving) {
            return;
        }
        let remote = flow.remote.clone();
        let is_own = self.is_of_same_system(&flow.local, &remote);
        match members.or_else(|error| if is_own { Ok(Vec::new()) } else { Err(error) }) {
            Ok(members) if members.is_empty() && !is_own => {
                self.log.trace(|| TraceEvent::NameUnknown { name: &remote });
                let reason = format!("no member of DIF {:?} has {remote:?}", self.dif);
                self.allocation_failed(now, key, reason, dt);
            }
            Ok(mut members) => {
                members.retain(|member| !is_own || *member != self.own);
                members.truncate(CANDIDATES_MAX - usize::from(is_own));
                members.extend(is_own.then(|| self.own.clone()));
                self.request_flow(
                    now,
                    key,
                    members,
                    "no member that has registered the name \
                    can be reached",
                    dt,
                );
            }
            Err(error) => self.allocation_failed(now, key, error.to_string(), dt),
        }
    }

    /// Asks the first reachable one of `members` for a flow. `reason` is why the last one failed.
    fn request_flow(
        &mut self,
        now: Instant,
        key: FlowKey,
        mut members: Vec<String>,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let next = loop {
            if members.is_empty() {
                break None;
            }
            let member = members.remove(0);
            if let Some(address) = self.address_of(&member) {
                break Some((member, address));
            }
        };
        let Some((member, address)) = next else {
            return self.allocation_failed(now, key, reason.to_string(), dt);
        };
        let invoke_id = self.invoke_id();
        let source_address = self.member.as_ref().map_or(0, |member| member.address);
        let is_reachable = self.distance(address).is_some();
        let (incarnation, own) = (self.incarnation, self.own.clone());
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        let value = FlowObject {
            source: flow.local.clone(),
            destination: flow.remote.clone(),
            source_address,
            source_cep: flow.local_cep.0,
            destination_cep: 0,
            cube: u32::from(flow.cube.id),
            spec: Some(SpecValue::from(flow.spec)),
            incarnation,
            member: own,
        };
        let object = Object::Flow(Some(flow.name.clone()));
        let mut message = schema::request(Opcode::Create, &object, Some(schema::encode(&value)));
        message.invoke_id = invoke_id;
        flow.member = member;
        flow.address = address;
        flow.unreachable = (!is_reachable).then_some(now);
        let bytes = message.encode();
        flow.state = State::Requesting {
            exchange: exchange(now, address, message),
            others: members,
        };
        self.send_to(now, address, bytes, dt);
    }

    fn allocation_failed(
        &mut self,
        now: Instant,
        key: FlowKey,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        if self.flows.remove(key).is_some() {
            self.log.count("flows-refused");
            dt.close(now, Owner::Flow(key));
            self.log.push(Event::Allocated {
                flow: key,
                result: Err(reason.into()),
            });
        }
    }

    /// Handles an answer about a flow: to its request, renewal or end.
    pub(super) fn on_flow_answer(
        &mut self,
        now: Instant,
        requester: &Requester,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.opcode == Opcode::DeleteR {
            return self.on_delete_response(requester, message.invoke_id);
        }
        let Some(Object::Flow(Some(name))) = Object::parse(&message.name) else {
            return;
        };
        if message.opcode == Opcode::WriteR {
            return self.on_renewal_response(now, requester, &name, message, dt);
        }
        let key = self.flows.find(&name, Role::Initiator);
        let flow = key.and_then(|key| Some((key, self.flows.flows.get_mut(&key)?)));
        let Some((key, flow)) = flow.filter(|(_, flow)| flow.member == requester.name) else {
            // This side gave the flow up; the other side must not keep its end.
            if message.result == 0 {
                self.send_delete(
                    now,
                    requester.address,
                    &name,
                    false,
                    "no request waits for this answer",
                    dt,
                );
            }
            return;
        };
        let State::Requesting { exchange, others } = &mut flow.state else {
            return;
        };
        if exchange.message.invoke_id != message.invoke_id {
            return self.log.count("stale");
        }
        if message.result == result::PENDING {
            if !core::mem::replace(&mut exchange.is_pending, true) {
                exchange.give_up_at = now + DECISION_TIMEOUT;
            }
            return;
        }
        if message.result != 0 {
            let others = core::mem::take(others);
            let reason = format!("{}: {}", flow.member, message.reason);
            if message.result == result::NOT_HERE {
                let remote = flow.remote.clone();
                self.forget_holders(&remote);
                return self.request_flow(now, key, others, &reason, dt);
            }
            return self.allocation_failed(now, key, reason, dt);
        }
        let value = schema::decode::<FlowObject>(schema::bytes(message));
        let Some(value) = value.filter(|value| value.destination_cep != 0) else {
            let reason = format!("the answer of {} is malformed", requester.name);
            self.send_delete(now, requester.address, &name, false, &reason, dt);
            return self.allocation_failed(now, key, reason, dt);
        };
        flow.remote_cep = CepId(value.destination_cep);
        flow.incarnation = value.incarnation;
        flow.state = State::Open { answer: None };
        dt.connect(now, flow.local_cep, Address(flow.address), flow.remote_cep);
        let cube = flow.cube.name.as_str();
        self.log
            .trace(|| TraceEvent::FlowAllocated { flow: key, cube });
        self.log.push(Event::Allocated {
            flow: key,
            result: Ok(()),
        });
    }

    /// Handles M_DELETE_R: the other side has processed the end of a flow.
    fn on_delete_response(&mut self, requester: &Requester, invoke_id: i32) {
        let ending = self.flows.pending_deletes.get(&invoke_id);
        if ending.is_some_and(|ending| ending.address == requester.address) {
            self.flows.pending_deletes.remove(&invoke_id);
        }
    }

    pub(super) fn flows_timeout(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        if self.flows.due().is_none_or(|due| due > now) {
            return;
        }
        for key in self.flows.timed() {
            self.flow_timeout(now, key, dt);
        }
        let mut repeated = Vec::new();
        self.flows.pending_deletes.retain(|_, ending| {
            if ending.give_up_at <= now {
                return false;
            }
            repeated.extend(ending.repeat(now));
            true
        });
        for (address, bytes) in repeated {
            self.log.count("repeated");
            self.send_to(now, address, bytes, dt);
        }
        self.flows.refusals.retain(|_, (_, until)| *until > now);
    }

    fn flow_timeout(&mut self, now: Instant, key: FlowKey, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        if flow.lost_at().is_some_and(|at| at <= now) {
            let reason = format!("member {} cannot be reached", flow.member);
            self.log.count("flows-failed");
            let (address, name) = (flow.address, flow.name.clone());
            self.close_flow(now, key, false, reason.clone(), dt);
            // A route may exist or return by then; it lets the other side learn of the end.
            return self.send_delete(now, address, &name, false, &reason, dt);
        }
        match &mut flow.state {
            State::Requesting { exchange, others } if exchange.give_up_at <= now => {
                let others = core::mem::take(others);
                let reason = match flow.unreachable {
                    None => format!("{} does not answer", flow.member),
                    Some(_) => format!(
                        "there is no route to {}, which has registered the name",
                        flow.member
                    ),
                };
                let (address, name) = (flow.address, flow.name.clone());
                // The member may have accepted the flow, with its answer lost.
                self.send_delete(now, address, &name, false, &reason, dt);
                self.request_flow(now, key, others, &reason, dt);
                return;
            }
            State::Requesting { exchange, .. } => {
                if let Some((address, bytes)) = exchange.repeat(now) {
                    self.log.count("repeated");
                    self.send_to(now, address, bytes, dt);
                }
                return;
            }
            State::Lingering {
                until,
                is_graceful,
                reason,
            } if *until <= now => {
                let (is_graceful, reason) = (*is_graceful, reason.clone());
                return self.close_flow(now, key, is_graceful, reason, dt);
            }
            _ => {}
        }
        if let Some(renewal) = &mut flow.renewal {
            let next = renewal.repeat(now);
            if renewal.give_up_at <= now {
                flow.renewal = None;
            } else if let Some((address, bytes)) = next {
                self.send_to(now, address, bytes, dt);
            }
        }
    }

    /// Updates, after a change of routes, which flows have a reachable member at the other end.
    pub(super) fn check_reachability(&mut self, now: Instant, _dt: &mut dyn DataTransfer) {
        let keys: Vec<(FlowKey, u64)> = self
            .flows
            .flows
            .iter()
            .filter(|(_, flow)| flow.address != 0)
            .map(|(key, flow)| (*key, flow.address))
            .collect();
        for (key, address) in keys {
            let is_reachable = self.distance(address).is_some();
            if let Some(flow) = self.flows.flows.get_mut(&key) {
                if is_reachable
                    && flow.unreachable.is_some()
                    && let State::Requesting { exchange, .. } = &mut flow.state
                {
                    // Messages sent without a route have not arrived; repeat soon.
                    exchange.repeat_at = now;
                    exchange.repeat_after = REPEAT_AFTER / 2;
                }
                flow.unreachable = match (is_reachable, flow.unreachable) {
                    (true, _) => None,
                    (false, since) => Some(since.unwrap_or(now)),
                };
                if !is_reachable {
                    self.flows.touch(key);
                }
            }
        }
    }

    /// Updates flows after member entries have changed: a flow to a member that restarted fails, a
    /// flow to a member with a new address continues with that address.
    pub(super) fn update_flow_peers(
        &mut self,
        now: Instant,
        members: &BTreeSet<String>,
        dt: &mut dyn DataTransfer,
    ) {
        let flows = self.flows.flows.iter();
        let keys: Vec<FlowKey> = flows
            .filter(|(_, flow)| members.contains(&flow.member))
            .map(|(key, _)| *key)
            .collect();
        for key in keys {
            let Some(flow) = self.flows.flows.get_mut(&key) else {
                continue;
            };
            let has_ended = matches!(flow.state, State::Resolving | State::Lingering { .. });
            if has_ended || flow.member == self.own {
                continue;
            }
            let Some(value) = MemberValue::of(&self.store, &flow.member) else {
                continue;
            };
            // A member that has not answered yet has not named its incarnation.
            let is_known = flow.incarnation != 0;
            if is_known && value.incarnation != flow.incarnation {
                let reason = format!("member {} has restarted", flow.member);
                self.log.count("flows-failed");
                self.close_flow(now, key, false, reason, dt);
            } else if value.address != flow.address {
                flow.address = value.address;
                match &mut flow.state {
                    State::Requesting { exchange, .. } => exchange.address = value.address,
                    State::Pending { requester, .. } => requester.address = value.address,
                    _ => dt.connect(now, flow.local_cep, Address(flow.address), flow.remote_cep),
                }
            }
        }
    }
}
