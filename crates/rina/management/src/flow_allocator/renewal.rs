//! Renewal: replaces the connection of a flow before its sequence numbers run out.

use alloc::string::ToString;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::FlowKey;
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner};
use carina_time::Instant;
use carina_wire::dif::{Address, CepId};

use super::super::Management;
use super::super::flow_table::{Exchange, Role, State};
use super::super::requester::Requester;
use super::super::schema::{self, ConnectionRenewal, Object, result};
use super::exchange;

impl Management {
    /// Starts the renewal of a flow's connection. The caller's member opens a new connection; the
    /// called member requests one from the caller's member.
    pub(in super::super) fn renew_connection(
        &mut self,
        now: Instant,
        key: FlowKey,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.flows.flows.get(&key) else {
            return;
        };
        if flow.renewal.is_some() || !matches!(flow.state, State::Open { .. } | State::Draining) {
            return;
        }
        let new_cep = match flow.role {
            Role::Responder => CepId(0),
            Role::Initiator => {
                let open = Open {
                    owner: Owner::Flow(key),
                    cube: flow.cube.clone(),
                    msg_boundaries: flow.spec.msg_boundaries,
                    pinned: None,
                };
                match dt.open(now, open) {
                    Ok(cep) => cep,
                    Err(error) => return self.flow_failed(now, key, &error.to_string(), dt),
                }
            }
        };
        let address = self.member.as_ref().map_or(0, |member| member.address);
        let invoke_id = self.invoke_id();
        let Some(flow) = self.flows.flows.get_mut(&key) else {
            return;
        };
        let value = ConnectionRenewal {
            old_cep: flow.local_cep.0,
            new_cep: new_cep.0,
            address,
        };
        let object = Object::Flow(Some(flow.name.clone()));
        let mut message = schema::request(Opcode::Write, &object, Some(schema::encode(&value)));
        message.invoke_id = invoke_id;
        let (to, bytes) = (flow.address, message.encode());
        flow.renewal = Some(exchange(now, to, message));
        self.flows.touch(key);
        self.log.count("connections-renewed");
        self.send_to(now, to, bytes, dt);
    }

    /// Handles M_WRITE of a flow: the other side has opened a new connection for it, or requests
    /// one.
    pub(in super::super) fn on_renewal_request(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(value) = schema::decode::<ConnectionRenewal>(schema::bytes(message)) else {
            let reason = "the connection is malformed";
            return self.reject_to(now, requester, message, result::VALUE, reason, dt);
        };
        let role = if value.new_cep == 0 {
            Role::Initiator
        } else {
            Role::Responder
        };
        let key = self.flows.find(name, role);
        let flow = key.and_then(|key| Some((key, self.flows.flows.get_mut(&key)?)));
        let Some((key, flow)) = flow.filter(|(_, flow)| flow.member == requester.name) else {
            let reason = "there is no such flow";
            return self.reject_to(now, requester, message, result::OBJECT, reason, dt);
        };
        if role == Role::Initiator {
            self.respond_to(now, requester, &message.answer(), dt);
            return self.renew_connection(now, key, dt);
        }
        if let Some((_, answer)) = flow
            .last_renewal
            .as_ref()
            .filter(|(cep, _)| *cep == CepId(value.new_cep))
        {
            let answer = answer.clone();
            return self.respond_to(now, requester, &answer, dt);
        }
        // A repeated request that arrives after the next renewal has nothing to replace.
        if flow.remote_cep != CepId(value.old_cep) {
            return self.log.count("stale");
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
                let value = ConnectionRenewal {
                    old_cep: flow.local_cep.0,
                    new_cep: cep.0,
                    address: 0,
                };
                let answer = schema::answer(message, Some(schema::encode(&value)));
                flow.last_renewal = Some((remote, answer.clone()));
                (flow.local_cep, flow.remote_cep) = (cep, remote);
                flow.renewal = None;
                self.respond_to(now, requester, &answer, dt);
            }
            Err(error) => {
                let reason = error.to_string();
                self.reject_to(now, requester, message, result::ERROR, &reason, dt);
            }
        }
    }

    /// Handles M_WRITE_R of a flow.
    pub(super) fn on_renewal_response(
        &mut self,
        now: Instant,
        requester: &Requester,
        name: &str,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        for role in [Role::Initiator, Role::Responder] {
            let Some(key) = self.flows.find(name, role) else {
                continue;
            };
            let Some(flow) = self.flows.flows.get_mut(&key) else {
                continue;
            };
            let is_ours = |renewal: &mut Exchange| {
                renewal.message.invoke_id == message.invoke_id
                    && renewal.address == requester.address
            };
            let Some(renewal) = flow.renewal.take_if(is_ours) else {
                continue;
            };
            if role == Role::Responder {
                return;
            }
            let mine = schema::decode::<ConnectionRenewal>(schema::bytes(&renewal.message));
            let theirs = schema::decode::<ConnectionRenewal>(schema::bytes(message));
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
