//! Authentication: none, or a challenge that is returned combined with the password.
//!
//! ```text
//!   joining                                        admitting
//!     M_CONNECT {PSOC_authentication-password} -->
//!     <--  M_WRITE challenge request {text}        as long as the password, drawn at random
//!     M_WRITE challenge reply {text xor password} -->
//!     <--  M_CONNECT_R
//! ```
//!
//! A listener can compute the password, and the member proves nothing. It is implemented because
//! IRATI has it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use carina_cdap::{Message, Opcode};
use carina_ipcp::api::N1Port;
use carina_ipcp::config::PolicySpec;
use carina_ipcp::data_transfer::api::DataTransfer;
use carina_ipcp::policy::component;
use carina_ipcp::security::{AuthStep, Authenticator, Toolbox, XOR_PASSWORD};
use carina_time::Instant;

use super::Irati;
use super::enrollee::context;
use super::error::ChallengeError;
use super::n1::{Failure, STEP_TIMEOUT, Stage};
use super::objects::{self, result};
use super::unsupported::Unsupported;
use super::values::{self, Text};

/// Longest challenge that is answered, in bytes.
const CHALLENGE_MAX: usize = 1024;

/// The configured authentication policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Authentication {
    None,
    Password(PolicySpec),
}

/// An authenticator that has started, and the challenge to send.
type StartedAuthentication = (Box<dyn Authenticator>, Vec<u8>);

impl Authentication {
    /// # Errors
    /// The dialect has no such policy.
    pub(super) fn new(spec: &PolicySpec) -> Result<Authentication, Unsupported> {
        match spec.name.as_str() {
            "" | "none" => Ok(Authentication::None),
            XOR_PASSWORD => Ok(Authentication::Password(spec.clone())),
            other => Err(Unsupported::Policy {
                component: component::AUTHENTICATION,
                policy: other.to_string(),
                known: alloc::vec!["none", XOR_PASSWORD],
            }),
        }
    }

    /// The name of the policy in M_CONNECT.
    pub(super) fn wire_name(&self) -> &'static str {
        match self {
            Authentication::None => "PSOC_authentication-none",
            Authentication::Password(_) => "PSOC_authentication-password",
        }
    }

    /// Starts authentication at the member; `None` if none is configured.
    ///
    /// # Errors
    /// The toolbox cannot make the challenge, for example because no password is configured.
    pub(super) fn challenge(
        &self,
        toolbox: &mut dyn Toolbox,
        now: Instant,
        context: &[u8],
    ) -> Result<Option<StartedAuthentication>, ChallengeError> {
        let Authentication::Password(spec) = self else {
            return Ok(None);
        };
        let mut auth = toolbox.authenticator(spec, false, context)?;
        match auth.step(now, Some(&[])) {
            AuthStep::Send(text) => Ok(Some((auth, text))),
            AuthStep::Fail(reason) => Err(ChallengeError::Failed(reason)),
            AuthStep::Done { .. } => Err(ChallengeError::Missing),
        }
    }
}

/// Makes the message with the challenge.
pub(super) fn request(text: Vec<u8>) -> Message {
    let (name, value) = (objects::CHALLENGE, Text { text });
    objects::request(Opcode::Write, name, name, &value)
}

impl Irati {
    /// Handles the challenge, at the joining IPCP.
    pub(super) fn on_challenge(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get(&n1) else {
            return;
        };
        let Authentication::Password(spec) = self.authentication.clone() else {
            return self.discard(n1, "challenge-unsolicited");
        };
        if !matches!(flow.stage, Stage::Connecting { auth: None }) {
            return self.discard(n1, "challenge-unsolicited");
        }
        let text = values::read::<Text>(message).map(|value| value.text);
        let Some(text) = text.ok().filter(|text| text.len() <= CHALLENGE_MAX) else {
            return self.discard(n1, "challenge-unreadable");
        };
        let context = context(&self.dif, &self.own, flow.display_name());
        let mut auth = match self.toolbox.authenticator(&spec, true, &context) {
            Ok(auth) => auth,
            Err(cause) => {
                let reason = cause.to_string();
                return self.attempt_failed(now, n1, &reason, Failure::ForGood, dt);
            }
        };
        match auth.step(now, Some(&text)) {
            AuthStep::Send(text)
            | AuthStep::Done {
                last: Some(text), ..
            } => {
                if let Some(flow) = self.n1s.get_mut(&n1) {
                    flow.stage = Stage::Connecting { auth: Some(auth) };
                    flow.until = now + STEP_TIMEOUT;
                }
                let (name, value) = (objects::CHALLENGE_REPLY, Text { text });
                let reply = objects::request(Opcode::Write, name, name, &value);
                self.send(now, n1, &reply, dt);
            }
            AuthStep::Done { last: None, .. } => self.discard(n1, "challenge-unanswered"),
            AuthStep::Fail(reason) => self.attempt_failed(now, n1, &reason, Failure::ForGood, dt),
        }
    }

    /// Handles the reply to the challenge, at the member.
    pub(super) fn on_challenge_reply(
        &mut self,
        now: Instant,
        n1: N1Port,
        message: &Message,
        dt: &mut dyn DataTransfer,
    ) {
        let Some(flow) = self.n1s.get_mut(&n1) else {
            return;
        };
        let Stage::Challenging { auth, connect } = &mut flow.stage else {
            return self.discard(n1, "challenge-unsolicited");
        };
        let connect = connect.clone();
        let text = values::read::<Text>(message).map_or_else(|_| Vec::new(), |value| value.text);
        match auth.step(now, Some(&text)) {
            AuthStep::Done { .. } => self.admit(now, n1, &connect, dt),
            step => {
                let reason: String = match step {
                    AuthStep::Fail(reason) => reason,
                    _ => "the other side answers the reply with another challenge".into(),
                };
                let text = format!("{:?} was not admitted: {reason}", connect.src.ap);
                self.log.notice("authentication", &text);
                self.log.count("admissions-refused");
                let words = "authentication failed";
                let answer = connect.answer().with_error(result::REJECTED, words);
                self.send(now, n1, &answer, dt);
                self.disconnect(now, n1, words, false, dt);
            }
        }
    }
}
