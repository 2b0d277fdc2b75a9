//! The authentication policy `password`: both sides prove that they know the password without
//! sending it.
//!
//! ```text
//!  1, 2:  | nonce: 32 |
//!  3, 4:  | HMAC-SHA-256(key, "3" or "4" and hash(context, nonce 1, nonce 2)): 32 |
//! ```
//!
//! The initiator proves first. So a stranger that connects gets nothing with which to test guessed
//! passwords.

use std::num::NonZeroU32;

use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use aws_lc_rs::{hmac, pbkdf2};
use carina_ipcp::security::{AuthStep, Authenticator};
use carina_time::Instant;

use super::message::{Kind, hash, read, write};
use super::{AuthError, Conversation, Steps};
use crate::crypto_error::CryptoError;
use crate::random::Random;

/// A key derived from a password by PBKDF2. Deriving it takes a few milliseconds; do it once.
#[derive(Clone)]
pub struct Stretched(pub(super) [u8; 32]);

impl Stretched {
    /// Derives the key from a password; the call takes a few milliseconds.
    pub fn new(password: &[u8]) -> Stretched {
        let mut key = [0; 32];
        let rounds = NonZeroU32::MIN.saturating_add(ROUNDS - 1);
        let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
        pbkdf2::derive(algorithm, rounds, b"carina password", password, &mut key);
        Stretched(key)
    }

    /// Wraps a key that is already derived.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of_key(key: [u8; 32]) -> Stretched {
        Stretched(key)
    }
}

/// One side of an authentication by the policy `password`.
pub struct Password(Conversation<State>);

struct State {
    key: Stretched,
    is_initiator: bool,
    context: Vec<u8>,
    nonce: [u8; 32],
    /// Hash of the context and both nonces, once both are known.
    transcript: Option<[u8; 32]>,
}

impl Password {
    /// Creates one side of a conversation, with a new nonce.
    ///
    /// # Errors
    /// No random bytes are available.
    pub fn new(
        key: &Stretched,
        is_initiator: bool,
        context: &[u8],
        random: &mut dyn Random,
    ) -> Result<Password, CryptoError> {
        let mut nonce = [0; 32];
        random.fill(&mut nonce)?;
        Ok(Password(Conversation::new(State {
            key: key.clone(),
            is_initiator,
            context: context.into(),
            nonce,
            transcript: None,
        })))
    }
}

impl Authenticator for Password {
    fn step(&mut self, _now: Instant, message: Option<&[u8]>) -> AuthStep {
        self.0.step(message)
    }
}

impl Steps for State {
    fn begin(&mut self) -> Result<AuthStep, AuthError> {
        if self.is_initiator {
            Ok(AuthStep::Send(write(KIND, 1, &[&self.nonce])))
        } else {
            Err(AuthError::NoMessage)
        }
    }

    fn take(&mut self, message: &[u8]) -> Result<AuthStep, AuthError> {
        match (self.is_initiator, self.transcript) {
            (false, None) => {
                let theirs = read::<32>(KIND, 1, message)?;
                self.transcript = Some(self.bind(theirs, &self.nonce));
                Ok(AuthStep::Send(write(KIND, 2, &[&self.nonce])))
            }
            (true, None) => {
                let theirs = read::<32>(KIND, 2, message)?;
                let transcript = self.bind(&self.nonce, theirs);
                self.transcript = Some(transcript);
                Ok(AuthStep::Send(write(
                    KIND,
                    3,
                    &[self.proof(3, &transcript).as_ref()],
                )))
            }
            (false, Some(transcript)) => {
                self.check(3, &transcript, read::<32>(KIND, 3, message)?)?;
                let proof = self.proof(4, &transcript);
                self.done(&transcript, Some(write(KIND, 4, &[proof.as_ref()])))
            }
            (true, Some(transcript)) => {
                self.check(4, &transcript, read::<32>(KIND, 4, message)?)?;
                self.done(&transcript, None)
            }
        }
    }
}

impl State {
    fn bind(&self, initiator: &[u8; 32], responder: &[u8; 32]) -> [u8; 32] {
        hash(&[b"carina password 1", &self.context, initiator, responder])
    }

    fn proof(&self, number: u8, transcript: &[u8; 32]) -> hmac::Tag {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key.0);
        hmac::sign(&key, &[&[number], transcript.as_slice()].concat())
    }

    /// Checks the proof of the other side, in constant time.
    fn check(&self, number: u8, transcript: &[u8; 32], proof: &[u8; 32]) -> Result<(), AuthError> {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.key.0);
        let text = [&[number], transcript.as_slice()].concat();
        hmac::verify(&key, &text, proof).map_err(|_| AuthError::Proof)
    }

    fn done(&self, transcript: &[u8; 32], last: Option<Vec<u8>>) -> Result<AuthStep, AuthError> {
        let mut secret = [0; 32];
        Salt::new(HKDF_SHA256, transcript)
            .extract(&self.key.0)
            .expand(&[b"carina password secret"], HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut secret))
            .map_err(|_| CryptoError::Secret)?;
        Ok(AuthStep::Done {
            last,
            secret: Some(secret),
            identity: String::new(),
        })
    }
}

const KIND: Kind = Kind::Password;

/// Iterations of PBKDF2, as many as a member can afford when it starts. They make guessing more
/// expensive, but not infeasible: a password for this policy should be long.
const ROUNDS: u32 = 10_000;
