//! Flows: the messages about them, and how these messages are forwarded from member to member.
//!
//! ```text
//!   17                            20                            16
//!    a_data {17 -> 16, M_CREATE Flow key=17-2 {ports, CEP-ids of 17}}
//!   ---------------------------->  looks up the next hop  ------->
//!                                                                   Event::Incoming
//!    <----------------------------  likewise  <--------------------
//!    a_data {16 -> 17, M_CREATE_R Flow key=17-2 {ports, CEP-ids as 16 sees them}}
//!   ================================ data ========================
//!    a_data {M_DELETE Flow key=17-2}, from whichever side ends the flow
//! ```
//!
//! The initiator, 17, chooses the name of the flow. So it can send M_DELETE also when it abandons a
//! request whose M_CREATE_R may have been lost. It sends every M_DELETE three times, and holds its
//! port-id back meanwhile. A member without such a flow ignores the message.
//!
//! These messages are forwarded from neighbour to neighbour, since their PCI has no destination.

use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};
use carina_ipcp::Cause;
use carina_ipcp::api::{Event, FlowKey, N1Port, Reason};
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::layer::AllocateError;
use carina_ipcp::trace::TraceEvent;
use carina_management::Operation;
use carina_time::{Duration, Instant};
use carina_wire::{FlowSpec, check_name};

use super::Irati;
use super::error::FlowRefusal;
use super::flow_object::{self, FlowObject, FlowParameters};
use super::objects::{self, class, result};
use super::values::{self, AData};
use crate::interop::flow_allocator::{
    Accepted, Allocation, Codec, Flow, FlowAllocatorProfile, Offer, Outgoing, Role,
};

/// Times and numbers of IRATI's flow allocator.
pub(super) const PROFILE: FlowAllocatorProfile = FlowAllocatorProfile {
    // Port-ids are unique in a system of IRATI, and the first N-1 flow has port-id 1.
    first_port: 2,
    first_invoke_id: objects::FIRST_ID,
    ends_are_numbered: false,
    answer: Duration::from_secs(10),
    decision: Duration::from_secs(120),
    linger: Duration::from_millis(100),
    end_repeats: &[Duration::from_secs(1), Duration::from_secs(4)],
    rest: Duration::from_secs(10),
    flows: 16_384,
};

/// Encodes the messages about flows.
#[derive(Debug, Default)]
pub(super) struct FlowCodec {
    /// This member's address.
    pub(super) own: u64,
}

/// The part of a request that is kept to answer it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    name: String,
    object: FlowObject,
}

impl FlowCodec {
    fn object(&self, flow: &Flow<Request>, spec: &FlowSpec) -> FlowObject {
        FlowObject::new(&FlowParameters {
            local: &flow.local,
            remote: &flow.remote,
            ports: (flow.port, flow.remote_port),
            addresses: (self.own, flow.address),
            ceps: (flow.local_cep.0, flow.remote_cep.0),
            spec,
            cube: &flow.cube,
        })
    }

    /// The name of a flow, which its initiator chose.
    fn name(&self, flow: &Flow<Request>) -> String {
        match flow.role {
            Role::Initiator => objects::flow(self.own, flow.port),
            Role::Responder => objects::flow(flow.address, flow.remote_port),
        }
    }
}

impl Codec for FlowCodec {
    type Request = Request;

    fn request(&self, flow: &Flow<Request>) -> Message {
        let object = self.object(flow, &flow.spec);
        objects::request(Opcode::Create, class::FLOW, &self.name(flow), &object)
    }

    fn accept(&self, flow: &Flow<Request>, request: &Request) -> Message {
        // IRATI drops the order flag on the way back and does not check it.
        let spec = FlowSpec {
            in_order: false,
            ..flow.spec
        };
        let object = FlowObject {
            retries_max: request.object.retries_max,
            hops: request.object.hops,
            ..self.object(flow, &spec)
        };
        objects::request(Opcode::CreateR, class::FLOW, &request.name, &object)
    }

    fn refuse(&self, request: &Request, reason: &str) -> Message {
        objects::request(Opcode::CreateR, class::FLOW, &request.name, &request.object)
            .with_error(result::ERROR, reason)
    }

    fn end(&self, flow: &Flow<Request>, reason: &str) -> Message {
        let end = Message::object(Opcode::Delete, class::FLOW, &self.name(flow));
        // Every message has the fields of a result; IRATI does not read them in a request.
        match reason {
            "" => end,
            reason => end.with_error(result::ERROR, reason),
        }
    }

    fn abandon(&self, flow: &Flow<Request>) -> Option<Message> {
        Some(self.end(flow, ""))
    }
}

impl Irati {
    pub(super) fn allocate_flow(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError> {
        if !self.is_member {
            let dif = self.dif.clone();
            return Err(AllocateError::NotMember { dif });
        }
        check_name(local)?;
        check_name(remote)?;
        let cube = flow_object::choose(&spec, &self.config.cubes)
            .map_err(|error| AllocateError::Specification(Cause::new(error)))?
            .clone();
        let holders = self.directory.holders(remote);
        if holders.is_empty() {
            self.log.trace(|| TraceEvent::NameUnknown { name: remote });
            return Err(AllocateError::UnknownName {
                dif: self.dif.clone(),
                name: remote.to_string(),
            });
        }
        // If the caller is registered here itself, this member comes last: an IPCP that calls any
        // member of its DIF has itself registered that DIF's name.
        let own_cost = if self.directory.is_registered(local) {
            u64::MAX
        } else {
            0
        };
        let cost = |holder: &u64| {
            if *holder == self.address {
                Some(own_cost)
            } else {
                self.topology.routes.get(holder).map(|(_, cost)| *cost)
            }
        };
        let reached = holders
            .iter()
            .filter_map(|holder| Some((cost(holder)?, *holder)));
        let Some((_, address)) = reached.min() else {
            return Err(AllocateError::NoRoute {
                name: remote.to_string(),
                address: holders[0],
            });
        };
        let allocation = Allocation {
            local: local.to_string(),
            remote: remote.to_string(),
            spec,
            cube,
            member: self.name_of(address),
            address,
        };
        self.flows.allocate(now, allocation, dt)
    }

    /// The name of the member with an address; the address as text if no name is known.
    pub(super) fn name_of(&self, address: u64) -> String {
        if address == self.address {
            return self.own.clone();
        }
        let mut members = self.topology.members.iter();
        let found = members.find(|(_, all)| all.contains(&address));
        found.map_or_else(|| address.to_string(), |(name, _)| name.clone())
    }

    /// Sends the messages of the flow allocator, and reports its events.
    pub(super) fn drain_flows(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        while let Some(Outgoing { address, message }) = self.flows.poll_message() {
            let data = AData {
                src: self.address,
                dst: address,
                message: objects::RULES.encode(&message),
            };
            if address == self.address {
                self.own_messages.push_back(data);
                continue;
            }
            let message = objects::request(Opcode::Write, objects::A_DATA, objects::A_DATA, &data);
            self.forward(now, None, address, &message, dt);
        }
        while let Some(event) = self.flows.poll_event() {
            if let Event::Allocated {
                flow,
                result: Ok(()),
            } = event
            {
                self.flows.trace_allocated(flow, &self.log);
            }
            self.log.push(event);
        }
    }

    /// Sends a message to the neighbour on the route to a member, but not back to the N-1 flow
    /// `from`.
    fn forward(
        &mut self,
        now: Instant,
        from: Option<N1Port>,
        address: u64,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let route = self.topology.routes.get(&address);
        let next = route
            .and_then(|(next, _)| {
                let mut n1s = next.iter().filter_map(|next| self.n1_to(*next));
                n1s.find(|n1| Some(*n1) != from)
            })
            .or_else(|| self.n1_to(address).filter(|n1| Some(*n1) != from));
        match next {
            Some(n1) => self.send(now, n1, message, dt),
            None => self.log.count("a-data-without-route"),
        }
    }

    /// Handles a message to this member or another one; `outer` is the message that contains it.
    pub(super) fn on_a_data(
        &mut self,
        now: Instant,
        from: Option<N1Port>,
        data: AData,
        outer: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if data.dst != self.address {
            self.log.count("a-data-forwarded");
            return self.forward(now, from, data.dst, outer, dt);
        }
        let peer = self.name_of(data.src);
        let message = match objects::RULES.decode(&data.message) {
            Ok(message) => message,
            Err(error) => return self.log.discard(&peer, error.name()),
        };
        let Some(key) = objects::flow_key(&message.name) else {
            return self.log.discard(&peer, "a-data-of-no-flow");
        };
        let done = match message.opcode {
            Opcode::Create => self.on_flow_wanted(now, data.src, key, message, dt),
            Opcode::CreateR => self.on_flow_answer(now, data.src, key, &message, dt),
            Opcode::Delete => self.on_flow_ended(now, data.src, key, &message, dt),
            _ => Err("a-data-unsupported"),
        };
        if let Err(what) = done {
            self.log.discard(&peer, what);
        }
    }

    fn on_flow_wanted(
        &mut self,
        now: Instant,
        src: u64,
        key: (u64, u32),
        message: Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let object = values::read::<FlowObject>(&message).map_err(|_| "flow-unreadable")?;
        let asked = (object.source_address, object.source_port);
        let is_sound = object.is_sound() && asked == (key.0, key.1.into()) && key.0 == src;
        let naming = object.source.as_ref().zip(object.destination.as_ref());
        let (Some((source, destination)), Some(spec), Some(ids)) =
            (naming, object.spec.as_ref(), object.connection())
        else {
            return Err("flow-unsound");
        };
        let (remote, local) = (source.text(), destination.text());
        let are_names = check_name(&remote).is_ok() && check_name(&local).is_ok();
        if !is_sound || !are_names || message.invoke_id == 0 {
            return Err("flow-unsound");
        }
        let cube = self.config.cubes.iter();
        let cube = cube.clone().find(|cube| u32::from(cube.id) == ids.qos);
        let refused = self.check_flow(&local, &remote, cube.is_some(), ids.qos);
        let spec = spec.read();
        let fallback = carina_ipcp::config::QosCube::plain(0, "");
        let offer = Offer {
            local: local.clone(),
            remote,
            spec,
            cube: object.adapt(cube.unwrap_or(&fallback)),
            remote_port: key.1,
            remote_cep: carina_wire::dif::CepId(ids.source_cep),
            member: self.name_of(src),
            address: src,
            invoke_id: message.invoke_id,
            request: Request {
                name: message.name.clone(),
                object,
            },
        };
        match refused {
            Ok(()) => self.flows.offer(now, offer, dt),
            Err(_) if self.moved_to(&offer).is_some() => {
                let holder = self.moved_to(&offer).unwrap_or_default();
                self.forward_request(now, holder, offer, message, dt);
                Ok(())
            }
            Err(refusal) => {
                self.log.count("flows-refused");
                self.flows.refuse(&offer, &refusal.to_string());
                Ok(())
            }
        }
    }

    /// Checks whether a flow may be offered to an application.
    ///
    /// # Errors
    /// Why the flow is refused.
    fn check_flow(
        &self,
        local: &str,
        remote: &str,
        has_cube: bool,
        qos: u32,
    ) -> Result<(), FlowRefusal> {
        if !self.directory.is_registered(local) {
            return Err(FlowRefusal::NotHere {
                name: local.to_string(),
                member: self.own.clone(),
            });
        }
        if !self.access.allows(remote, Operation::Flow { to: local }) {
            return Err(FlowRefusal::Denied {
                source: remote.to_string(),
                destination: local.to_string(),
            });
        }
        if !has_cube {
            return Err(FlowRefusal::NoCube {
                member: self.own.clone(),
                qos,
            });
        }
        Ok(())
    }

    /// The member to which the called application has moved, if it is known and the request may
    /// still be forwarded.
    fn moved_to(&self, offer: &Offer<Request>) -> Option<u64> {
        if self.directory.is_registered(&offer.local) || offer.request.object.hops == 0 {
            return None;
        }
        let holders = self.directory.holders(&offer.local);
        holders
            .into_iter()
            .find(|holder| *holder != offer.address && self.topology.routes.contains_key(holder))
    }

    fn forward_request(
        &mut self,
        now: Instant,
        holder: u64,
        offer: Offer<Request>,
        message: Message,
        dt: &mut dyn DataTransfer,
    ) {
        self.log.count("flow-requests-forwarded");
        let mut object = offer.request.object;
        object.hops -= 1;
        object.destination_address = holder;
        let inner = Message {
            value: Some(values::value(&object)),
            ..message
        };
        let data = AData {
            src: offer.address,
            dst: holder,
            message: objects::RULES.encode(&inner),
        };
        let outer = objects::request(Opcode::Write, objects::A_DATA, objects::A_DATA, &data);
        // The new destination may be reached through the neighbour that sent the request.
        self.forward(now, None, holder, &outer, dt);
    }

    fn on_flow_answer(
        &mut self,
        now: Instant,
        src: u64,
        key: (u64, u32),
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let flow = self.flows.get(FlowKey(key.1));
        // After the answer, the same invoke id may belong to another request.
        let is_asked = key.0 == self.address
            && flow.is_some_and(|flow| {
                let is_initiator_role = flow.role == Role::Initiator && flow.is_unanswered();
                is_initiator_role && flow.invoke_id == message.invoke_id
            });
        if !is_asked {
            // No flow waits for the answer any more, so the other side must not keep its end. A
            // second copy of an answer, for a flow that exists, changes nothing.
            if key.0 == self.address && flow.is_none() && message.result == result::SUCCESS {
                let end = Message::object(Opcode::Delete, class::FLOW, &message.name);
                self.flows.send_stray_end(src, end);
            }
            return Err("response-unsolicited");
        }
        let answer = match message.result {
            result::SUCCESS => {
                let object = values::read::<FlowObject>(message).map_err(|_| "flow-unreadable")?;
                let ids = object.connection().ok_or("flow-unsound")?;
                let is_sound = object.is_sound() && ids.source_cep != 0;
                let cep = carina_wire::dif::CepId(ids.source_cep);
                let accepted = Accepted {
                    remote_port: u32::try_from(object.source_port).map_err(|_| "flow-unsound")?,
                    remote_cep: cep,
                };
                if !is_sound || object.source_address != src {
                    return Err("flow-unsound");
                }
                // The application may have moved, and the request was forwarded to its new member.
                let member = self.name_of(src);
                self.flows.answered_by(FlowKey(key.1), src, &member);
                Ok(accepted)
            }
            code => Err(Reason::from(match message.reason.as_str() {
                "" => format!("{} refused the flow: result {code}", self.name_of(src)),
                reason => format!("{}: {reason}", self.name_of(src)),
            })),
        };
        if answer.is_err() {
            let member = self.name_of(src);
            self.flows.answered_by(FlowKey(key.1), src, &member);
        }
        self.flows.answer(now, src, message.invoke_id, answer, dt)
    }

    fn on_flow_ended(
        &mut self,
        now: Instant,
        src: u64,
        key: (u64, u32),
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let called = self.flows.requested_by(key.0, key.1);
        let caller = (key.0 == self.address).then_some(FlowKey(key.1));
        let is_initiator_role = |key: &FlowKey| {
            let flow = self.flows.get(*key);
            flow.is_some_and(|flow| flow.role == Role::Initiator && flow.address == src)
        };
        // Both ends may be at this member; then the end that sent the message is already removed.
        let ended = caller
            .filter(is_initiator_role)
            .or(called.filter(|_| key.0 == src || src == self.address));
        let ended = ended.ok_or("end-of-no-flow")?;
        let reason = match (message.result, message.reason.as_str()) {
            (result::SUCCESS, _) => String::new(),
            (code, "") => format!("{} ended it: result {code}", self.name_of(src)),
            (_, reason) => format!("{}: {reason}", self.name_of(src)),
        };
        self.flows.ended(now, src, ended, &reason, dt)
    }
}

/// Encodes an A-DATA message, which carries `message` from one member to another.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn a_data(src: u64, dst: u64, message: alloc::vec::Vec<u8>) -> alloc::vec::Vec<u8> {
    let data = AData { src, dst, message };
    let outer = objects::request(Opcode::Write, objects::A_DATA, objects::A_DATA, &data);
    objects::RULES.encode(&outer)
}
