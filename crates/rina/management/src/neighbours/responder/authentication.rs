//! The responder's side of authentication.

use alloc::format;
use alloc::string::ToString;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::data_transfer::api::{DataTransfer, Target};
use carina_ipcp::security::AuthStep;
use carina_time::Instant;

use super::Responder;
use crate::Management;
use crate::access_control::IdentityMismatch;
use crate::neighbours::AuthState;
use crate::schema::{self, Greeting, Object, result};

impl Management {
    /// Handles an authentication message, whether this side is initiator or responder.
    pub(in super::super) fn on_authentication(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(greeting) = schema::decode::<Greeting>(schema::bytes(message)) else {
            return self.log.discard(&peer, "malformed-greeting");
        };
        if greeting.step % 2 == 1 {
            return self.on_authentication_request(now, n1, greeting, dt);
        }
        let Some(responder) = self
            .n1s
            .get_mut(&n1)
            .and_then(|flow| flow.responder.as_mut())
        else {
            self.log.count("stale");
            return;
        };
        if (greeting.nonce, greeting.responder_nonce)
            != (responder.nonce, responder.responder_nonce)
        {
            self.log.count("stale");
            return;
        }
        if greeting.step + 1 == responder.step {
            let last = responder.last.clone();
            dt.send_management(now, Target::N1(n1), &last);
            return;
        }
        if greeting.step != responder.step + 1 || responder.is_accepted {
            self.log.count("stale");
            return;
        }
        self.check_token(now, n1, greeting, dt);
    }

    fn check_token(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(mut responder) = self.n1s.get_mut(&n1).and_then(|flow| flow.responder.take())
        else {
            return;
        };
        responder.step += 2;
        let Some(auth) = &mut responder.auth_state.auth else {
            return;
        };
        match auth.step(now, greeting.token.as_deref()) {
            AuthStep::Send(token) => {
                let own = Greeting {
                    nonce: responder.nonce,
                    responder_nonce: responder.responder_nonce,
                    step: responder.step,
                    token: Some(token),
                    mechanism: greeting.mechanism,
                    ..self.greeting(n1)
                };
                let value = Some(schema::encode(&own));
                let message = schema::request(Opcode::Write, &Object::Authentication, value);
                responder.last = self.send_to_peer(now, n1, &message, dt);
                if let Some(flow) = self.n1s.get_mut(&n1) {
                    flow.responder = Some(responder);
                }
            }
            AuthStep::Done {
                last,
                secret,
                identity,
            } => {
                if !identity.is_empty() && identity != responder.peer.name {
                    let error = IdentityMismatch::new(&responder.peer.name, &identity);
                    return self.deny(now, n1, &responder, &error.to_string(), dt);
                }
                responder.auth_state = AuthState { auth: None, secret };
                self.accept(now, n1, responder, last, dt);
            }
            AuthStep::Fail(text) => self.deny(now, n1, &responder, &text, dt),
        }
    }

    /// Refuses an initiator whose authentication failed. The answer does not contain the reason.
    fn deny(
        &mut self,
        now: Instant,
        n1: N1Port,
        responder: &Responder,
        text: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.log.count("authentication-failed");
        let name = &responder.peer.name;
        self.log
            .notice(name, &format!("authentication of {name:?} failed: {text}"));
        let peer = Greeting {
            responder_nonce: responder.responder_nonce,
            ..responder.peer.clone()
        };
        let reason = "authentication failed; check the credentials of both IPCPs";
        let connect = responder.connect.clone();
        self.refuse(now, n1, &connect, &peer, result::REJECTED, reason, dt);
    }

    /// Handles M_RELEASE during an attempt: the initiator gave up.
    pub(in super::super) fn on_attempt_release(&mut self, now: Instant, n1: N1Port) {
        let _ = now;
        if let Some(flow) = self.n1s.get_mut(&n1)
            && let Some(responder) = flow.responder.take_if(|responder| !responder.is_accepted)
        {
            let name = responder.peer.name;
            let text = format!(
                "{name:?} ended the authentication because this member's proof was wrong; check \
                 the credentials of both IPCPs"
            );
            self.log.notice(&name, &text);
        }
    }
}
