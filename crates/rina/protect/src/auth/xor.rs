//! The authentication policy `xor-password`: IRATI's `PSOC_authentication-password`, for DIFs of
//! that dialect.
//!
//! ```text
//!                 initiator                      responder
//!                                    <----------   challenge: as many letters and digits, drawn at
//!                                                  random, as the password has bytes
//!                   challenge xor password ----->
//! ```
//!
//! The responder proves nothing. An eavesdropper on both messages learns the password. The policy
//! only keeps out peers that cannot eavesdrop.

use carina_ipcp::security::{AuthStep, Authenticator};
use carina_time::Instant;

use super::AuthError;
use crate::crypto_error::CryptoError;
use crate::random::Random;

/// One side of an authentication by the policy `xor-password`.
pub struct XorPassword {
    password: Vec<u8>,
    /// The challenge that the responder sends; `None` for the initiator.
    challenge: Option<Vec<u8>>,
    is_over: bool,
}

const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

impl XorPassword {
    /// Creates one side of a conversation.
    ///
    /// # Errors
    /// No random bytes are available, or the password is empty.
    pub fn new(
        password: &[u8],
        is_initiator: bool,
        random: &mut dyn Random,
    ) -> Result<XorPassword, AuthError> {
        if password.is_empty() {
            return Err(AuthError::EmptyPassword {
                policy: "xor-password",
            });
        }
        let challenge = if is_initiator {
            None
        } else {
            Some(draw(password.len(), random)?)
        };
        Ok(XorPassword {
            password: password.into(),
            challenge,
            is_over: false,
        })
    }

    fn mix(&self, text: &[u8]) -> Vec<u8> {
        let key = self.password.iter().cycle();
        text.iter().zip(key).map(|(byte, key)| byte ^ key).collect()
    }
}

/// Draws `count` random letters and digits.
fn draw(count: usize, random: &mut dyn Random) -> Result<Vec<u8>, CryptoError> {
    let mut text = Vec::with_capacity(count);
    while text.len() < count {
        let mut byte = [0];
        random.fill(&mut byte)?;
        // Takes the six low bits. Two of their values have no letter and are skipped, so that all
        // letters are equally likely.
        text.extend(LETTERS.get(usize::from(byte[0] & 0x3f)));
    }
    Ok(text)
}

impl Authenticator for XorPassword {
    fn step(&mut self, _now: Instant, message: Option<&[u8]>) -> AuthStep {
        if self.is_over {
            return AuthStep::Fail("this authentication has ended already".into());
        }
        let done = |last| AuthStep::Done {
            last,
            secret: None,
            identity: String::new(),
        };
        match (&self.challenge, message) {
            (None, Some(challenge)) => {
                let reply = self.mix(challenge);
                self.is_over = true;
                done(Some(reply))
            }
            (Some(challenge), Some([])) => AuthStep::Send(challenge.clone()),
            (Some(challenge), Some(reply)) => {
                let is_right = self.mix(reply) == *challenge;
                self.is_over = true;
                if is_right {
                    done(None)
                } else {
                    AuthStep::Fail("the other side has another password".into())
                }
            }
            (_, None) => AuthStep::Fail(
                "authentication `xor-password` is for DIFs of dialect irati, where the member \
                 begins"
                    .into(),
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Seeded;

    fn side(password: &str, is_initiator: bool) -> XorPassword {
        let random = &mut Seeded::new(3);
        XorPassword::new(password.as_bytes(), is_initiator, random).expect("made")
    }

    fn converse(mine: &str, theirs: &str) -> AuthStep {
        let (mut joining, mut admitting) = (side(mine, true), side(theirs, false));
        let AuthStep::Send(challenge) = admitting.step(Instant::ZERO, Some(&[])) else {
            panic!("no challenge");
        };
        assert_eq!(challenge.len(), theirs.len());
        assert!(challenge.iter().all(u8::is_ascii_alphanumeric));
        let AuthStep::Done {
            last: Some(reply), ..
        } = joining.step(Instant::ZERO, Some(&challenge))
        else {
            panic!("no reply");
        };
        admitting.step(Instant::ZERO, Some(&reply))
    }

    #[test]
    fn the_password_decides() {
        assert!(matches!(
            converse("kf05j.a1234", "kf05j.a1234"),
            AuthStep::Done { .. }
        ));
        for wrong in ["kf05j.a1235", "kf05j", ""] {
            if wrong.is_empty() {
                let random = &mut Seeded::new(3);
                assert!(XorPassword::new(b"", true, random).is_err());
            } else {
                assert!(matches!(converse(wrong, "kf05j.a1234"), AuthStep::Fail(_)));
            }
        }
    }

    #[test]
    fn nothing_is_answered_twice() {
        let mut joining = side("secret", true);
        assert!(matches!(
            joining.step(Instant::ZERO, Some(b"abc")),
            AuthStep::Done { .. }
        ));
        assert!(matches!(
            joining.step(Instant::ZERO, Some(b"abc")),
            AuthStep::Fail(_)
        ));
        assert!(matches!(
            side("secret", true).step(Instant::ZERO, None),
            AuthStep::Fail(_)
        ));
    }
}
