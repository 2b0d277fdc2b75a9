//! The asking side proves who it is, as the answering side wants it.

use alloc::format;
use alloc::string::{String, ToString};

use carina_cdap::{Message, Opcode};

use super::State;
use crate::api::N1Port;
use crate::config::PolicySpec;
use crate::data_transfer::api::DataTransfer;
use crate::layer_management::Management;
use crate::layer_management::access::is_another;
use crate::layer_management::dialect::{self, Greeting, Object};
use crate::layer_management::neighbours::Proof;
use crate::security::AuthStep;

impl Management {
    /// An authentication message of the answering side.
    pub(in super::super) fn on_proof_wanted(
        &mut self,
        now: u64,
        n1: N1Port,
        greeting: Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(asking) = self.asking(n1) else {
            return;
        };
        let is_next = asking.is_answer(&greeting) && greeting.step == asking.step + 1;
        if !is_next || !matches!(asking.state, State::Connecting | State::Authenticating) {
            self.journal.count("stale");
            return;
        }
        let is_first = asking.step == 0;
        asking.state = State::Authenticating;
        asking.answer_nonce = greeting.answer_nonce;
        asking.step += 2;
        if is_first && let Err(reason) = self.begin_proof(n1, &greeting) {
            return self.attempt_failed(now, n1, &reason, false, dt);
        }
        let Some(asking) = self.asking(n1) else {
            return;
        };
        let Some(auth) = &mut asking.proof.auth else {
            return;
        };
        let token = match auth.step(now, greeting.token.as_deref()) {
            AuthStep::Send(token) => Some(token),
            AuthStep::Done {
                last,
                secret,
                identity,
            } => {
                if !identity.is_empty() && identity != greeting.name {
                    let reason = is_another(&greeting.name, &identity);
                    return self.attempt_failed(now, n1, &reason, false, dt);
                }
                asking.proof = Proof { auth: None, secret };
                last
            }
            AuthStep::Fail(text) => {
                let reason = format!("authentication failed: {text}");
                let release = Message::new(Opcode::Release);
                self.send_plain(now, n1, &release, dt);
                return self.attempt_failed(now, n1, &reason, false, dt);
            }
        };
        let (nonce, step) = (asking.nonce, asking.step);
        let answer_nonce = asking.answer_nonce;
        let reply = Greeting {
            nonce,
            answer_nonce,
            step,
            token,
            mechanism: greeting.mechanism,
            ..self.greeting(n1)
        };
        let value = dialect::encode(&reply);
        let message = dialect::request(Opcode::Write, &Object::Authentication, Some(value));
        self.go_on(now, n1, &message, dt);
    }

    /// The answering side has named its policy: the same is used here.
    fn begin_proof(&mut self, n1: N1Port, greeting: &Greeting) -> Result<(), String> {
        let spec = match self.authentication() {
            Some(spec) if spec.name != greeting.mechanism => {
                return Err(format!(
                    "the DIF authenticates with {:?}; this IPCP is configured for {:?}",
                    greeting.mechanism, spec.name
                ));
            }
            Some(spec) => spec,
            None => PolicySpec {
                name: greeting.mechanism.clone(),
                ..PolicySpec::default()
            },
        };
        let own = self.own.clone();
        let Some(asking) = self.asking(n1) else {
            return Ok(());
        };
        let nonces = (asking.nonce, asking.answer_nonce);
        let auth = self.authenticator(&spec, true, (&own, &greeting.name), nonces)?;
        if let Some(asking) = self.asking(n1) {
            asking.proof.auth = Some(auth);
        }
        Ok(())
    }

    /// The last message of the authentication, when there is one.
    pub(super) fn finish_proof(
        &mut self,
        now: u64,
        n1: N1Port,
        greeting: &Greeting,
    ) -> Result<(), String> {
        let wanted = self.authentication();
        let Some(asking) = self.asking(n1) else {
            return Ok(());
        };
        if matches!(asking.state, State::Connecting) {
            return match wanted {
                None => Ok(()),
                Some(spec) => Err(format!(
                    "the DIF does not authenticate; this IPCP is configured for {:?}",
                    spec.name
                )),
            };
        }
        let Some(auth) = &mut asking.proof.auth else {
            return Ok(());
        };
        match auth.step(now, greeting.token.as_deref()) {
            AuthStep::Done {
                last: None,
                identity,
                ..
            } if !identity.is_empty() && identity != greeting.name => {
                Err(is_another(&greeting.name, &identity))
            }
            AuthStep::Done {
                last: None, secret, ..
            } => {
                asking.proof = Proof { auth: None, secret };
                Ok(())
            }
            AuthStep::Fail(text) => Err(format!("authentication failed: {text}")),
            _ => Err("authentication failed: the other side ended it too early".to_string()),
        }
    }
}
