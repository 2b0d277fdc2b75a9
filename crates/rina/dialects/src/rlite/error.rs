//! Why a member of an rlite DIF refuses a request or ends an attempt.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_ipcp::data_transfer::SettingsError;
use carina_ipcp::rib_view::ReadError;

use super::policies::PolicyError;

/// A field of the DIF's PDUs has another width than this IPCP is configured for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WidthMismatch {
    pub(super) field: &'static str,
    /// Width in the DIF, in bytes.
    pub(super) theirs: u32,
    /// Configured width, in bytes.
    pub(super) ours: u32,
}

/// The address that the enroller assigned is 0, or does not fit the DIF's address width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddressOutside(pub(super) u64);

/// Why an M_CONNECT is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// This IPCP is not a member of its DIF.
    NotMember { own: String, dif: String },
    /// The initiator's name is invalid, or is the name of this IPCP.
    Name(String),
    /// The N-1 flow comes from another IPCP than M_CONNECT names.
    OtherSource { source: String, name: String },
}

/// Why a flow is refused without asking the called application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum FlowRefusal {
    /// No QoS cube serves the flow.
    Cube(super::flow_values::CubeError),
    /// The application is not registered at this member.
    NotHere { name: String, member: String },
}

/// Why an object of the RIB cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum WriteError {
    /// The object at this path is not a policy.
    NotWritable(String),
    /// This IPCP is not a member of the DIF.
    NotMember(String),
    /// Layer management rejects the policy or a parameter.
    Policy(PolicyError),
    /// Data transfer refuses the policy.
    Settings(SettingsError),
    /// The policy was changed, but the changed object cannot be read.
    Read(ReadError),
}

impl fmt::Display for WidthMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "field {} has {} bytes in the DIF, and this IPCP is configured for {}",
            self.field, self.theirs, self.ours
        )
    }
}

impl Error for WidthMismatch {}

impl fmt::Display for AddressOutside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the enroller assigns address {}, which is outside the addresses of this DIF",
            self.0
        )
    }
}

impl Error for AddressOutside {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotMember { own, dif } => write!(f, "{own} is no member of DIF {dif:?}"),
            Refusal::Name(name) => write!(f, "{name:?} cannot be the name of another IPCP"),
            Refusal::OtherSource { source, name } => write!(
                f,
                "the N-1 flow is from {source:?}, but the IPCP calls itself {name:?}: both \
                 names must be the same"
            ),
        }
    }
}

impl Error for Refusal {}

impl fmt::Display for FlowRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowRefusal::Cube(error) => error.fmt(f),
            FlowRefusal::NotHere { name, member } => {
                write!(f, "{name:?} is not registered at {member}")
            }
        }
    }
}

impl Error for FlowRefusal {}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WriteError::NotWritable(path) => {
                write!(f, "{path:?} cannot be written; /policies/COMPONENT can")
            }
            WriteError::NotMember(dif) => write!(f, "this IPCP is no member of DIF {dif:?}"),
            WriteError::Policy(error) => error.fmt(f),
            WriteError::Settings(error) => error.fmt(f),
            WriteError::Read(error) => error.fmt(f),
        }
    }
}

impl Error for WriteError {}

impl From<PolicyError> for WriteError {
    fn from(error: PolicyError) -> WriteError {
        WriteError::Policy(error)
    }
}

impl From<SettingsError> for WriteError {
    fn from(error: SettingsError) -> WriteError {
        WriteError::Settings(error)
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> WriteError {
        WriteError::Read(error)
    }
}
