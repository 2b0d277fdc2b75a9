//! The authentication policies.
//!
//! A conversation is bound to a context (the DIF and both names), to the roles, and to fresh random
//! values of both sides. So a message is useless in another conversation, in the other direction,
//! or at another point.
//!
//! ```text
//!                 initiator                      responder
//!  password         1 nonce          ---------->
//!                                    <----------   2 nonce
//!                   3 proof          ---------->
//!                                    <----------   4 proof
//!
//!  ed25519          1 ephemeral      ---------->
//!                                    <----------   2 ephemeral, identity, signature, MAC
//!                   3 identity, signature, MAC -->
//! ```
//!
//! PDUs may be duplicated, so messages may be repeated. A repetition of the last message gets the
//! same answer again. Any other unexpected message ends the conversation.

mod ed25519;
mod error;
mod message;
mod password;
mod xor;

use carina_ipcp::security::{AuthStep, Authenticator};
use carina_time::Instant;

pub use ed25519::Ed25519;
pub use error::AuthError;
pub use password::{Password, Stretched};
pub use xor::XorPassword;

/// The policy `none`: it accepts every peer and proves no identity of its own.
#[derive(Debug, Default)]
pub struct Nobody;

impl Authenticator for Nobody {
    fn step(&mut self, _now: Instant, message: Option<&[u8]>) -> AuthStep {
        match message {
            None | Some([]) => AuthStep::Done {
                last: None,
                secret: None,
                identity: String::new(),
            },
            Some(_) => AuthStep::Fail(
                "the other side requires authentication, but this side has the policy `none`"
                    .into(),
            ),
        }
    }
}

/// The part of a conversation that depends on the policy. [`Conversation`] handles repetitions and
/// errors.
trait Steps {
    /// Returns the first message of the initiator. For a responder, an error.
    fn begin(&mut self) -> Result<AuthStep, AuthError>;

    /// Processes a new message and returns the next step.
    fn take(&mut self, message: &[u8]) -> Result<AuthStep, AuthError>;
}

/// A conversation of one policy. It tolerates repeated messages and ends at the first error.
struct Conversation<S> {
    steps: S,
    /// The last received message, and the step that followed it.
    last: Option<(Option<Vec<u8>>, AuthStep)>,
    failed: bool,
}

impl<S: Steps> Conversation<S> {
    fn new(steps: S) -> Conversation<S> {
        Conversation {
            steps,
            last: None,
            failed: false,
        }
    }

    fn step(&mut self, message: Option<&[u8]>) -> AuthStep {
        if self.failed {
            return AuthStep::Fail("this authentication has failed already".into());
        }
        if let Some((seen, step)) = &self.last
            && seen.as_deref() == message
        {
            return step.clone();
        }
        let step = match message {
            Some(message) => self.steps.take(message),
            None => self.steps.begin(),
        };
        let step = step.unwrap_or_else(|error| AuthStep::Fail(error.to_string()));
        self.failed = matches!(step, AuthStep::Fail(_));
        self.last = Some((message.map(Vec::from), step.clone()));
        step
    }
}

#[cfg(test)]
mod tests;
