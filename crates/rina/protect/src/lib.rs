//! SDU protection and authentication: the checksums, compression and cryptography of an IPCP.
//!
//! [`Tools`] implements [`Toolbox`](carina_ipcp::security::Toolbox). It creates the policies of the
//! components `sdu-protection` and `authentication` from this member's [`Credentials`].
//! docs/explanation/security.md draws the formats and states what each policy protects against. The
//! cryptographic algorithms are those of AWS-LC.

#![forbid(unsafe_code)]

pub mod auth;
mod base64;
mod crypto_error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod key;
pub mod random;
pub mod sdu_protection;
mod tools;

pub use auth::AuthError;
pub use crypto_error::CryptoError;
pub use tools::{Credentials, PolicyError, Secret, Tools};
