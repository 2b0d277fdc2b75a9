//! The responder of a flow allocation: the member where the called application is registered.

use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::Message;
use carina_ipcp::api::{Event, FlowKey, Reason};
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner};
use carina_ipcp::trace::TraceEvent;
use carina_time::Instant;
use carina_wire::dif::{Address, CepId};
use carina_wire::{FlowSpec, check_name};

use super::super::Management;
use super::super::access_control::Operation;
use super::super::flow_table::{Flow, Role, State};
use super::super::requester::Requester;
use super::super::schema::{self, FlowObject, result};
use super::REFUSED_TIME;
use super::refusal::Refusal;

impl Management {
    /// Handles M_CREATE of a flow, at the called member.
    pub(in super::super) fn on_flow_request(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        if let Some(key) = self.flows.find(name, Role::Responder) {
            return self.on_repeated_flow_request(now, requester, key, message, dt);
        }
        if let Some((answer, _)) = self.flows.refusals.get(name) {
            let answer = answer.clone();
            return self.respond_to(now, requester, &answer, dt);
        }
        if self.flows.ended.contains(name) {
            self.log.count("stale");
            let ended = message
                .answer()
                .with_error(result::ERROR, "the flow has ended");
            return self.respond_to(now, requester, &ended, dt);
        }
        let wanted = schema::decode::<FlowObject>(schema::bytes(message));
        let spec = wanted
            .as_ref()
            .and_then(|wanted| wanted.spec.as_ref()?.read());
        let is_sound = |wanted: &FlowObject| {
            let own_name = name
                .split_once('-')
                .and_then(|(address, _)| address.parse().ok());
            wanted.source_address == requester.address
                && own_name == Some(requester.address)
                && wanted.source_cep != 0
                && message.invoke_id != 0
                && check_name(&wanted.source).is_ok()
                && check_name(&wanted.destination).is_ok()
        };
        let Some((wanted, spec)) = wanted.filter(is_sound).zip(spec) else {
            let reason = "the flow is malformed";
            return self.reject_to(now, requester, message, result::VALUE, reason, dt);
        };
        match self.check_flow_request(requester, name, message, wanted, spec) {
            Ok((key, local, remote)) => {
                let pending = message
                    .answer()
                    .with_error(result::PENDING, "the application decides");
                self.respond_to(now, requester, &pending, dt);
                self.log.push(Event::Incoming {
                    flow: key,
                    local,
                    remote,
                    spec,
                });
            }
            Err(refusal) => {
                self.log.count("flows-refused");
                let answer = message
                    .answer()
                    .with_error(refusal.code(), &refusal.to_string());
                self.flows
                    .refused(now, name, answer.clone(), now + REFUSED_TIME);
                self.respond_to(now, requester, &answer, dt);
            }
        }
    }

    fn check_flow_request(
        &mut self,
        requester: &Requester,
        name: &str,
        message: &Message,
        wanted: FlowObject,
        spec: FlowSpec,
    ) -> Result<(FlowKey, String, String), Refusal> {
        let FlowObject {
            source,
            destination,
            ..
        } = wanted;
        if !self.registered.contains(&destination) || self.leaving.is_some() {
            return Err(Refusal::NotHere {
                name: destination,
                member: self.own.clone(),
            });
        }
        if !self
            .policies
            .access
            .allows(&source, Operation::Flow { to: &destination })
        {
            return Err(Refusal::Denied {
                source,
                destination,
            });
        }
        let cubes = self.member.as_ref().map(|member| &member.config.cubes[..]);
        let cube = cubes
            .unwrap_or_default()
            .iter()
            .find(|cube| u32::from(cube.id) == wanted.cube);
        let Some(cube) = cube.cloned() else {
            return Err(Refusal::NoCube(wanted.cube));
        };
        let flow = Flow {
            role: Role::Responder,
            local: destination.clone(),
            remote: source.clone(),
            spec,
            cube,
            name: name.to_string(),
            member: requester.name.clone(),
            address: requester.address,
            incarnation: wanted.incarnation,
            local_cep: CepId(0),
            remote_cep: CepId(wanted.source_cep),
            state: State::Pending {
                requester: requester.clone(),
                request: message.clone(),
            },
            unreachable: None,
            renewal: None,
            last_renewal: None,
        };
        match self.flows.insert(flow) {
            Some(key) => Ok((key, destination, source)),
            None => Err(Refusal::TooManyFlows {
                member: self.own.clone(),
            }),
        }
    }

    fn on_repeated_flow_request(
        &mut self,
        now: Instant,
        requester: &Requester,
        key: FlowKey,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self
            .flows
            .flows
            .get(&key)
            .filter(|flow| flow.member == requester.name)
        else {
            return self.log.discard(&requester.name, "flow-of-another");
        };
        let answer = match &flow.state {
            State::Pending { .. } => message
                .answer()
                .with_error(result::PENDING, "the application decides"),
            State::Open {
                answer: Some(answer),
            } => answer.clone(),
            _ => message
                .answer()
                .with_error(result::ERROR, "the flow has ended"),
        };
        self.respond_to(now, requester, &answer, dt);
    }

    /// Handles the decision of the called application.
    pub(in super::super) fn respond(
        &mut self,
        now: Instant,
        key: FlowKey,
        answer: Result<(), Reason>,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        let State::Pending { requester, request } = &flow.state else {
            return;
        };
        let (requester, request) = (requester.clone(), request.clone());
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
            .map_err(|error| {
                let reason = format!("no connection: {error}");
                self.log.push(Event::Closed {
                    flow: key,
                    is_graceful: false,
                    reason,
                });
                Reason::from(error.to_string())
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
                let answer = schema::answer(&request, Some(schema::encode(&value)));
                dt.connect(now, cep, Address(flow.address), flow.remote_cep);
                if let Some(flow) = self.flows.flows.get_mut(&key) {
                    let cube = flow.cube.name.as_str();
                    self.log
                        .trace(|| TraceEvent::FlowAllocated { flow: key, cube });
                    flow.local_cep = cep;
                    flow.state = State::Open {
                        answer: Some(answer.clone()),
                    };
                }
                self.respond_to(now, &requester, &answer, dt);
            }
            Err(reason) => {
                let answer = request.answer().with_error(result::ERROR, &reason);
                if let Some(flow) = self.flows.remove(key) {
                    self.flows
                        .refused(now, &flow.name, answer.clone(), now + REFUSED_TIME);
                }
                self.respond_to(now, &requester, &answer, dt);
            }
        }
    }
}
