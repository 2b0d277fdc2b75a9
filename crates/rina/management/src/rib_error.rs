//! What the RIB refuses management applications.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_ipcp::data_transfer::SettingsError;
use carina_ipcp::policy::PolicyError;
use carina_ipcp::rib_view::ReadError;
use carina_routing::RoutingError;

/// Why an operation on the RIB does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum RibError {
    /// No object is read.
    Read(ReadError),
    /// The policy stays as it is.
    Policy(PolicyChangeError),
    /// The object at this path is no policy of a component.
    NotWritable(String),
}

/// Why a policy stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum PolicyChangeError {
    /// This IPCP is no member, and has no policies.
    NotMember,
    /// The policy cannot be made.
    Policy(PolicyError),
    /// Neither the policy nor its parameters can be changed while the DIF runs.
    NotLive {
        component: String,
        policy: &'static str,
    },
    /// The routing policy does not take the parameters.
    Routing(RoutingError),
    /// There is no routing yet.
    NoRouting,
    /// Data transfer does not take it.
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
