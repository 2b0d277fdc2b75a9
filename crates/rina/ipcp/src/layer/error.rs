//! What layer management refuses its owner, in every dialect.

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use carina_wire::NameError;
use carina_wire::dif::Dialect;

use crate::cause::Cause;
use crate::data_transfer::ConnectionError;
use crate::policy::PolicyError;

/// Why an IPC process cannot be made of its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CreateError {
    /// The name of the IPCP or of the DIF is not well formed.
    Name(NameError),
    /// A policy cannot be made.
    Policy(PolicyError),
    /// The DIF's dialect has no layer management here.
    Dialect(Dialect),
    /// The dialect has no such policy or parameter.
    Refused(Cause),
}

/// Why a flow is not even requested.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocateError {
    /// This IPCP is no member, or is leaving.
    NotMember {
        /// The DIF.
        dif: String,
    },
    /// The name of an application is not well formed.
    Name(NameError),
    /// No QoS cube of the DIF meets the specification; the dialect says why.
    Specification(Cause),
    /// There are as many flows as there may be.
    TooManyFlows,
    /// Data transfer has no connection for it.
    Connection(ConnectionError),
    /// No member has an application of this name.
    UnknownName {
        /// The DIF.
        dif: String,
        /// The name.
        name: String,
    },
    /// No member that has the application can be reached.
    Unreachable {
        /// Its name.
        name: String,
        /// The members that have it.
        holders: Vec<String>,
    },
    /// The member that has the application is known by its address only, and no route leads there.
    NoRoute {
        /// Its name.
        name: String,
        /// The address.
        address: u64,
    },
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CreateError::Name(error) => error.fmt(f),
            CreateError::Policy(error) => error.fmt(f),
            CreateError::Dialect(dialect) => {
                write!(f, "no layer management for dialect {}", dialect.name())
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
