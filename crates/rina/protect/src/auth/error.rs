//! Errors of authentication.

use crate::crypto_error::CryptoError;

/// Why an authentication fails. The text is for the local log; the other side only learns that the
/// authentication has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthError {
    /// A cryptographic operation failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// The password is empty.
    #[error("authentication `{policy}`: the password is empty")]
    EmptyPassword {
        /// Name of the authentication policy that needs a password.
        policy: &'static str,
    },
    /// The other side sent no authentication message.
    #[error("the other side does not authenticate itself")]
    NoMessage,
    /// A message is shorter than its header.
    #[error("the authentication message is too short")]
    Short,
    /// The message has an unknown version.
    #[error("authentication of version {0} is unknown")]
    Version(u8),
    /// The message belongs to another policy.
    #[error("the other side has another authentication policy")]
    OtherPolicy,
    /// The message has another number than the expected message.
    #[error("authentication message {given} came instead of message {due}")]
    Order {
        /// Number of the received message.
        given: u8,
        /// Number of the expected message.
        due: u8,
    },
    /// The fields of the message have a wrong length.
    #[error("authentication message {number} has {given} bytes instead of {due}")]
    Length {
        /// Number of the message.
        number: u8,
        /// Length of the fields in bytes.
        given: usize,
        /// Expected length in bytes.
        due: usize,
    },
    /// The proof of the other side is wrong.
    #[error("the other side has another password, or names another DIF or member")]
    Proof,
    /// The list of allowed keys does not contain the key of the other side.
    #[error("the key `{key}` of the other side is not on the list of allowed ones")]
    NotAllowed {
        /// The public key of the other side, as text.
        key: String,
    },
    /// The other side uses this member's own key.
    #[error(
        "the other side has this member's own key, `{key}`: each member needs a key of its own; \
         `carina key generate` makes one"
    )]
    OwnKey {
        /// The public key, as text.
        key: String,
    },
    /// The signature is wrong.
    #[error("the signature of `{name}` is wrong")]
    Signature {
        /// Name of the key with which the other side claims to sign.
        name: String,
    },
    /// The MAC is wrong: the signature belongs to another exchange.
    #[error("`{name}` has signed another exchange than this one")]
    OtherExchange {
        /// Name of the key with which the other side has signed.
        name: String,
    },
}
