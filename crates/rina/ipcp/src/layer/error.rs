//! Errors that layer management returns to its owner, common to all dialects.

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use carina_wire::NameError;
use carina_wire::dif::Dialect;

use crate::cause::Cause;
use crate::data_transfer::ConnectionError;
use crate::policy::PolicyError;

/// Why an IPCP cannot be made from its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name of the IPCP or of the DIF is not well formed.
    Name(NameError),
    /// The catalogue rejects a policy of the configuration.
    Policy(PolicyError),
    /// The program does not support the DIF's dialect.
    Dialect(Dialect),
    /// The dialect rejects a policy or a parameter that the configuration sets.
    Refused(Cause),
}

/// Why no request for a flow is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocateError {
    /// This IPCP is not a member, or is leaving.
    NotMember {
        /// Name of the DIF of which this IPCP is not a member.
        dif: String,
    },
    /// The name of an application is not well formed.
    Name(NameError),
    /// No QoS cube of the DIF meets the flow specification; the dialect gives the reason.
    Specification(Cause),
    /// The IPCP has the largest allowed number of flows.
    TooManyFlows,
    /// Data transfer cannot open a connection for the flow.
    Connection(ConnectionError),
    /// The directory has no member where the application is registered.
    UnknownName {
        /// Name of the DIF whose directory was asked.
        dif: String,
        /// Name of the application that the directory does not have.
        name: String,
    },
    /// The application is registered at members that cannot be reached.
    Unreachable {
        /// Name of the application that was to be called.
        name: String,
        /// Names of the members where the application is registered.
        holders: Vec<String>,
    },
    /// The application is registered at a member of which only the address is known, and no route
    /// leads to that address.
    NoRoute {
        /// Name of the application that was to be called.
        name: String,
        /// Address of the member at which the application is registered.
        address: u64,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Name(error) => error.fmt(f),
            CreateError::Policy(error) => error.fmt(f),
            CreateError::Dialect(dialect) => {
                write!(
                    f,
                    "this program has no dialect {}: it was compiled without it",
                    dialect.name()
                )
            }
            CreateError::Refused(cause) => cause.fmt(f),
        }
    }
}

impl Error for CreateError {}

impl From<NameError> for CreateError {
    fn from(error: NameError) -> CreateError {
        CreateError::Name(error)
    }
}

impl From<PolicyError> for CreateError {
    fn from(error: PolicyError) -> CreateError {
        CreateError::Policy(error)
    }
}

impl fmt::Display for AllocateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocateError::NotMember { dif } => write!(f, "this IPCP is no member of DIF {dif:?}"),
            AllocateError::Name(error) => error.fmt(f),
            AllocateError::Specification(cause) => cause.fmt(f),
            AllocateError::TooManyFlows => f.write_str("this member has as many flows as it can"),
            AllocateError::Connection(error) => error.fmt(f),
            AllocateError::UnknownName { dif, name } => {
                write!(f, "no member of DIF {dif:?} has {name:?}")
            }
            AllocateError::Unreachable { name, holders } => write!(
                f,
                "{name:?} is at {}, which cannot be reached",
                holders.join(", ")
            ),
            AllocateError::NoRoute { name, address } => write!(
                f,
                "the member with {name:?} cannot be reached: there is no route to address \
                 {address}"
            ),
        }
    }
}

impl Error for AllocateError {}

impl From<NameError> for AllocateError {
    fn from(error: NameError) -> AllocateError {
        AllocateError::Name(error)
    }
}

impl From<ConnectionError> for AllocateError {
    fn from(error: ConnectionError) -> AllocateError {
        AllocateError::Connection(error)
    }
}
