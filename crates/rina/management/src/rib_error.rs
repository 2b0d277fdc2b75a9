//! Errors of operations on the RIB.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_ipcp::data_transfer::SettingsError;
use carina_ipcp::policy::PolicyError;
use carina_ipcp::rib_view::ReadError;
use carina_routing::RoutingError;

/// Why an operation on the RIB fails.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum RibError {
    /// The read fails.
    Read(ReadError),
    /// The policy cannot be changed.
    Policy(PolicyChangeError),
    /// The object at this path is not a policy, so it cannot be written.
    NotWritable(String),
}

/// Why a policy cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum PolicyChangeError {
    /// This IPCP is not a member, so no policies are in force.
    NotMember,
    /// The policy cannot be made.
    Policy(PolicyError),
    /// Neither the policy nor its parameters can be changed while the DIF runs.
    NotLive {
        component: String,
        policy: &'static str,
    },
    /// The routing policy rejects the parameters.
    Routing(RoutingError),
    /// No routing policy is in force yet.
    NoRouting,
    /// Data transfer refuses the policy.
    Settings(SettingsError),
}

impl fmt::Display for RibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RibError::Read(error) => error.fmt(f),
            RibError::Policy(error) => error.fmt(f),
            RibError::NotWritable(path) => {
                write!(f, "{path} cannot be written; /policies/COMPONENT can")
            }
        }
    }
}

impl Error for RibError {}

impl From<ReadError> for RibError {
    fn from(error: ReadError) -> RibError {
        RibError::Read(error)
    }
}

impl From<PolicyChangeError> for RibError {
    fn from(error: PolicyChangeError) -> RibError {
        RibError::Policy(error)
    }
}

impl fmt::Display for PolicyChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyChangeError::NotMember => {
                f.write_str("this IPCP is no member; its policies come with the DIF")
            }
            PolicyChangeError::Policy(error) => error.fmt(f),
            PolicyChangeError::NotLive { component, policy } => write!(
                f,
                "{component}: policy {policy} cannot be changed while the DIF runs"
            ),
            PolicyChangeError::Routing(error) => error.fmt(f),
            PolicyChangeError::NoRouting => f.write_str("routing has not begun"),
            PolicyChangeError::Settings(error) => error.fmt(f),
        }
    }
}

impl Error for PolicyChangeError {}

impl From<PolicyError> for PolicyChangeError {
    fn from(error: PolicyError) -> PolicyChangeError {
        PolicyChangeError::Policy(error)
    }
}

impl From<RoutingError> for PolicyChangeError {
    fn from(error: RoutingError) -> PolicyChangeError {
        PolicyChangeError::Routing(error)
    }
}

impl From<SettingsError> for PolicyChangeError {
    fn from(error: SettingsError) -> PolicyChangeError {
        PolicyChangeError::Settings(error)
    }
}
