//! Why the called member refuses a flow.

use alloc::string::String;
use core::error::Error;
use core::fmt;

use super::super::schema::result;

/// Why the called member refuses a flow without asking the called application.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Refusal {
    /// The application is not registered at this member.
    NotHere { name: String, member: String },
    /// The access control policy denies the call.
    Denied { source: String, destination: String },
    /// The DIF has no QoS cube with this id.
    NoCube(u32),
    /// This member has the largest allowed number of flows.
    TooManyFlows { member: String },
}

impl Refusal {
    /// The CDAP result code of the answer.
    pub(super) fn code(&self) -> i32 {
        match self {
            Refusal::NotHere { .. } => result::NOT_HERE,
            Refusal::Denied { .. } => result::ACCESS,
            Refusal::NoCube(_) => result::VALUE,
            Refusal::TooManyFlows { .. } => result::ERROR,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::NotHere { name, member } => {
                write!(f, "{name:?} is not registered at {member}")
            }
            Refusal::Denied {
                source,
                destination,
            } => write!(
                f,
                "{source:?} may not call {destination:?}; see policy access-control"
            ),
            Refusal::NoCube(id) => write!(f, "the DIF has no QoS cube {id}"),
            Refusal::TooManyFlows { member } => {
                write!(f, "{member} has as many flows as it can")
            }
        }
    }
}

impl Error for Refusal {}
