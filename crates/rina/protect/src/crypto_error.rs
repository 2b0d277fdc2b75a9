//! Errors of cryptographic operations.

/// Why a cryptographic operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CryptoError {
    /// The source of random bytes failed.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    /// The library refused the ephemeral key of this side.
    #[error("the cryptographic library refuses the ephemeral key")]
    EphemeralKey,
    /// The ephemeral key of the other side is invalid.
    #[error("the ephemeral key of the other side is invalid")]
    PeerEphemeralKey,
    /// A key could not be derived.
    #[error("no key can be derived")]
    Key,
    /// The shared secret could not be derived.
    #[error("no secret can be derived")]
    Secret,
}
