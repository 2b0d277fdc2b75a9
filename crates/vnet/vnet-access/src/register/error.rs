//! Why a register decides or keeps nothing.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::key::KeyError;
use crate::token::ADDRESSES_MAX;

/// Why something could not be decided or kept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file has something else in it.
    #[error("{}: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// No such user.
    #[error("access point {access} of network {network} has no user {user}; it has: {known}")]
    NoUser {
        /// The access point.
        access: String,
        /// The network.
        network: String,
        /// The user.
        user: String,
        /// The users that there are.
        known: String,
    },
    /// A lease that is no time, or a long one.
    #[error("a lease of {0} s: must be 1 s to 365 days")]
    Lease(u64),
    /// A right to a DIF that there is not.
    #[error(
        "access point {access} of network {network} gives no right `dif`: its node {node} is in no \
         DIF, because no link of it is `as = \"dif\"`"
    )]
    NoDif {
        /// The access point.
        access: String,
        /// The network.
        network: String,
        /// The address of the node.
        node: Ipv4Addr,
    },
    /// A token without addresses, or with many.
    #[error("{0} addresses: a token has 1 to {ADDRESSES_MAX}")]
    Addresses(usize),
    /// The keys.
    #[error(transparent)]
    Key(#[from] KeyError),
}
