//! The answering side checks who the other is.

use alloc::format;

use carina_cdap::{Message, Opcode};

use super::Answering;
use crate::api::N1Port;
use crate::data_transfer::api::{DataTransfer, Target};
use crate::layer_management::Management;
use crate::layer_management::access::is_another;
use crate::layer_management::dialect::{self, Greeting, Object, result};
use crate::layer_management::neighbours::Proof;
use crate::security::AuthStep;

impl Management {
    /// An authentication message, of either side.
    pub(in super::super) fn on_authentication(
        &mut self,
        now: u64,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let peer = format!("N-1 flow {}", n1.0);
        let Some(greeting) = dialect::decode::<Greeting>(dialect::bytes(message)) else {
            return self.discard(&peer, "malformed-greeting");
        };
        if greeting.step % 2 == 1 {
            return self.on_proof_wanted(now, n1, greeting, dt);
        }
        let Some(answering) = self
            .n1s
            .get_mut(&n1)
            .and_then(|flow| flow.answering.as_mut())
        else {
            self.journal.count("stale");
            return;
        };
        if (greeting.nonce, greeting.answer_nonce) != (answering.nonce, answering.answer_nonce) {
            self.journal.count("stale");
            return;
        }
        if greeting.step + 1 == answering.step {
            let last = answering.last.clone();
            dt.send_management(now, Target::N1(n1), &last);
            return;
        }
        if greeting.step != answering.step + 1 || answering.is_accepted {
            self.journal.count("stale");
            return;
        }
        self.check_proof(now, n1, greeting, dt);
    }

    fn check_proof(&mut self, now: u64, n1: N1Port, greeting: Greeting, dt: &mut dyn DataTransfer) {
        let Some(mut answering) = self.n1s.get_mut(&n1).and_then(|flow| flow.answering.take())
        else {
            return;
        };
        answering.step += 2;
        let Some(auth) = &mut answering.proof.auth else {
            return;
        };
        match auth.step(now, greeting.token.as_deref()) {
            AuthStep::Send(token) => {
                let own = Greeting {
                    nonce: answering.nonce,
                    answer_nonce: answering.answer_nonce,
                    step: answering.step,
                    token: Some(token),
                    mechanism: greeting.mechanism,
                    ..self.greeting(n1)
                };
                let value = Some(dialect::encode(&own));
                let message = dialect::request(Opcode::Write, &Object::Authentication, value);
                answering.last = self.send_plain(now, n1, &message, dt);
                if let Some(flow) = self.n1s.get_mut(&n1) {
                    flow.answering = Some(answering);
                }
            }
            AuthStep::Done {
                last,
                secret,
                identity,
            } => {
                if !identity.is_empty() && identity != answering.peer.name {
                    let reason = is_another(&answering.peer.name, &identity);
                    return self.deny(now, n1, &answering, &reason, dt);
                }
                answering.proof = Proof { auth: None, secret };
                self.accept(now, n1, answering, last, dt);
            }
            AuthStep::Fail(text) => self.deny(now, n1, &answering, &text, dt),
        }
    }

    /// The other side has not proved what it should. It does not hear why.
    fn deny(
        &mut self,
        now: u64,
        n1: N1Port,
        answering: &Answering,
        text: &str,
        dt: &mut dyn DataTransfer,
    ) {
        self.journal.count("authentication-failed");
        let name = &answering.peer.name;
        self.notice(name, &format!("authentication of {name:?} failed: {text}"));
        let peer = Greeting {
            answer_nonce: answering.answer_nonce,
            ..answering.peer.clone()
        };
        let reason = "authentication failed; check the credentials of both IPCPs";
        let connect = answering.connect.clone();
        self.refuse(now, n1, &connect, &peer, result::REJECTED, reason, dt);
    }

    /// The other side gave up.
    pub(in super::super) fn on_plain_release(&mut self, now: u64, n1: N1Port) {
        let _ = now;
        if let Some(flow) = self.n1s.get_mut(&n1)
            && let Some(answering) = flow.answering.take_if(|answering| !answering.is_accepted)
        {
            let name = answering.peer.name;
            let text = format!(
                "{name:?} broke the authentication off: this member did not prove \
                 what it should; check the credentials of both IPCPs"
            );
            self.notice(&name, &text);
        }
    }
}
