//! Why a policy cannot be made.

use crate::auth::AuthError;
use crate::crypto_error::CryptoError;
use crate::key::KeyError;

/// Why a policy of `authentication` or `sdu-protection` cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The component has no policy of this name.
    #[error("{component}: no policy `{policy}`; there are: {known}")]
    UnknownPolicy {
        /// The component.
        component: &'static str,
        /// The name given.
        policy: String,
        /// The names that exist, separated by commas.
        known: String,
    },
    /// The policy has no parameter of this name.
    #[error("{component} `{policy}` has no parameter `{parameter}`")]
    UnknownParameter {
        /// The component.
        component: &'static str,
        /// The policy.
        policy: String,
        /// The name given.
        parameter: String,
    },
    /// The value of a parameter is invalid.
    #[error(
        "sdu-protection: policy {policy}: parameter {parameter} is {value:?}; it must be: {meaning}"
    )]
    Value {
        /// The policy.
        policy: String,
        /// The parameter.
        parameter: &'static str,
        /// The value given.
        value: String,
        /// Values that are valid.
        meaning: &'static str,
    },
    /// The credentials hold no password.
    #[error("authentication `{policy}`: this member has no password")]
    NoPassword {
        /// The policy.
        policy: &'static str,
    },
    /// The credentials hold no private key.
    #[error("authentication `ed25519`: this member has no key")]
    NoKey,
    /// The list of allowed keys is empty.
    #[error("authentication `ed25519`: no key is allowed")]
    NothingAllowed,
    /// A public key that the policy names is malformed.
    #[error(transparent)]
    Allowed(#[from] KeyError),
    /// The policy needs a secret that authentication did not agree on.
    #[error("sdu-protection `aead` needs a secret: authentication must be `ed25519` or `password`")]
    NoSecret,
    /// An authenticator cannot be made.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// Cryptography failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}
