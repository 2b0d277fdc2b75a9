//! Errors of a register.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::key::KeyError;
use crate::token::ADDRESSES_MAX;

/// Why a register could not decide or store something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The register's file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the register's file.
        path: PathBuf,
        /// Why the operating system could not read or write the file.
        source: std::io::Error,
    },
    /// The file's content is invalid.
    #[error("{}: {source}", path.display())]
    Json {
        /// Path of the register's file.
        path: PathBuf,
        /// What is wrong with the JSON of the register.
        source: serde_json::Error,
    },
    /// The access point has no such user.
    #[error("access point {access} of network {network} has no user {user}; it has: {known}")]
    NoUser {
        /// Name of the access point without that user.
        access: String,
        /// Name of the network to which the access point belongs.
        network: String,
        /// Name of the user that the request names and the access point does not have.
        user: String,
        /// The users that the access point has, as a list in text.
        known: String,
    },
    /// The lease is zero or too long.
    #[error("a lease of {0} s: must be from 1 s to 365 days")]
    Lease(u64),
    /// A token with the right `dif` (membership in the network's DIF) is requested, but the access
    /// point's node is not a member of a DIF.
    #[error(
        "access point {access} of network {network} cannot grant the right `dif`: its node, \
         {node}, is not a member of a DIF, because no link of that node has `as = \"dif\"`"
    )]
    NoDif {
        /// Name of the access point whose node is not a member of a DIF.
        access: String,
        /// Name of the network to which the access point belongs.
        network: String,
        /// IPv4 address of the access point's node.
        node: Ipv4Addr,
    },
    /// The token would list no address at which users reach the access point, or too many.
    #[error("{0} addresses: a token must have 1 to {ADDRESSES_MAX}")]
    Addresses(usize),
    /// The keys are not available or unusable.
    #[error(transparent)]
    Key(#[from] KeyError),
}
