//! Why a member cannot start, or has ended.

use std::io;
use std::path::PathBuf;

use carina_api::control::ClientError;
use carina_api::{AppName, DifName};
use carina_apps::prefix::PrefixError;
use carina_client::Error;
use carina_netdev::NetdevError;
use thiserror::Error as ThisError;

/// Why a member cannot start, or has ended.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum IpError {
    /// A setting has an invalid value.
    #[error("{field} is {value}; {right} would be right")]
    Setting {
        /// Name of the setting that has a wrong value.
        field: &'static str,
        /// The wrong value of the setting.
        value: String,
        /// A description of correct values.
        right: &'static str,
    },
    /// The text is not an address of an interface.
    #[error(
        "{0:?}: the address of an interface is a unicast address, a slash and the length of its \
         link's prefix, for example 10.9.1.1/24"
    )]
    Address(String),
    /// The text is not a prefix.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// This system is not a member of the DIF.
    #[error("this system is in no DIF {dif}; it is in: {have}")]
    NoDif {
        /// The DIF that the settings of the member name.
        dif: DifName,
        /// The DIFs of which this system has a member, as a list in text.
        have: String,
    },
    /// No node runs.
    #[error("reaching the node: {source}")]
    Node {
        /// Why the node on this system cannot be reached.
        source: Error,
    },
    /// The node does not answer.
    #[error("reading the directory of DIF {dif}: {source}")]
    Directory {
        /// Name of the DIF whose directory was read.
        dif: DifName,
        /// Why the node did not answer the question about the DIF.
        source: ClientError,
    },
    /// The interface cannot be made or configured.
    #[error(transparent)]
    Interface(#[from] NetdevError),
    /// The kernel forwards no packets of IPv6; holds the path of the setting that is 0.
    #[error(
        "nat has a prefix of IPv6, but {0} is 0; write 1 into it, and accept_ra=2 for interfaces \
         that get their routes by router advertisements"
    )]
    Forwarding(&'static str),
    /// Another program removed the interface.
    #[error("the interface {0} was removed")]
    Removed(String),
    /// The network namespace cannot be entered.
    #[error("entering the network namespace {}: {source}", path.display())]
    Namespace {
        /// File of the network namespace that cannot be entered.
        path: PathBuf,
        /// Why the kernel refused to enter the namespace.
        source: io::Error,
    },
    /// The node does not register a name.
    #[error("registering {name}: {source}")]
    Register {
        /// The name that the member tried to register.
        name: AppName,
        /// The error that the node returned.
        source: Error,
    },
    /// A registration has ended: the node has ended, or the DIF no longer accepts the name.
    #[error("the registration of {name} has ended: {source}")]
    Ended {
        /// The name that is no longer registered.
        name: AppName,
        /// The error that the node returned.
        source: Error,
    },
    /// A system call failed.
    #[error("{action}: {source}")]
    System {
        /// The operation that failed, as a phrase for people.
        action: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

impl IpError {
    /// Returns a closure for `map_err` that makes an [`IpError::System`] of an I/O error.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> IpError {
        move |source| IpError::System { action, source }
    }
}
