//! Why an authentication fails.

use crate::crypto_error::CryptoError;

/// Why an authentication fails. The text is for the local log; the other side learns only that it
/// failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// Cryptography failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The password is empty.
    #[error("authentication `{policy}`: the password is empty")]
    EmptyPassword {
        /// The policy.
        policy: &'static str,
    },
    /// The other side sent no authentication message.
    #[error("the other side does not authenticate itself")]
    NoMessage,
    /// A message is shorter than its header.
    #[error("the authentication message is too short")]
    Short,
    /// A message of an unknown version.
    #[error("authentication of version {0} is unknown")]
    Version(u8),
    /// A message of another policy.
    #[error("the other side has another authentication policy")]
    OtherPolicy,
    /// Another message than the expected one.
    #[error("authentication message {given} came where {due} is due")]
    Order {
        /// Number of the message that came.
        given: u8,
        /// Number of the expected message.
        due: u8,
    },
    /// The fields of a message have another length than they must have.
    #[error("authentication message {number} has {given} bytes in place of {due}")]
    Length {
        /// Number of the message.
        number: u8,
        /// Bytes that it has.
        given: usize,
        /// Bytes that it must have.
        due: usize,
    },
    /// The proof of the other side does not match.
    #[error("the other side has another password, or means another DIF or member")]
    Proof,
    /// The list of allowed keys does not contain the key of the other side.
    #[error("the key `{key}` of the other side is not on the list of allowed ones")]
    NotAllowed {
        /// The public key, as text.
        key: String,
    },
    /// The other side has this member's own key.
    #[error(
        "the other side has this member's own key, `{key}`: each member needs a key of its own; \
         `carina key generate` makes one"
    )]
    OwnKey {
        /// The public key, as text.
        key: String,
    },
    /// The signature does not verify.
    #[error("the signature of `{name}` is wrong")]
    Signature {
        /// Name of the key.
        name: String,
    },
    /// The MAC does not verify: the signature belongs to another exchange.
    #[error("`{name}` has signed an exchange that is not this one")]
    OtherExchange {
        /// Name of the key.
        name: String,
    },
}
