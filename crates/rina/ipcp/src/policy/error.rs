//! Why a policy cannot be made.

use alloc::string::String;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt;

use carina_routing::RoutingError;

use crate::cause::Cause;

/// Why a policy cannot be made from its name and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// No component has this name.
    UnknownComponent {
        /// The unknown name, as it was given.
        component: String,
        /// The names of all components.
        known: Vec<&'static str>,
    },
    /// The component has no policy of this name.
    UnknownPolicy {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// Name of the policy that was given.
        policy: String,
        /// The names of the component's policies.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
    UnknownParameter {
        /// Name of the component whose policy was requested.
        component: &'static str,
        /// Name of the policy that does not have the parameter.
        policy: &'static str,
        /// Name of the parameter that was given.
        parameter: String,
        /// The names of the policy's parameters.
        known: Vec<&'static str>,
    },
    /// The policy's factory makes another type than the component uses.
    OtherProduct {
        /// Name of the component that asked for the policy.
        component: &'static str,
        /// Name of the policy that makes the wrong type.
        policy: &'static str,
    },
    /// The value of a parameter is invalid.
    Value {
        /// Name of the component whose policy has the parameter.
        component: &'static str,
        /// Name of the policy whose parameter has an invalid value.
        policy: &'static str,
        /// Name of the parameter with the invalid value.
        parameter: String,
        /// The invalid value, as it was given.
        value: String,
        /// The values that are valid.
        wanted: ValidValues,
    },
    /// A policy of EFCP or of delimiting rejects a parameter, with this error.
    Efcp(carina_efcp::PolicyError),
    /// A routing policy rejects a parameter, with this error.
    Routing(RoutingError),
    /// The policy rejects a parameter, with an error of its own.
    Refused(Cause),
}

/// The values that are valid for a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ValidValues {
    /// A whole number.
    Uint {
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// `true` or `false`.
    Flag,
    /// One of these words.
    OneOf(Vec<String>),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyError::UnknownComponent { component, known } => write!(
                f,
                "no component is called {component:?}; there are: {}",
                List(known)
            ),
            PolicyError::UnknownPolicy {
                component,
                policy,
                known,
            } => write!(
                f,
                "{component}: no policy is called {policy:?}; there are: {}",
                List(known)
            ),
            PolicyError::UnknownParameter {
                component,
                policy,
                parameter,
                known,
            } => write!(
                f,
                "{component}: policy {policy} has no parameter {parameter:?}; it has: {}",
                List(known)
            ),
            PolicyError::OtherProduct { component, policy } => write!(
                f,
                "{component}: policy {policy} was registered with another type than this \
                 component uses"
            ),
            PolicyError::Value {
                component,
                policy,
                parameter,
                value,
                wanted,
            } => write!(
                f,
                "{component}: policy {policy}: parameter {parameter} is {value:?}; it must be \
                 {wanted}"
            ),
            PolicyError::Efcp(error) => error.fmt(f),
            PolicyError::Routing(error) => error.fmt(f),
            PolicyError::Refused(cause) => cause.fmt(f),
        }
    }
}

impl Error for PolicyError {}

impl fmt::Display for ValidValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValidValues::Uint { min, max } => write!(f, "a whole number from {min} to {max}"),
            ValidValues::Flag => f.write_str("true or false"),
            ValidValues::OneOf(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl From<carina_efcp::PolicyError> for PolicyError {
    fn from(error: carina_efcp::PolicyError) -> PolicyError {
        PolicyError::Efcp(error)
    }
}

impl From<RoutingError> for PolicyError {
    fn from(error: RoutingError) -> PolicyError {
        PolicyError::Routing(error)
    }
}

/// Displays names separated by commas.
struct List<'a>(&'a [&'static str]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("none"),
            names => f.write_str(&names.join(", ")),
        }
    }
}
