//! Configuration that other dialects accept but this one does not.

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use carina_ipcp::Cause;
use carina_ipcp::layer::CreateError;

/// Why a configured policy cannot be used in this dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(super) enum Unsupported {
    /// The dialect has no such policy for the component.
    Policy {
        component: &'static str,
        policy: String,
        known: Vec<&'static str>,
    },
    /// The dialect fixes the value of the parameter.
    Parameter {
        component: &'static str,
        parameter: String,
    },
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unsupported::Policy {
                component,
                policy,
                known,
            } => write!(
                f,
                "{component}: dialect irati has no policy {policy:?}; it has: {}",
                known.join(", ")
            ),
            Unsupported::Parameter {
                component,
                parameter,
            } => write!(
                f,
                "{component}: parameter {parameter:?} cannot be set: dialect irati fixes it"
            ),
        }
    }
}

impl Error for Unsupported {}

impl From<Unsupported> for CreateError {
    fn from(error: Unsupported) -> CreateError {
        CreateError::Refused(Cause::new(error))
    }
}
