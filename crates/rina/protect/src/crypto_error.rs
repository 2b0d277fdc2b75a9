//! What can go wrong below a policy, in cryptography itself.

/// Why an operation of cryptography failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CryptoError {
    /// The source of random bytes failed.
    #[error("the system gives no random bytes")]
    NoRandomBytes,
    /// The ephemeral key of this side was refused.
    #[error("the ephemeral key is refused")]
    EphemeralKey,
    /// The ephemeral key of the other side cannot be used.
    #[error("the ephemeral key of the other side is no good")]
    PeerEphemeralKey,
    /// Derivation of a key failed.
    #[error("no key can be derived")]
    Key,
    /// Derivation of the shared secret failed.
    #[error("no secret can be derived")]
    Secret,
}
