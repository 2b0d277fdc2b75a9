//! The authentication policy `ed25519`: a signed Diffie-Hellman exchange, after SIGMA (Krawczyk,
//! CRYPTO 2003).
//!
//! ```text
//!  1:  | ephemeral: 32 |
//!  2:  | ephemeral: 32 | identity: 32 | signature: 64 | MAC: 32 |
//!  3:  | identity: 32 | signature: 64 | MAC: 32 |
//!
//!  T2 = hash(context, ephemeral 1, ephemeral 2, identity of the responder)
//!  T3 = hash(T2, identity of the initiator)
//!  signature 2 is over "responder" and T2; signature 3 over "initiator" and T3
//!  MAC = HMAC-SHA-256(confirmation key, "responder" and T2, "initiator" and T3)
//! ```
//!
//! The ephemeral keys are X25519, the identities Ed25519. A signature proves the identity of its
//! sender. The MAC proves that the sender has the shared secret, so that no member can present
//! another member's exchange as its own. Keys are discarded when the flow ends: an identity key
//! that is stolen later does not decrypt earlier traffic (forward secrecy).

use std::sync::Arc;

use aws_lc_rs::agreement::{PrivateKey, UnparsedPublicKey, X25519, agree};
use aws_lc_rs::hkdf::{HKDF_SHA256, Prk, Salt};
use aws_lc_rs::{hmac, signature};
use carina_ipcp::security::{AuthStep, Authenticator};
use carina_time::Instant;

use super::message::{Kind, hash, read, write};
use super::{AuthError, Conversation, Steps};
use crate::crypto_error::CryptoError;
use crate::key::{Allowed, Identity};
use crate::random::Random;

/// One side of an authentication by the policy `ed25519`.
pub struct Ed25519(Conversation<State>);

struct State {
    identity: Arc<Identity>,
    allowed: Arc<Allowed>,
    is_initiator: bool,
    context: Vec<u8>,
    ephemeral: PrivateKey,
    ephemeral_public: [u8; 32],
    /// What the responder keeps between messages 1 and 3.
    answered: Option<Shared>,
}

/// Values that both sides know once they have both ephemeral keys.
struct Shared {
    prk: Prk,
    transcript: [u8; 32],
}

impl Ed25519 {
    /// Creates one side of a conversation, with a new ephemeral key.
    ///
    /// # Errors
    /// No random bytes are available, or the library refuses the ephemeral key.
    pub fn new(
        identity: Arc<Identity>,
        allowed: Arc<Allowed>,
        is_initiator: bool,
        context: &[u8],
        random: &mut dyn Random,
    ) -> Result<Ed25519, CryptoError> {
        let mut bytes = [0; 32];
        random.fill(&mut bytes)?;
        let refused = CryptoError::EphemeralKey;
        let ephemeral = PrivateKey::from_private_key(&X25519, &bytes).map_err(|_| refused)?;
        let public = ephemeral.compute_public_key().map_err(|_| refused)?;
        let ephemeral_public = public.as_ref().try_into().map_err(|_| refused)?;
        Ok(Ed25519(Conversation::new(State {
            identity,
            allowed,
            is_initiator,
            context: context.into(),
            ephemeral,
            ephemeral_public,
            answered: None,
        })))
    }
}

impl Authenticator for Ed25519 {
    fn step(&mut self, _now: Instant, message: Option<&[u8]>) -> AuthStep {
        self.0.step(message)
    }
}

impl Steps for State {
    fn begin(&mut self) -> Result<AuthStep, AuthError> {
        if self.is_initiator {
            Ok(AuthStep::Send(write(KIND, 1, &[&self.ephemeral_public])))
        } else {
            Err(AuthError::NoMessage)
        }
    }

    fn take(&mut self, message: &[u8]) -> Result<AuthStep, AuthError> {
        match (self.is_initiator, &self.answered) {
            (false, None) => self.answer(read::<32>(KIND, 1, message)?),
            (false, Some(shared)) => {
                let signed = read::<SIGNED>(KIND, 3, message)?;
                let identity = &signed[..32];
                let transcript = hash(&[&shared.transcript, identity]);
                let name = self.check(INITIATOR, signed, &transcript, &shared.prk)?;
                done(&shared.prk, &transcript, None, name)
            }
            (true, _) => self.finish(read::<{ 32 + SIGNED }>(KIND, 2, message)?),
        }
    }
}

impl State {
    fn answer(&mut self, theirs: &[u8; 32]) -> Result<AuthStep, AuthError> {
        let ours = self.ephemeral_public;
        let prk = self.agree(theirs)?;
        let own = self.identity.public();
        let transcript = hash(&[LABEL, &self.context, theirs, &ours, own]);
        let signed = self.sign(RESPONDER, &transcript, &prk)?;
        self.answered = Some(Shared { prk, transcript });
        Ok(AuthStep::Send(write(KIND, 2, &[&ours, &signed])))
    }

    fn finish(&mut self, fields: &[u8; 32 + SIGNED]) -> Result<AuthStep, AuthError> {
        let (theirs, signed) = fields.split_at(32);
        let identity = &signed[..32];
        let prk = self.agree(theirs)?;
        let ours = &self.ephemeral_public;
        let transcript = hash(&[LABEL, &self.context, ours, theirs, identity]);
        let name = self.check(RESPONDER, signed, &transcript, &prk)?;
        let transcript = hash(&[&transcript, self.identity.public()]);
        let signed = self.sign(INITIATOR, &transcript, &prk)?;
        done(&prk, &transcript, Some(write(KIND, 3, &[&signed])), name)
    }

    /// Computes the shared secret of both ephemeral keys, as a key for key derivation.
    fn agree(&self, theirs: &[u8]) -> Result<Prk, CryptoError> {
        let theirs = UnparsedPublicKey::new(&X25519, theirs);
        let refused = CryptoError::PeerEphemeralKey;
        agree(&self.ephemeral, theirs, refused, |shared| {
            Ok(Salt::new(HKDF_SHA256, LABEL).extract(shared))
        })
    }

    /// The identity, a signature and a MAC over `role` and `transcript`.
    fn sign(&self, role: &[u8], transcript: &[u8; 32], prk: &Prk) -> Result<Vec<u8>, CryptoError> {
        let text = [role, transcript].concat();
        let signature = self.identity.sign(&text);
        let mac = hmac::sign(&confirmation(prk)?, &text);
        Ok([self.identity.public().as_slice(), &signature, mac.as_ref()].concat())
    }

    /// Checks what [`State::sign`] of the other side has made. Returns the name of the other side's
    /// key.
    fn check(
        &self,
        role: &[u8],
        signed: &[u8],
        transcript: &[u8; 32],
        prk: &Prk,
    ) -> Result<String, AuthError> {
        let (identity, rest) = signed.split_at(32);
        let (signature, mac) = rest.split_at(64);
        if identity == self.identity.public() {
            let key = crate::key::public_text(identity);
            return Err(AuthError::OwnKey { key });
        }
        let name = self.allowed.name(identity);
        let name = name.ok_or_else(|| AuthError::NotAllowed {
            key: crate::key::public_text(identity),
        })?;
        let text = [role, transcript].concat();
        signature::UnparsedPublicKey::new(&signature::ED25519, identity)
            .verify(&text, signature)
            .map_err(|_| AuthError::Signature { name: name.into() })?;
        hmac::verify(&confirmation(prk)?, &text, mac)
            .map_err(|_| AuthError::OtherExchange { name: name.into() })?;
        Ok(name.into())
    }
}

fn confirmation(prk: &Prk) -> Result<hmac::Key, CryptoError> {
    expand(prk, &[b"confirmation"]).map(|key| hmac::Key::new(hmac::HMAC_SHA256, &key))
}

fn done(
    prk: &Prk,
    transcript: &[u8; 32],
    last: Option<Vec<u8>>,
    identity: String,
) -> Result<AuthStep, AuthError> {
    let secret = expand(prk, &[b"secret ", transcript])?;
    Ok(AuthStep::Done {
        last,
        secret: Some(secret),
        identity,
    })
}

fn expand(prk: &Prk, info: &[&[u8]]) -> Result<[u8; 32], CryptoError> {
    let mut out = [0; 32];
    prk.expand(info, HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut out))
        .map_err(|_| CryptoError::Key)?;
    Ok(out)
}

const KIND: Kind = Kind::Ed25519;
const LABEL: &[u8] = b"carina ed25519 1";
const INITIATOR: &[u8] = b"initiator ";
const RESPONDER: &[u8] = b"responder ";

/// Length of identity, signature and MAC.
const SIGNED: usize = 32 + 64 + 32;
