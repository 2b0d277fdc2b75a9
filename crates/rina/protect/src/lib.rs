//! SDU protection and authentication: what an IPCP needs of checksums, compression, cryptography.
//!
//! [`Tools`] implements [`Toolbox`](carina_ipcp::security::Toolbox): it makes the policies of the
//! components `sdu-protection` and `authentication` from this member's [`Credentials`].
//! docs/explanation/security.md draws the formats and says what each policy protects against, and
//! what not. Cryptography itself is AWS-LC's.

#![forbid(unsafe_code)]

pub mod auth;
mod base64;
mod crypto_error;
pub mod fuzz;
pub mod key;
pub mod random;
pub mod sdu_protection;
mod tools;

pub use auth::AuthError;
pub use crypto_error::CryptoError;
pub use tools::{Credentials, PolicyError, Secret, Tools};
