//! The responder's side of opening the management channel to a neighbour.

use alloc::format;
use alloc::string::ToString;

use carina_cdap::Message;
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Open, Owner, Target};
use carina_time::Instant;
use carina_wire::dif::{Address, CepId};

use super::Responder;
use crate::neighbours::error::AttemptError;
use crate::neighbours::{Stage, Up};
use crate::schema::{self, ChannelEnd, result};
use crate::{Management, qos};

impl Management {
    /// Handles M_START of the channel.
    pub(in super::super) fn on_channel_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(end) = schema::decode::<ChannelEnd>(schema::bytes(message)) else {
            return self
                .log
                .discard(&format!("N-1 flow {}", n1.0), "malformed-value");
        };
        let nonces = (end.nonce, end.responder_nonce);
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        if let Some(up) = flow.up.as_ref().filter(|up| up.nonces == nonces) {
            let reply = up.reply.clone();
            return dt.send_management(now, Target::N1(n1), &reply);
        }
        let accepted = |responder: &mut Responder| {
            responder.is_accepted && (responder.nonce, responder.responder_nonce) == nonces
        };
        let Some(responder) = flow.responder.take_if(accepted) else {
            self.log.count("not-connected");
            return;
        };
        if let Err(error) =
            self.responder_channel_up(now, n1, message, CepId(end.cep), responder, dt)
        {
            let reason = error.to_string();
            let answer = message.answer().with_error(result::REJECTED, &reason);
            self.log.notice(&reason, &reason);
            self.send_to_peer(now, n1, &answer, dt);
        }
    }

    fn responder_channel_up(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        remote: CepId,
        responder: Responder,
        dt: &mut dyn DataTransfer,
    ) -> Result<(), AttemptError> {
        let config = self.member.as_ref().map(|member| member.config.clone());
        let config = config.ok_or(AttemptError::NotMember)?;
        let is_exposed = responder.peer.is_exposed || self.n1s[&n1].props.is_exposed;
        let secret = responder.auth_state.secret;
        let protection = self.sdu_protection(n1, is_exposed, false, secret.as_ref(), &config)?;
        let channel = self.new_channel();
        let open = Open {
            owner: Owner::Channel(channel),
            cube: qos::channel_cube(),
            msg_boundaries: true,
            pinned: Some(n1),
        };
        let cep = dt.open(now, open)?;
        dt.connect(now, cep, Address::NONE, remote);
        let Responder {
            nonce,
            responder_nonce,
            connect,
            peer,
            ..
        } = responder;
        let value = ChannelEnd {
            nonce,
            responder_nonce,
            cep: cep.0,
        };
        let answer = schema::answer(message, Some(schema::encode(&value)));
        let reply = self.send_to_peer(now, n1, &answer, dt);
        let until = now + 4 * self.policies.enrollment.step_timeout;
        let stage = match peer.dif_id {
            0 => Stage::Admitting { address: 0, until },
            _ => Stage::Neighbours,
        };
        let up = Up {
            name: peer.name,
            address: peer.address,
            incarnation: peer.incarnation,
            channel,
            cdap: Management::cdap(now, &connect, false),
            nonces: (nonce, responder_nonce),
            reply,
            stage,
            heard: now,
            ask_at: now + self.keepalive_interval(),
            missed: 0,
        };
        self.channel_is_up(now, n1, up, dt);
        dt.set_sdu_protection(n1, protection);
        Ok(())
    }
}
