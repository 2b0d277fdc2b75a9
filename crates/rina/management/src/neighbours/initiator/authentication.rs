//! The initiator's side of authentication, with the policy that the responder names.

use alloc::string::ToString;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::config::PolicySpec;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::security::AuthStep;
use carina_time::Instant;

use super::State;
use crate::Management;
use crate::access_control::IdentityMismatch;
use crate::neighbours::AuthState;
use crate::neighbours::error::AttemptError;
use crate::schema::{self, Greeting, Object};

impl Management {
    /// Handles an authentication message of the responder.
    pub(in super::super) fn on_authentication_request(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: Greeting,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        let is_next = initiator.is_answer(&greeting) && greeting.step == initiator.step + 1;
        if !is_next || !matches!(initiator.state, State::Connecting | State::Authenticating) {
            self.log.count("stale");
            return;
        }
        let is_first = initiator.step == 0;
        initiator.state = State::Authenticating;
        initiator.responder_nonce = greeting.responder_nonce;
        initiator.step += 2;
        if is_first && let Err(error) = self.begin_authentication(n1, &greeting) {
            return self.attempt_failed(now, n1, &error.to_string(), false, dt);
        }
        let Some(initiator) = self.initiator(n1) else {
            return;
        };
        let Some(auth) = &mut initiator.auth_state.auth else {
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
                    let error = IdentityMismatch::new(&greeting.name, &identity);
                    return self.attempt_failed(now, n1, &error.to_string(), false, dt);
                }
                initiator.auth_state = AuthState { auth: None, secret };
                last
            }
            AuthStep::Fail(text) => {
                let reason = AttemptError::Unproved(text).to_string();
                let release = Message::new(Opcode::Release);
                self.send_to_peer(now, n1, &release, dt);
                return self.attempt_failed(now, n1, &reason, false, dt);
            }
        };
        let (nonce, step) = (initiator.nonce, initiator.step);
        let responder_nonce = initiator.responder_nonce;
        let reply = Greeting {
            nonce,
            responder_nonce,
            step,
            token,
            mechanism: greeting.mechanism,
            ..self.greeting(n1)
        };
        let value = schema::encode(&reply);
        let message = schema::request(Opcode::Write, &Object::Authentication, Some(value));
        self.send_step(now, n1, &message, dt);
    }

    /// Starts authentication with the policy that the responder named.
    fn begin_authentication(
        &mut self,
        n1: N1Port,
        greeting: &Greeting,
    ) -> Result<(), AttemptError> {
        let spec = match self.authentication() {
            Some(spec) if spec.name != greeting.mechanism => {
                return Err(AttemptError::OtherMechanism {
                    theirs: greeting.mechanism.clone(),
                    ours: spec.name,
                });
            }
            Some(spec) => spec,
            None => PolicySpec {
                name: greeting.mechanism.clone(),
                ..PolicySpec::default()
            },
        };
        let own = self.own.clone();
        let Some(initiator) = self.initiator(n1) else {
            return Ok(());
        };
        let nonces = (initiator.nonce, initiator.responder_nonce);
        let auth = self.authenticator(&spec, true, (&own, &greeting.name), nonces)?;
        if let Some(initiator) = self.initiator(n1) {
            initiator.auth_state.auth = Some(auth);
        }
        Ok(())
    }

    /// Ends the authentication when the responder has answered M_CONNECT: checks the responder's
    /// last message, which some policies have.
    pub(super) fn finish_authentication(
        &mut self,
        now: Instant,
        n1: N1Port,
        greeting: &Greeting,
    ) -> Result<(), AttemptError> {
        let wanted = self.authentication();
        let Some(initiator) = self.initiator(n1) else {
            return Ok(());
        };
        if matches!(initiator.state, State::Connecting) {
            return match wanted {
                None => Ok(()),
                Some(spec) => Err(AttemptError::NoAuthentication { ours: spec.name }),
            };
        }
        let Some(auth) = &mut initiator.auth_state.auth else {
            return Ok(());
        };
        match auth.step(now, greeting.token.as_deref()) {
            AuthStep::Done {
                last: None,
                identity,
                ..
            } if !identity.is_empty() && identity != greeting.name => {
                Err(IdentityMismatch::new(&greeting.name, &identity).into())
            }
            AuthStep::Done {
                last: None, secret, ..
            } => {
                initiator.auth_state = AuthState { auth: None, secret };
                Ok(())
            }
            AuthStep::Fail(text) => Err(AttemptError::Unproved(text)),
            _ => Err(AttemptError::EndedEarly),
        }
    }
}
