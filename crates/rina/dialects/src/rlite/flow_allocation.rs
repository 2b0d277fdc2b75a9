//! Flows between members that need not be neighbours: requests, answers and ends, carried in
//! A-DATA.
//!
//! ```text
//!   initiator                                    responder
//!     A-DATA {M_CREATE flow, its port, CEP-id}   ------->   Event::Incoming, Command::Respond
//!                                                <-------   A-DATA {M_CREATE_R, the same with
//!     Event::Allocated                                      port and CEP-id of this side}
//!     =================== data, by EFCP ====================
//!     A-DATA {M_DELETE flows/PORT of the other}  ------->   Event::Closed
//! ```

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::Cause;
use carina_ipcp::api::{FlowKey, Reason};
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_ipcp::layer::AllocateError;
use carina_ipcp::trace::TraceEvent;
use carina_time::{Duration, Instant};
use carina_wire::dif::{Address, CepId};
use carina_wire::{FlowSpec, check_name};

use super::error::FlowRefusal;
use super::flow_values::{cube_for, flow_spec, policies, qos_spec, select, served_by};
use super::objects::{class, flow_name, name, port_of};
use super::values::{AData, ConnectionIds, FlowRequest, value, value_of};
use super::{RULES, Rlite};
use crate::interop::flow_allocator::{
    Accepted, Allocation, Codec, Flow, FlowAllocatorProfile, Offer,
};
use crate::interop::names::Name;

/// Times and numbers as in rlite. Its port-ids and CEP-ids are the lowest free ones of a system,
/// where an N-1 flow usually has the first; invoke ids in A-DATA come from one counter. rlite has
/// no time limit for the answer; this one allows for a slow application.
pub(super) const PROFILE: FlowAllocatorProfile = FlowAllocatorProfile {
    first_port: 1,
    first_invoke_id: 3,
    ends_are_numbered: true,
    answer: Duration::from_secs(10),
    decision: Duration::from_secs(120),
    linger: Duration::from_millis(100),
    end_repeats: &[],
    rest: Duration::from_secs(4),
    flows: 16_384,
};

/// Encodes the messages about flows.
#[derive(Debug)]
pub(super) struct RliteFlows {
    own: String,
    pub(super) address: u64,
}

impl RliteFlows {
    pub(super) fn new(own: &str) -> RliteFlows {
        RliteFlows {
            own: own.to_string(),
            address: 0,
        }
    }
}

impl Codec for RliteFlows {
    type Request = FlowRequest;

    fn request(&self, flow: &Flow<FlowRequest>) -> Message {
        let request = FlowRequest {
            src_app: Some(Name::of(&flow.local).into()),
            dst_app: Some(Name::of(&flow.remote).into()),
            src_port: Some(u64::from(flow.port)),
            dst_port: Some(0),
            src_ipcp: Some(self.own.clone()),
            dst_ipcp: Some(flow.member.clone()),
            connections: alloc::vec![ConnectionIds {
                qos: Some(0),
                src_cep: Some(flow.local_cep.0),
                dst_cep: Some(0),
            }],
            current: Some(0),
            state: Some(1),
            qos: Some(qos_spec(&flow.spec)),
            policies: Some(policies(&flow.cube)),
            access_control: None,
            retries_max: Some(3),
            retries: Some(0),
            hops: Some(0),
        };
        Message::object(Opcode::Create, class::FLOW, name::FLOWS).with_value(value(&request))
    }

    fn accept(&self, flow: &Flow<FlowRequest>, request: &FlowRequest) -> Message {
        let mut answer = request.clone();
        answer.dst_port = Some(u64::from(flow.port));
        if let Some(ids) = answer.connections.first_mut() {
            ids.dst_cep = Some(flow.local_cep.0);
        }
        Message::object(Opcode::CreateR, class::FLOW, name::FLOWS).with_value(value(&answer))
    }

    fn refuse(&self, request: &FlowRequest, reason: &str) -> Message {
        Message::object(Opcode::CreateR, class::FLOW, name::FLOWS)
            .with_value(value(request))
            .with_error(-1, reason)
    }

    fn end(&self, flow: &Flow<FlowRequest>, _reason: &str) -> Message {
        // rlite rejects a request with a result or a reason.
        let object = flow_name(u64::from(flow.remote_port));
        Message::object(Opcode::Delete, class::FLOW, &object)
    }

    fn abandon(&self, _flow: &Flow<FlowRequest>) -> Option<Message> {
        // The name of a flow is the port-id of the other side, which is not known yet.
        None
    }
}

impl Rlite {
    pub(super) fn allocate_flow(
        &mut self,
        now: Instant,
        local: &str,
        remote: &str,
        spec: FlowSpec,
        dt: &mut dyn DataTransfer,
    ) -> Result<FlowKey, AllocateError> {
        let Some(member) = &self.member else {
            let dif = self.dif.clone();
            return Err(AllocateError::NotMember { dif });
        };
        check_name(local)?;
        check_name(remote)?;
        let spec = served_by(spec);
        let cube = select(&member.config.cubes, &spec)
            .map_err(|error| AllocateError::Specification(Cause::new(error)))?;
        let (holder, address) = self.choose_holder(remote, local)?;
        let allocation = Allocation {
            local: local.to_string(),
            remote: remote.to_string(),
            spec,
            cube,
            member: holder,
            address,
        };
        self.flows.allocate(now, allocation, dt)
    }

    /// Chooses the member to ask for an application: this member if it holds the application, or
    /// any holder that can be reached. For a caller that is itself registered here this member
    /// comes last: an IPCP that calls any member of its DIF has itself registered that DIF's name.
    fn choose_holder(&mut self, app: &str, caller: &str) -> Result<(String, u64), AllocateError> {
        let holders = self.directory.holders(app);
        if holders.is_empty() {
            self.log.trace(|| TraceEvent::NameUnknown { name: app });
            return Err(AllocateError::UnknownName {
                dif: self.dif.clone(),
                name: app.to_string(),
            });
        }
        let is_here = holders.contains(&self.own);
        let own = (self.own.clone(), self.own_address().unwrap_or_default());
        if is_here && !self.directory.is_registered(caller) {
            return Ok(own);
        }
        let reachable = |name: String| {
            if name == self.own {
                return None;
            }
            let address = self.address_of(&name)?;
            self.can_reach(address).then_some((name, address))
        };
        let mut reachable: Vec<(String, u64)> =
            holders.iter().cloned().filter_map(reachable).collect();
        if reachable.is_empty() && is_here {
            return Ok(own);
        }
        if reachable.is_empty() {
            return Err(AllocateError::Unreachable {
                name: app.to_string(),
                holders,
            });
        }
        let index = self.random.below(reachable.len() as u64);
        Ok(reachable.swap_remove(usize::try_from(index).unwrap_or_default()))
    }

    /// Sends the messages of the flow allocator.
    pub(super) fn send_flow_messages(&mut self, now: Instant, dt: &mut dyn DataTransfer) {
        let Some(own) = self.own_address() else {
            while self.flows.poll_message().is_some() {}
            return;
        };
        while let Some(outgoing) = self.flows.poll_message() {
            let bytes = a_data(own, outgoing.address, RULES.encode(&outgoing.message));
            if outgoing.address == own {
                self.own_messages.push_back(bytes);
            } else {
                dt.send_management(now, Target::Address(Address(outgoing.address)), &bytes);
            }
        }
    }

    /// Handles a message that this member sent to itself.
    pub(super) fn on_own(&mut self, now: Instant, bytes: &[u8], dt: &mut dyn DataTransfer) {
        match RULES.decode(bytes) {
            Ok(message) => self.on_a_data(now, None, &message, dt),
            Err(error) => self.log.count(error.name()),
        }
    }

    /// Handles an A-DATA message. `src` is the source address in its PCI; `None` if this member
    /// sent it.
    pub(super) fn on_a_data(
        &mut self,
        now: Instant,
        src: Option<u64>,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(own) = self.own_address() else {
            return self.log.count("a-data-before-enrollment");
        };
        let data = value_of::<AData>(message).filter(|_| message.opcode == Opcode::Write);
        let addresses = data.as_ref().and_then(|data| {
            let source = u64::try_from(data.source?).ok()?;
            Some((source, u64::try_from(data.destination?).ok()?))
        });
        let (Some((source, destination)), Some(inner)) =
            (addresses, data.and_then(|data| data.message))
        else {
            return self.log.discard("a member", "a-data-malformed");
        };
        let sender = format!("address {source}");
        if src.unwrap_or(own) != source {
            return self.log.discard(&sender, "a-data-forged");
        }
        if destination != own {
            return self.log.discard(&sender, "a-data-of-another");
        }
        let inner = match RULES.decode(&inner) {
            Ok(inner) => inner,
            Err(error) => return self.log.discard(&sender, error.name()),
        };
        let done = self.on_flow_message(now, source, &inner, dt);
        if let Err(what) = done {
            self.log.discard(&sender, what);
        }
    }

    fn on_flow_message(
        &mut self,
        now: Instant,
        source: u64,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let is_flows = message.name == name::FLOWS && message.class == class::FLOW;
        match message.opcode {
            Opcode::Create if is_flows => self.on_flow_wanted(now, source, message, dt),
            Opcode::CreateR if is_flows => self.on_flow_answer(now, source, message, dt),
            Opcode::Delete => {
                let port = port_of(&message.name).ok_or("object")?;
                self.flows.ended(now, source, FlowKey(port), "", dt)
            }
            _ => Err("object"),
        }
    }

    /// Handles M_CREATE: another member requests a flow to an application here.
    fn on_flow_wanted(
        &mut self,
        now: Instant,
        source: u64,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let request = value_of::<FlowRequest>(message).ok_or("flow-malformed")?;
        let local = app_text(&request.dst_app).ok_or("flow-malformed")?;
        let remote = app_text(&request.src_app).ok_or("flow-malformed")?;
        let port = request.src_port.and_then(|port| u32::try_from(port).ok());
        let remote_port = port.ok_or("flow-malformed")?;
        let ids = connection_of(&request).ok_or("flow-malformed")?;
        if message.invoke_id == 0 {
            return Err("flow-malformed");
        }
        let member = request.src_ipcp.clone().ok_or("flow-malformed")?;
        match self.address_of(&member) {
            Some(address) if address == source => {}
            Some(_) => return Err("flow-of-another-member"),
            None => return Err("flow-of-unknown-member"),
        }
        let spec = flow_spec(&request.qos.clone().unwrap_or_default());
        let cubes = self.member.as_ref().map(|member| &member.config.cubes[..]);
        let wanted = request.policies.clone().unwrap_or_default();
        let cube = cube_for(cubes.unwrap_or_default(), &spec, &wanted);
        let refusal = match &cube {
            Err(error) => Some(FlowRefusal::Cube(*error)),
            Ok(_) if !self.directory.is_registered(&local) => Some(FlowRefusal::NotHere {
                name: local.clone(),
                member: self.own.clone(),
            }),
            Ok(_) => None,
        };
        let offer = Offer {
            local,
            remote,
            spec,
            cube: cube.unwrap_or_else(|_| carina_ipcp::config::QosCube::plain(0, "none")),
            remote_port,
            remote_cep: CepId(ids.src_cep.unwrap_or_default()),
            member,
            address: source,
            invoke_id: message.invoke_id,
            request,
        };
        if let Some(refusal) = refusal {
            self.log.count("flows-refused");
            self.flows.refuse(&offer, &refusal.to_string());
            return Ok(());
        }
        self.flows.offer(now, offer, dt)
    }

    /// Handles M_CREATE_R: the answer to a request of this member.
    fn on_flow_answer(
        &mut self,
        now: Instant,
        source: u64,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), &'static str> {
        let answer = if message.result != 0 {
            Err(Reason::from(message.reason.as_str()))
        } else {
            let answer = value_of::<FlowRequest>(message).ok_or("flow-malformed")?;
            let port = answer.dst_port.and_then(|port| u32::try_from(port).ok());
            let ids = connection_of(&answer).ok_or("flow-malformed")?;
            Ok(Accepted {
                remote_port: port.ok_or("flow-malformed")?,
                remote_cep: CepId(ids.dst_cep.unwrap_or_default()),
            })
        };
        let accepted = answer.as_ref().ok().map(|accepted| accepted.remote_port);
        let done = self
            .flows
            .answer(now, source, message.invoke_id, answer, dt);
        // No flow waits for the answer any more, so the other side must not keep its end. A second
        // copy of an answer, for a flow that exists, changes nothing.
        if let Some(port) = accepted.filter(|_| done == Err("response-unsolicited"))
            && !self.flows.leads_to(source, port)
        {
            let object = flow_name(u64::from(port));
            let end = Message::object(Opcode::Delete, class::FLOW, &object);
            self.flows.send_stray_end(source, end);
        }
        done
    }
}

/// Encodes an A-DATA message, which carries `message` from one member to another.
pub(crate) fn a_data(source: u64, destination: u64, message: Vec<u8>) -> Vec<u8> {
    let data = AData {
        source: Some(address_in(source)),
        destination: Some(address_in(destination)),
        message: Some(message),
    };
    let outer = Message::object(Opcode::Write, class::A_DATA, name::A_DATA);
    RULES.encode(&outer.with_value(value(&data)))
}

/// The connection that a flow uses at present.
fn connection_of(request: &FlowRequest) -> Option<&ConnectionIds> {
    let index = usize::try_from(request.current.unwrap_or_default()).ok()?;
    request.connections.get(index)
}

fn app_text(app: &Option<super::values::ApName>) -> Option<String> {
    let text = Name::from(app.clone()?).to_string();
    check_name(&text).is_ok().then_some(text)
}

/// Converts an address for A-DATA. `check_assigned` and `draw_address` ensure that it fits.
fn address_in(address: u64) -> i32 {
    i32::try_from(address).unwrap_or(i32::MAX)
}
