//! The initiator's side of opening the management channel to a neighbour.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner};
use carina_time::Instant;
use carina_wire::dif::{Address, CepId};

use super::{Initiator, State};
use crate::neighbours::{Joining, Stage, Up};
use crate::schema::{self, ChannelEnd, Object};
use crate::{Management, qos};

impl Management {
    pub(super) fn open_channel(&mut self, now: Instant, n1: N1Port, dt: &mut dyn DataTransfer) {
        let channel = self.new_channel();
        let open = Open {
            owner: Owner::Channel(channel),
            cube: qos::channel_cube(),
            msg_boundaries: true,
            pinned: Some(n1),
        };
        let cep = match dt.open(now, open) {
            Ok(cep) => cep,
            Err(error) => return self.attempt_failed(now, n1, &error.to_string(), true, dt),
        };
        let invoke_id = self.invoke_id();
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        initiator.state = State::Opening { channel, cep };
        initiator.invoke_id = invoke_id;
        let end = ChannelEnd {
            nonce: initiator.nonce,
            responder_nonce: initiator.responder_nonce,
            cep: cep.0,
        };
        let value = Some(schema::encode(&end));
        let mut message = schema::request(Opcode::Start, &Object::Channel, value);
        message.invoke_id = invoke_id;
        self.send_step(now, n1, &message, dt);
    }

    /// Handles M_START_R of the channel.
    pub(in super::super) fn on_channel_response(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        let State::Opening { channel, cep } = initiator.state else {
            return;
        };
        if message.invoke_id != initiator.invoke_id {
            self.log.count("stale");
            return;
        }
        if message.result != 0 {
            let reason = format!("{} refused: {}", initiator.peer.name, message.reason);
            return self.attempt_failed(now, n1, &reason, false, dt);
        }
        let Some(end) = schema::decode::<ChannelEnd>(schema::bytes(message)) else {
            return self.attempt_failed(now, n1, "the management channel is malformed", true, dt);
        };
        let is_exposed = initiator.peer.is_exposed;
        let secret = initiator.auth_state.secret;
        let joined = initiator.config.clone();
        let of_dif = self.member.as_ref().map(|member| member.config.clone());
        let Some(config) = joined.or(of_dif) else {
            return;
        };
        let is_exposed = is_exposed || self.n1s[&n1].props.is_exposed;
        let protection = match self.sdu_protection(n1, is_exposed, true, secret.as_ref(), &config) {
            Ok(protection) => protection,
            Err(error) => return self.attempt_failed(now, n1, &error.to_string(), false, dt),
        };
        let Some(initiator) = self.n1s.get_mut(&n1).and_then(|flow| flow.initiator.take()) else {
            return;
        };
        dt.connect(now, cep, Address::NONE, CepId(end.cep));
        self.initiator_channel_up(now, n1, channel, Box::new(initiator), dt);
        dt.set_sdu_protection(n1, protection);
    }

    fn initiator_channel_up(
        &mut self,
        now: Instant,
        n1: N1Port,
        channel: u32,
        initiator: Box<Initiator>,
        dt: &mut dyn DataTransfer,
    ) {
        let Initiator {
            nonce,
            responder_nonce,
            connect,
            peer,
            config,
            ..
        } = *initiator;
        let until = now + self.policies.enrollment.step_timeout;
        let joins = self.member.is_none();
        let stage = match config {
            Some(config) if joins => Stage::Joining(Joining::new(config, until)),
            _ => Stage::Neighbours,
        };
        let up = Up {
            name: peer.name,
            address: peer.address,
            incarnation: peer.incarnation,
            channel,
            cdap: Management::cdap(now, &connect, true),
            nonces: (nonce, responder_nonce),
            reply: Vec::new(),
            stage,
            heard: now,
            ask_at: now + self.keepalive_interval(),
            missed: 0,
        };
        self.channel_is_up(now, n1, up, dt);
        if joins {
            self.start_joining(now, n1, dt);
        }
    }
}
