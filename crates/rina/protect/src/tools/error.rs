//! Errors when a policy is created.

use crate::auth::AuthError;
use crate::crypto_error::CryptoError;
use crate::key::KeyError;

/// Why a policy of `authentication` or `sdu-protection` could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The component has no policy of this name.
    #[error("{component}: no policy `{policy}`; there are: {known}")]
    UnknownPolicy {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// The unknown policy name, as the configuration has it.
        policy: String,
        /// The names of the existing policies, separated by commas.
        known: String,
    },
    /// The policy has no parameter of this name.
    #[error("{component} `{policy}` has no parameter `{parameter}`")]
    UnknownParameter {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// Name of the policy that does not have the parameter.
        policy: String,
        /// The unknown parameter name, as the configuration has it.
        parameter: String,
    },
    /// The value of a parameter is invalid.
    #[error(
        "sdu-protection: policy {policy}: parameter {parameter} is {value:?}; it must be: {meaning}"
    )]
    Value {
        /// Name of the policy whose parameter has an invalid value.
        policy: String,
        /// Name of the parameter with the invalid value.
        parameter: &'static str,
        /// The invalid value, as the configuration has it.
        value: String,
        /// The valid values.
        meaning: &'static str,
    },
    /// The credentials contain no password.
    #[error("authentication `{policy}`: this member has no password")]
    NoPassword {
        /// Name of the authentication policy that needs a password.
        policy: &'static str,
    },
    /// The credentials contain no private key.
    #[error("authentication `ed25519`: this member has no key")]
    NoKey,
    /// The list of allowed keys is empty.
    #[error("authentication `ed25519`: no key is allowed")]
    NothingAllowed,
    /// A public key that the policy names is malformed.
    #[error(transparent)]
    Allowed(#[from] KeyError),
    /// The policy needs a shared secret, which the authentication policy does not provide.
    #[error("sdu-protection `aead` needs a secret: authentication must be `ed25519` or `password`")]
    NoSecret,
    /// An authenticator could not be created.
    #[error(transparent)]
    Auth(#[from] AuthError),
    /// A cryptographic operation failed.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}
