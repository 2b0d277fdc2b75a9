//! The flow allocator.
//!
//! ```text
//!  caller's member                                         called member
//!    M_CREATE flow {applications, spec, cube,   --------->
//!                   CEP-id, address}            <---------  M_CREATE_R result 1 (pending)
//!                                                           Event::Incoming, Command::Respond
//!                                               <---------  M_CREATE_R {CEP-id}
//!    Event::Allocated
//!    =================== data, by EFCP ====================
//!    Command::Deallocate, what was written is through
//!    M_DELETE flow {is graceful, reason}        --------->  Event::Closed
//!                                               <---------  M_DELETE_R
//! ```
//!
//! Requests are repeated with the same invoke id until they are answered; the name of a flow (the
//! caller's address and a nonce) makes them idempotent.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_wire::dif::{Address, CepId};
use carina_wire::{FlowSpec, check_name};

use super::access::Deed;
use super::dialect::{self, FlowEnd, FlowObject, MemberValue, Object, Rolling, SpecValue, result};
use super::directory::Lookup;
use super::flows::{Exchange, Flow, Role, State};
use super::queries::What;
use super::replicated::Kind;
use super::rib::Asker;
use super::{MS, Management, qos};
use crate::api::{Event, FlowKey};
use crate::seam::{DataTransfer, Open, Owner};

/// First pause before a request is repeated.
const REPEAT_NS: u64 = 500 * MS;

/// Longest pause.
const REPEAT_MAX_NS: u64 = 4_000 * MS;

/// How long a member that says nothing is asked.
const SILENCE_NS: u64 = 10_000 * MS;

/// How long an application may take to decide.
const DECISION_NS: u64 = 120_000 * MS;

/// How long the end of a flow without retransmission waits for PDUs that are behind it.
const LINGER_NS: u64 = 100 * MS;

/// How long a refusal is remembered.
const REFUSED_NS: u64 = 30_000 * MS;

/// Members that are asked for one flow, at most.
const CANDIDATES_MAX: usize = 8;

impl Management {
    pub(super) fn allocate_flow(
        &mut self,
        now: u64,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, String> {
        let Some(member) = self.member.as_ref().filter(|_| self.leaving.is_none()) else {
            return Err(format!("this IPCP is no member of DIF {:?}", self.dif));
        };
        check_name(local).map_err(|error| error.to_string())?;
        check_name(remote).map_err(|error| error.to_string())?;
        let cube = qos::select(&*self.policies.selection, &member.config.cubes, &spec)?.clone();
        let name = format!("{}-{:016x}", member.address, self.random.nonce());
        let flow = Flow {
            role: Role::Caller,
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
            state: State::Looking,
            unreachable: None,
            rolling: None,
            rolled: None,
        };
        let cube = flow.cube.clone();
        let Some(key) = self.flows.insert(flow) else {
            return Err("this member has as many flows as it can".to_string());
        };
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
            Err(reason) => {
                self.flows.remove(key);
                return Err(reason);
            }
        }
        match self.lookup(now, remote) {
            Lookup::Known(members) => self.flow_places(now, key, Ok(members), dt),
            Lookup::Ask(homes) => {
                let object = Object::Application(Some(remote.to_string()));
                let message = dialect::request(Opcode::Start, &object, None);
                let what = What::Lookup {
                    flow: key,
                    name: remote.to_string(),
                };
                self.query(now, homes, message, what, dt);
            }
        }
        Ok(key)
    }

    /// It is known where the application of a flow is, or not.
    pub(super) fn flow_places(
        &mut self,
        now: u64,
        key: FlowKey,
        members: Result<Vec<String>, String>,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        if !matches!(flow.state, State::Looking) {
            return;
        }
        let remote = flow.remote.clone();
        match members {
            Ok(members) if members.is_empty() => {
                let reason = format!("no member of DIF {:?} has {remote:?}", self.dif);
                self.allocation_failed(now, key, reason, dt);
            }
            Ok(mut members) => {
                members.truncate(CANDIDATES_MAX);
                self.ask_for_flow(now, key, members, "no member with it can be reached", dt);
            }
            Err(reason) => self.allocation_failed(now, key, reason, dt),
        }
    }

    /// Asks the first of `members` for a flow; `reason` is what the one before said.
    fn ask_for_flow(
        &mut self,
        now: u64,
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
        let invoke = self.invoke();
        let source_address = self.member.as_ref().map_or(0, |member| member.address);
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
        let mut message = dialect::request(Opcode::Create, &object, Some(dialect::encode(&value)));
        message.invoke_id = invoke;
        flow.member = member;
        flow.address = address;
        let bytes = message.encode();
        flow.state = State::Asking {
            exchange: exchange(now, address, message),
            others: members,
        };
        self.send_to(now, address, bytes, dt);
    }

    fn allocation_failed(
        &mut self,
        now: u64,
        key: FlowKey,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        if self.flows.remove(key).is_some() {
            self.journal.count("flows-refused");
            dt.close(now, Owner::Flow(key));
            self.events.push_back(Event::Allocated {
                flow: key,
                result: Err(reason),
            });
        }
    }

    /// M_CREATE at the called member.
    pub(super) fn on_flow_wanted(
        &mut self,
        now: u64,
        asker: &Asker,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if let Some(key) = self.flows.find(name, Role::Called) {
            return self.on_flow_wanted_again(now, asker, key, message, dt);
        }
        if let Some((answer, _)) = self.flows.refusals.get(name) {
            let answer = answer.clone();
            return self.reply_to(now, asker, &answer, dt);
        }
        let wanted = dialect::decode::<FlowObject>(dialect::bytes(message));
        let spec = wanted
            .as_ref()
            .and_then(|wanted| wanted.spec.as_ref()?.read());
        let is_sound = |wanted: &FlowObject| {
            let own_name = name
                .split_once('-')
                .and_then(|(address, _)| address.parse().ok());
            wanted.source_address == asker.address
                && own_name == Some(asker.address)
                && wanted.source_cep != 0
                && message.invoke_id != 0
                && check_name(&wanted.source).is_ok()
                && check_name(&wanted.destination).is_ok()
        };
        let Some((wanted, spec)) = wanted.filter(is_sound).zip(spec) else {
            let reason = "the flow is malformed";
            return self.reject_to(now, asker, message, result::VALUE, reason, dt);
        };
        match self.admit_flow(asker, name, message, wanted, spec) {
            Ok((key, local, remote)) => {
                let pending = message
                    .answer()
                    .with_error(result::PENDING, "the application decides");
                self.reply_to(now, asker, &pending, dt);
                self.events.push_back(Event::Incoming {
                    flow: key,
                    local,
                    remote,
                    spec,
                });
            }
            Err((code, reason)) => {
                self.journal.count("flows-refused");
                let answer = message.answer().with_error(code, &reason);
                self.flows
                    .refused(now, name, answer.clone(), now + REFUSED_NS);
                self.reply_to(now, asker, &answer, dt);
            }
        }
    }

    fn admit_flow(
        &mut self,
        asker: &Asker,
        name: &str,
        message: &Message,
        wanted: FlowObject,
        spec: FlowSpec,
    ) -> Result<(FlowKey, String, String), (i32, String)> {
        let FlowObject {
            source,
            destination,
            ..
        } = wanted;
        if !self.registered.contains(&destination) || self.leaving.is_some() {
            let reason = format!("{destination:?} is not registered at {}", self.own);
            return Err((result::NOT_HERE, reason));
        }
        if !self
            .policies
            .access
            .allows(&source, Deed::Flow { to: &destination })
        {
            let reason =
                format!("{source:?} may not call {destination:?}; see policy access-control");
            return Err((result::ACCESS, reason));
        }
        let cubes = self.member.as_ref().map(|member| &member.config.cubes[..]);
        let cube = cubes
            .unwrap_or_default()
            .iter()
            .find(|cube| u32::from(cube.id) == wanted.cube);
        let Some(cube) = cube.cloned() else {
            return Err((
                result::VALUE,
                format!("the DIF has no QoS cube {}", wanted.cube),
            ));
        };
        let flow = Flow {
            role: Role::Called,
            local: destination.clone(),
            remote: source.clone(),
            spec,
            cube,
            name: name.to_string(),
            member: asker.name.clone(),
            address: asker.address,
            incarnation: wanted.incarnation,
            local_cep: CepId(0),
            remote_cep: CepId(wanted.source_cep),
            state: State::Deciding {
                asker: asker.clone(),
                request: message.clone(),
            },
            unreachable: None,
            rolling: None,
            rolled: None,
        };
        match self.flows.insert(flow) {
            Some(key) => Ok((key, destination, source)),
            None => Err((
                result::ERROR,
                format!("{} has as many flows as it can", self.own),
            )),
        }
    }

    fn on_flow_wanted_again(
        &mut self,
        now: u64,
        asker: &Asker,
        key: FlowKey,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self
            .flows
            .flows
            .get(&key)
            .filter(|flow| flow.member == asker.name)
        else {
            return self.discard(&asker.name, "flow-of-another");
        };
        let answer = match &flow.state {
            State::Deciding { .. } => message
                .answer()
                .with_error(result::PENDING, "the application decides"),
            State::Open {
                answer: Some(answer),
            } => answer.clone(),
            _ => message
                .answer()
                .with_error(result::ERROR, "the flow has ended"),
        };
        self.reply_to(now, asker, &answer, dt);
    }

    /// The application has decided.
    pub(super) fn respond(
        &mut self,
        now: u64,
        key: FlowKey,
        answer: Result<(), String>,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        let State::Deciding { asker, request } = &flow.state else {
            return;
        };
        let (asker, request) = (asker.clone(), request.clone());
        let opened = answer.and_then(|()| {
            dt.open(
                now,
                Open {
                    owner: Owner::Flow(key),
                    cube: flow.cube.clone(),
                    msg_boundaries: flow.spec.msg_boundaries,
                    pinned: None,
                },
            )
            .inspect_err(|reason| {
                let reason = format!("no connection: {reason}");
                self.events.push_back(Event::Closed {
                    flow: key,
                    is_graceful: false,
                    reason,
                });
            })
        });
        match opened {
            Ok(cep) => {
                let value = FlowObject {
                    destination_cep: cep.0,
                    source_cep: flow.remote_cep.0,
                    cube: u32::from(flow.cube.id),
                    incarnation: self.incarnation,
                    member: self.own.clone(),
                    ..FlowObject::default()
                };
                let answer = dialect::answer(&request, Some(dialect::encode(&value)));
                dt.connect(now, cep, Address(flow.address), flow.remote_cep);
                if let Some(flow) = self.flows.flows.get_mut(&key) {
                    flow.local_cep = cep;
                    flow.state = State::Open {
                        answer: Some(answer.clone()),
                    };
                }
                self.reply_to(now, &asker, &answer, dt);
            }
            Err(reason) => {
                let answer = request.answer().with_error(result::ERROR, &reason);
                if let Some(flow) = self.flows.remove(key) {
                    self.flows
                        .refused(now, &flow.name, answer.clone(), now + REFUSED_NS);
                }
                self.reply_to(now, &asker, &answer, dt);
            }
        }
    }

    /// An answer about a flow.
    pub(super) fn on_flow_answer(
        &mut self,
        now: u64,
        asker: &Asker,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if message.opcode == Opcode::DeleteR {
            let is_ours = |ending: &Exchange| ending.address == asker.address;
            if self
                .flows
                .endings
                .get(&message.invoke_id)
                .is_some_and(is_ours)
            {
                self.flows.endings.remove(&message.invoke_id);
            }
            return;
        }
        let Some(Object::Flow(Some(name))) = Object::parse(&message.name) else {
            return;
        };
        if message.opcode == Opcode::WriteR {
            return self.on_flow_rolled(now, asker, &name, message, dt);
        }
        let key = self.flows.find(&name, Role::Caller);
        let flow = key.and_then(|key| Some((key, self.flows.flows.get_mut(&key)?)));
        let Some((key, flow)) = flow.filter(|(_, flow)| flow.member == asker.name) else {
            // The flow was given up: the other side must not keep its half.
            if message.result == 0 {
                self.end_remote(now, asker.address, &name, false, "nobody waits for it", dt);
            }
            return;
        };
        let State::Asking { exchange, others } = &mut flow.state else {
            return;
        };
        if exchange.message.invoke_id != message.invoke_id {
            return self.journal.count("stale");
        }
        if message.result == result::PENDING {
            if !core::mem::replace(&mut exchange.is_pending, true) {
                exchange.give_up_at = now + DECISION_NS;
            }
            return;
        }
        if message.result != 0 {
            let others = core::mem::take(others);
            let reason = format!("{}: {}", flow.member, message.reason);
            if message.result == result::NOT_HERE {
                let remote = flow.remote.clone();
                self.forget_place(&remote);
                return self.ask_for_flow(now, key, others, &reason, dt);
            }
            return self.allocation_failed(now, key, reason, dt);
        }
        let value = dialect::decode::<FlowObject>(dialect::bytes(message));
        let Some(value) = value.filter(|value| value.destination_cep != 0) else {
            let reason = format!("the answer of {} is malformed", asker.name);
            self.end_remote(now, asker.address, &name, false, &reason, dt);
            return self.allocation_failed(now, key, reason, dt);
        };
        flow.remote_cep = CepId(value.destination_cep);
        flow.incarnation = value.incarnation;
        flow.state = State::Open { answer: None };
        dt.connect(now, flow.local_cep, Address(flow.address), flow.remote_cep);
        self.events.push_back(Event::Allocated {
            flow: key,
            result: Ok(()),
        });
    }

    pub(super) fn deallocate(
        &mut self,
        now: u64,
        key: FlowKey,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        match &flow.state {
            State::Open { .. } if reason.is_empty() => {
                flow.state = State::Finishing;
                dt.finish(now, key);
            }
            State::Finishing => {}
            State::Deciding { .. } => {
                let why = if reason.is_empty() {
                    "the application does not want it"
                } else {
                    &reason
                };
                let why = why.to_string();
                self.respond(now, key, Err(why), dt);
            }
            State::Looking | State::Lingering { .. } => {
                self.flows.remove(key);
                dt.close(now, Owner::Flow(key));
            }
            State::Asking { .. } | State::Open { .. } => {
                self.end_flow(now, key, false, &reason, dt)
            }
        }
    }

    /// Everything that the application wrote is through.
    pub(super) fn flow_drained(&mut self, now: u64, key: FlowKey, dt: &mut dyn DataTransfer) {
        let flow = self.flows.flows.get(&key);
        if flow.is_some_and(|flow| matches!(flow.state, State::Finishing)) {
            self.end_flow(now, key, true, "", dt);
        }
    }

    /// Ends this side of a flow and tells the other.
    fn end_flow(
        &mut self,
        now: u64,
        key: FlowKey,
        is_graceful: bool,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        dt.close(now, Owner::Flow(key));
        if flow.address != 0 {
            self.end_remote(now, flow.address, &flow.name, is_graceful, reason, dt);
        }
    }

    /// M_DELETE, repeated until it is answered or the other side must have noticed by itself.
    fn end_remote(
        &mut self,
        now: u64,
        address: u64,
        name: &str,
        is_graceful: bool,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let value = FlowEnd {
            is_graceful,
            reason: reason.to_string(),
            incarnation: self.incarnation,
        };
        let object = Object::Flow(Some(name.to_string()));
        let mut message = dialect::request(Opcode::Delete, &object, Some(dialect::encode(&value)));
        message.invoke_id = self.invoke();
        self.send_to(now, address, message.encode(), dt);
        let mut exchange = exchange(now, address, message);
        // Longer than R of any cube that is of use: an end that is cut off fails by itself.
        exchange.give_up_at = now + 4 * SILENCE_NS;
        if self.flows.endings.len() < super::flows::FLOWS_MAX {
            self.flows
                .endings
                .insert(exchange.message.invoke_id, exchange);
        }
    }

    /// M_DELETE: the other side has ended the flow.
    pub(super) fn on_flow_deleted(
        &mut self,
        now: u64,
        asker: &Asker,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let end = dialect::decode::<FlowEnd>(dialect::bytes(message));
        let Some(end) = end else {
            let reason = "the end of the flow is malformed";
            return self.reject_to(now, asker, message, result::VALUE, reason, dt);
        };
        self.reply_to(now, asker, &message.answer(), dt);
        let own = asker.name == self.own;
        for role in [Role::Caller, Role::Called] {
            let Some(key) = self.flows.find(name, role) else {
                continue;
            };
            let Some(flow) = self.flows.flows.get(&key) else {
                continue;
            };
            // Both ends may be here: the one that said it is gone already.
            let is_other = flow.member == asker.name && (!own || flow.address == asker.address);
            let is_ended = matches!(flow.state, State::Lingering { .. });
            if is_other && !is_ended {
                self.ended_by_peer(now, key, &end, dt);
            }
        }
    }

    fn ended_by_peer(&mut self, now: u64, key: FlowKey, end: &FlowEnd, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        let (is_graceful, reason) = (end.is_graceful, end.reason.clone());
        match flow.state {
            State::Asking { .. } | State::Looking => {
                let reason = format!("{} ended it: {reason}", flow.member);
                self.allocation_failed(now, key, reason, dt);
            }
            State::Finishing => {
                self.flows.remove(key);
                dt.close(now, Owner::Flow(key));
            }
            State::Open { .. } if is_graceful && !flow.cube.retransmission => {
                let until = now + LINGER_NS;
                flow.state = State::Lingering {
                    until,
                    is_graceful,
                    reason,
                };
                self.flows.touch(key);
            }
            _ => self.close_flow(now, key, is_graceful, reason, dt),
        }
    }

    /// A flow is over, and its application hears of it.
    fn close_flow(
        &mut self,
        now: u64,
        key: FlowKey,
        is_graceful: bool,
        reason: String,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.remove(key) else {
            return;
        };
        dt.close(now, Owner::Flow(key));
        if matches!(flow.state, State::Looking | State::Asking { .. }) {
            self.events.push_back(Event::Allocated {
                flow: key,
                result: Err(reason),
            });
        } else if !matches!(flow.state, State::Finishing) {
            self.events.push_back(Event::Closed {
                flow: key,
                is_graceful,
                reason,
            });
        }
    }

    /// The connection of a flow has failed.
    pub(super) fn flow_failed(
        &mut self,
        now: u64,
        key: FlowKey,
        reason: &str,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        self.journal.count("flows-failed");
        let (address, name) = (flow.address, flow.name.clone());
        self.close_flow(now, key, false, reason.to_string(), dt);
        self.end_remote(now, address, &name, false, reason, dt);
    }

    /// All flows end: this IPCP is no member any more.
    pub(super) fn end_all_flows(
        &mut self,
        now: u64,
        reason: &str,
        tells: bool,
        dt: &mut dyn DataTransfer,
    ) {
        let keys: Vec<FlowKey> = self.flows.flows.keys().copied().collect();
        for key in keys {
            let Some(flow) = self.flows.flows.get(&key) else {
                continue;
            };
            let (address, name) = (flow.address, flow.name.clone());
            self.close_flow(now, key, false, reason.to_string(), dt);
            if tells && address != 0 {
                self.end_remote(now, address, &name, false, reason, dt);
            }
        }
        if !tells {
            self.flows.endings.clear();
            self.flows.refusals.clear();
        }
    }

    pub(super) fn flows_timeout(&mut self, now: u64, dt: &mut dyn DataTransfer) {
        if self.flows.due().is_none_or(|due| due > now) {
            return;
        }
        for key in self.flows.timed() {
            self.flow_timeout(now, key, dt);
        }
        let mut repeated = Vec::new();
        self.flows.endings.retain(|_, ending| {
            if ending.give_up_at <= now {
                return false;
            }
            repeated.extend(ending.repeat(now));
            true
        });
        for (address, bytes) in repeated {
            self.journal.count("repeated");
            self.send_to(now, address, bytes, dt);
        }
        self.flows.refusals.retain(|_, (_, until)| *until > now);
    }

    fn flow_timeout(&mut self, now: u64, key: FlowKey, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        if flow
            .unreachable
            .is_some_and(|since| since + flow.patience_ns() <= now)
        {
            let reason = format!("member {} cannot be reached", flow.member);
            self.journal.count("flows-failed");
            return self.close_flow(now, key, false, reason, dt);
        }
        match &mut flow.state {
            State::Asking { exchange, others } if exchange.give_up_at <= now => {
                let others = core::mem::take(others);
                let reason = format!("{} does not answer", flow.member);
                let (address, name) = (flow.address, flow.name.clone());
                // It may have answered all the same.
                self.end_remote(now, address, &name, false, &reason, dt);
                self.ask_for_flow(now, key, others, &reason, dt);
                return;
            }
            State::Asking { exchange, .. } => {
                if let Some((address, bytes)) = exchange.repeat(now) {
                    self.journal.count("repeated");
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
        if let Some(rolling) = &mut flow.rolling {
            let next = rolling.repeat(now);
            if rolling.give_up_at <= now {
                flow.rolling = None;
            } else if let Some((address, bytes)) = next {
                self.send_to(now, address, bytes, dt);
            }
        }
    }

    /// Routes have changed: which members of flows can be reached.
    pub(super) fn check_reachability(&mut self, now: u64, _dt: &mut dyn DataTransfer) {
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

    /// Members have changed: flows to one that restarted fail, flows to one with another address
    /// go on with it.
    pub(super) fn follow_members(
        &mut self,
        now: u64,
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
            let is_going = matches!(flow.state, State::Open { .. } | State::Finishing);
            if !is_going || flow.member == self.own {
                continue;
            }
            let value = self.store.value(Kind::Member, &flow.member, &flow.member);
            let Some(value) = value.and_then(dialect::decode::<MemberValue>) else {
                continue;
            };
            if value.incarnation != flow.incarnation {
                let reason = format!("member {} has restarted", flow.member);
                self.journal.count("flows-failed");
                self.close_flow(now, key, false, reason, dt);
            } else if value.address != flow.address {
                flow.address = value.address;
                dt.connect(now, flow.local_cep, Address(flow.address), flow.remote_cep);
            }
        }
    }

    /// Sequence numbers run out. The caller's member makes the new connection; the called one asks
    /// for it.
    pub(super) fn flow_rollover(&mut self, now: u64, key: FlowKey, dt: &mut dyn DataTransfer) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        if flow.rolling.is_some() || !matches!(flow.state, State::Open { .. } | State::Finishing) {
            return;
        }
        let new_cep = match flow.role {
            Role::Called => CepId(0),
            Role::Caller => {
                let open = Open {
                    owner: Owner::Flow(key),
                    cube: flow.cube.clone(),
                    msg_boundaries: flow.spec.msg_boundaries,
                    pinned: None,
                };
                match dt.open(now, open) {
                    Ok(cep) => cep,
                    Err(reason) => return self.flow_failed(now, key, &reason, dt),
                }
            }
        };
        let address = self.member.as_ref().map_or(0, |member| member.address);
        let invoke = self.invoke();
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        let value = Rolling {
            old_cep: flow.local_cep.0,
            new_cep: new_cep.0,
            address,
        };
        let object = Object::Flow(Some(flow.name.clone()));
        let mut message = dialect::request(Opcode::Write, &object, Some(dialect::encode(&value)));
        message.invoke_id = invoke;
        let (to, bytes) = (flow.address, message.encode());
        flow.rolling = Some(exchange(now, to, message));
        self.flows.touch(key);
        self.journal.count("flows-rolled");
        self.send_to(now, to, bytes, dt);
    }

    /// M_WRITE of a flow: the other side has a new connection for it, or wants one.
    pub(super) fn on_flow_rolling(
        &mut self,
        now: u64,
        asker: &Asker,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(value) = dialect::decode::<Rolling>(dialect::bytes(message)) else {
            let reason = "the connection is malformed";
            return self.reject_to(now, asker, message, result::VALUE, reason, dt);
        };
        let role = if value.new_cep == 0 {
            Role::Caller
        } else {
            Role::Called
        };
        let key = self.flows.find(name, role);
        let flow = key.and_then(|key| Some((key, self.flows.flows.get_mut(&key)?)));
        let Some((key, flow)) = flow.filter(|(_, flow)| flow.member == asker.name) else {
            let reason = "there is no such flow";
            return self.reject_to(now, asker, message, result::OBJECT, reason, dt);
        };
        if role == Role::Caller {
            self.reply_to(now, asker, &message.answer(), dt);
            return self.flow_rollover(now, key, dt);
        }
        if let Some((_, answer)) = flow
            .rolled
            .as_ref()
            .filter(|(cep, _)| *cep == CepId(value.new_cep))
        {
            let answer = answer.clone();
            return self.reply_to(now, asker, &answer, dt);
        }
        let open = Open {
            owner: Owner::Flow(key),
            cube: flow.cube.clone(),
            msg_boundaries: flow.spec.msg_boundaries,
            pinned: None,
        };
        match dt.open(now, open) {
            Ok(cep) => {
                let remote = CepId(value.new_cep);
                dt.connect(now, cep, Address(flow.address), remote);
                dt.switch_to(now, key, cep);
                let value = Rolling {
                    old_cep: flow.local_cep.0,
                    new_cep: cep.0,
                    address: 0,
                };
                let answer = dialect::answer(message, Some(dialect::encode(&value)));
                flow.rolled = Some((remote, answer.clone()));
                (flow.local_cep, flow.remote_cep) = (cep, remote);
                flow.rolling = None;
                self.reply_to(now, asker, &answer, dt);
            }
            Err(reason) => self.reject_to(now, asker, message, result::ERROR, &reason, dt),
        }
    }

    /// M_WRITE_R of a flow.
    fn on_flow_rolled(
        &mut self,
        now: u64,
        asker: &Asker,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        for role in [Role::Caller, Role::Called] {
            let Some(key) = self.flows.find(name, role) else {
                continue;
            };
            let Some(flow) = self.flows.flows.get_mut(&key) else {
                continue;
            };
            let is_ours = |rolling: &mut Exchange| {
                rolling.message.invoke_id == message.invoke_id && rolling.address == asker.address
            };
            let Some(rolling) = flow.rolling.take_if(is_ours) else {
                continue;
            };
            if role == Role::Called {
                return;
            }
            let mine = dialect::decode::<Rolling>(dialect::bytes(&rolling.message));
            let theirs = dialect::decode::<Rolling>(dialect::bytes(message));
            let (Some(mine), Some(theirs)) = (mine, theirs.filter(|value| value.new_cep != 0))
            else {
                let reason = "the connection could not be renewed";
                return self.flow_failed(now, key, reason, dt);
            };
            let (cep, remote) = (CepId(mine.new_cep), CepId(theirs.new_cep));
            (flow.local_cep, flow.remote_cep) = (cep, remote);
            dt.connect(now, cep, Address(flow.address), remote);
            dt.switch_to(now, key, cep);
            return;
        }
    }
}

impl Exchange {
    /// The message again, when it is time.
    fn repeat(&mut self, now: u64) -> Option<(u64, Vec<u8>)> {
        if self.repeat_at > now {
            return None;
        }
        self.repeat_ns = (self.repeat_ns * 2).min(REPEAT_MAX_NS);
        self.repeat_at = now + self.repeat_ns;
        Some((self.address, self.message.encode()))
    }
}

fn exchange(now: u64, address: u64, message: Message) -> Exchange {
    Exchange {
        address,
        message,
        repeat_at: now + REPEAT_NS,
        repeat_ns: REPEAT_NS,
        give_up_at: now + SILENCE_NS,
        is_pending: false,
    }
}
