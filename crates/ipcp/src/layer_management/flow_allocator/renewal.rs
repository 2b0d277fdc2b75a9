//! A flow goes on with a new connection when the sequence numbers of the old one run out.

use carina_cdap::{Message, Opcode};
use carina_wire::dif::{Address, CepId};

use super::super::Management;
use super::super::dialect::{self, Object, Rolling, result};
use super::super::flows::{Exchange, Role, State};
use super::super::rib::Asker;
use super::exchange;
use crate::api::FlowKey;
use crate::data_transfer::api::{DataTransfer, Open, Owner};

impl Management {
    /// Sequence numbers run out. The caller's member makes the new connection; the called one asks
    /// for it.
    pub(in super::super) fn flow_rollover(
        &mut self,
        now: u64,
        key: FlowKey,
        dt: &mut dyn DataTransfer,
    ) {
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
    pub(in super::super) fn on_flow_rolling(
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
        // One that was told again and comes after the next has nothing to replace any more.
        if flow.remote_cep != CepId(value.old_cep) {
            return self.journal.count("stale");
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
    pub(super) fn on_flow_rolled(
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
