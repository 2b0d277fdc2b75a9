//! Why two IPCPs do not become neighbours.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::data_transfer::{ConnectionError, SettingsError};
use carina_ipcp::policy::PolicyError;

use crate::access_control::IdentityMismatch;
use crate::schema::result;

/// Why this side ends an attempt to become neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum AttemptError {
    /// The toolbox cannot make the authenticator or the protection that the attempt needs.
    Toolbox(Cause),
    /// The N-1 flow does not carry the DIF's longest PDU.
    TooSmall(TooSmall),
    /// The responder uses another authentication policy than this IPCP is configured for.
    OtherMechanism { theirs: String, ours: String },
    /// The responder requires no authentication, but this IPCP is configured for one.
    NoAuthentication { ours: String },
    /// The peer has proved an identity that differs from the name that it claims.
    Identity(IdentityMismatch),
    /// The peer has not proved its identity; the text is the policy's reason.
    Unproved(String),
    /// The peer ended the authentication before it proved its identity.
    EndedEarly,
    /// The DIF's configuration does not decode.
    Malformed,
    /// A policy of the DIF cannot be made at this IPCP.
    Policy(PolicyError),
    /// Data transfer refuses the DIF's configuration.
    Settings(SettingsError),
    /// This IPCP has left the DIF during the attempt.
    NotMember,
    /// Data transfer cannot open the connection of the management channel.
    Connection(ConnectionError),
}

/// Why an M_CONNECT is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// The peer speaks another version of the management protocol.
    Version { theirs: u32, ours: u32 },
    /// The peer wants to connect to another DIF.
    Dif { ours: String, theirs: String },
    /// The peer has the same name as this IPCP.
    OwnName(String),
    /// This IPCP is leaving the DIF.
    Leaving,
    /// This IPCP is not yet a member of this DIF.
    NotMember(String),
    /// The peer is a member of another DIF with the same name.
    OtherDif(String),
    /// The peer was expelled, and may not join until `minutes` after the expulsion.
    Expelled { name: String, minutes: u64 },
    /// The access control policy does not admit the peer.
    Denied(String),
    /// The N-1 flow does not carry the DIF's longest PDU.
    TooSmall(TooSmall),
}

/// The N-1 flow carries less than the DIF's longest PDU needs; both lengths in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSmall {
    pub(super) has: usize,
    pub(super) needs: usize,
}

impl Refusal {
    /// The CDAP result code of the answer.
    pub(super) fn code(&self) -> i32 {
        match self {
            Refusal::Version { .. }
            | Refusal::Dif { .. }
            | Refusal::OwnName(_)
            | Refusal::TooSmall(_) => result::REJECTED,
            Refusal::Leaving | Refusal::NotMember(_) => result::LATER,
            Refusal::OtherDif(_) => result::OTHER_DIF,
            Refusal::Expelled { .. } | Refusal::Denied(_) => result::ACCESS,
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttemptError::Toolbox(cause) => cause.fmt(f),
            AttemptError::TooSmall(error) => error.fmt(f),
            AttemptError::OtherMechanism { theirs, ours } => write!(
                f,
                "the DIF authenticates with {theirs:?}; this IPCP is configured for {ours:?}"
            ),
            AttemptError::NoAuthentication { ours } => write!(
                f,
                "the DIF does not authenticate; this IPCP is configured for {ours:?}"
            ),
            AttemptError::Identity(error) => error.fmt(f),
            AttemptError::Unproved(reason) => write!(f, "authentication failed: {reason}"),
            AttemptError::EndedEarly => {
                f.write_str("authentication failed: the other side ended it too early")
            }
            AttemptError::Malformed => f.write_str("a message of the other side is malformed"),
            AttemptError::Policy(error) => error.fmt(f),
            AttemptError::Settings(error) => error.fmt(f),
            AttemptError::NotMember => f.write_str("this IPCP is no member any more"),
            AttemptError::Connection(error) => error.fmt(f),
        }
    }
}

impl Error for AttemptError {}

impl From<Cause> for AttemptError {
    fn from(cause: Cause) -> AttemptError {
        AttemptError::Toolbox(cause)
    }
}

impl From<TooSmall> for AttemptError {
    fn from(error: TooSmall) -> AttemptError {
        AttemptError::TooSmall(error)
    }
}

impl From<IdentityMismatch> for AttemptError {
    fn from(error: IdentityMismatch) -> AttemptError {
        AttemptError::Identity(error)
    }
}

impl From<PolicyError> for AttemptError {
    fn from(error: PolicyError) -> AttemptError {
        AttemptError::Policy(error)
    }
}

impl From<SettingsError> for AttemptError {
    fn from(error: SettingsError) -> AttemptError {
        AttemptError::Settings(error)
    }
}

impl From<ConnectionError> for AttemptError {
    fn from(error: ConnectionError) -> AttemptError {
        AttemptError::Connection(error)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Version { theirs, ours } => write!(
                f,
                "the other side speaks version {theirs} of the management protocol, this member \
                 version {ours}"
            ),
            Refusal::Dif { ours, theirs } => write!(
                f,
                "this member is in DIF {ours:?}, not in \
                {theirs:?}"
            ),
            Refusal::OwnName(name) => {
                write!(f, "{name:?} is the name of this IPCP; choose another")
            }
            Refusal::Leaving => f.write_str("this IPCP is leaving the DIF"),
            Refusal::NotMember(dif) => write!(f, "this IPCP is no member of DIF {dif:?} yet"),
            Refusal::OtherDif(dif) => write!(
                f,
                "this is another DIF with the same name {dif:?}, bootstrapped separately; let \
                 the members of one leave it and join the other"
            ),
            Refusal::Expelled { name, minutes } => write!(
                f,
                "{name:?} was expelled; the name is admitted again {minutes} minutes after that"
            ),
            Refusal::Denied(name) => write!(f, "{name:?} may not join; see policy access-control"),
            Refusal::TooSmall(error) => error.fmt(f),
        }
    }
}

impl Error for Refusal {}

impl fmt::Display for TooSmall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TooSmall { has, needs } = self;
        write!(
            f,
            "the N-1 flow carries {has} bytes and the DIF's longest PDU needs {needs}; \
             set the DIF's max_pdu to fit the smallest N-1 flow, or use another N-1 DIF"
        )
    }
}

impl Error for TooSmall {}
