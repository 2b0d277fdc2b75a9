//! Why a member of an IRATI DIF refuses a request or ends an attempt.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::data_transfer::N1Error;

use super::objects::result;

/// Why an M_CONNECT is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// This IPCP, whose name is given, is not a member.
    NotMember(String),
    /// The initiator's name is invalid, or is the name of this IPCP.
    Name(String),
    /// The initiator was expelled.
    Expelled(String),
    /// The access control policy does not admit the initiator.
    Denied(String),
    /// The initiator offers another authentication policy than this IPCP requires.
    Authentication {
        wanted: &'static str,
        offered: String,
    },
    /// The N-1 flow does not carry the DIF's longest PDU.
    N1(N1Error),
    /// The initiator is already a neighbour.
    Neighbour(String),
}

/// Why no challenge can be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum ChallengeError {
    /// The toolbox cannot make the authenticator.
    Toolbox(Cause),
    /// The authenticator fails at once; the text is its reason.
    Failed(String),
    /// The authenticator does not produce a challenge.
    Missing,
}

/// Why this IPCP cannot use the address that the member assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum AddressRefused {
    /// The address is 0, or does not fit the DIF's address width.
    Outside(u64),
    /// This IPCP is a member with another address.
    Other { given: u64, own: u64 },
}

/// Why a flow is refused without asking the called application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum FlowRefusal {
    /// The application is not registered at this member.
    NotHere { name: String, member: String },
    /// The access control policy denies the call.
    Denied { source: String, destination: String },
    /// This member has no QoS cube with this id.
    NoCube { member: String, qos: u32 },
}

impl Refusal {
    /// The CDAP result code of the answer.
    pub(super) fn code(&self) -> i32 {
        match self {
            Refusal::NotMember(_) | Refusal::Neighbour(_) => result::REJECTED,
            _ => result::ACCESS,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotMember(own) => write!(f, "{own} is no member of a DIF"),
            Refusal::Name(name) => write!(f, "{name:?} cannot be the name of a neighbour"),
            Refusal::Expelled(name) => write!(f, "{name:?} was expelled from the DIF"),
            Refusal::Denied(name) => write!(f, "{name:?} may not join; see policy access-control"),
            Refusal::Authentication { wanted, offered } => {
                write!(
                    f,
                    "this member authenticates with {wanted}, not {offered:?}"
                )
            }
            Refusal::N1(error) => error.fmt(f),
            Refusal::Neighbour(name) => write!(f, "{name:?} is a neighbour already"),
        }
    }
}

impl Error for Refusal {}

impl From<N1Error> for Refusal {
    fn from(error: N1Error) -> Refusal {
        Refusal::N1(error)
    }
}

impl fmt::Display for ChallengeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChallengeError::Toolbox(cause) => cause.fmt(f),
            ChallengeError::Failed(reason) => f.write_str(reason),
            ChallengeError::Missing => f.write_str("authentication: there is no challenge"),
        }
    }
}

impl Error for ChallengeError {}

impl From<Cause> for ChallengeError {
    fn from(cause: Cause) -> ChallengeError {
        ChallengeError::Toolbox(cause)
    }
}

impl fmt::Display for AddressRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressRefused::Outside(address) => write!(
                f,
                "the member assigned address {address}, which does not fit the DIF's addresses"
            ),
            AddressRefused::Other { given, own } => write!(
                f,
                "the member assigned address {given} to this IPCP, which is configured with \
                 {own}"
            ),
        }
    }
}

impl Error for AddressRefused {}

impl fmt::Display for FlowRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlowRefusal::NotHere { name, member } => {
                write!(f, "{name:?} is not registered at {member}")
            }
            FlowRefusal::Denied {
                source,
                destination,
            } => write!(
                f,
                "{source:?} may not call {destination:?}; see policy access-control"
            ),
            FlowRefusal::NoCube { member, qos } => write!(f, "{member} has no QoS cube {qos}"),
        }
    }
}

impl Error for FlowRefusal {}
