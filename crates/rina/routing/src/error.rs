//! Errors in routing policies and their parameters.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::message::Address;

/// Why a routing policy could not be created, or its parameters could not be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoutingError {
    /// No policy has this name.
    UnknownPolicy {
        /// The unknown name, as it was given.
        name: String,
        /// The names of the existing policies.
        known: Vec<&'static str>,
    },
    /// The policy has no parameter of this name.
    UnknownParameter(String),
    /// The value of a parameter is not a number or a word of the expected form.
    Value {
        /// Name of the parameter with the invalid value.
        parameter: &'static str,
        /// The invalid value, as the configuration has it.
        value: String,
        /// What the parameter means.
        meaning: &'static str,
    },
    /// The value of a parameter is out of range.
    Range {
        /// Name of the parameter whose value is out of range.
        parameter: &'static str,
        /// The value that is out of range, as the configuration has it.
        value: u64,
        /// Smallest valid value.
        min: u64,
        /// Largest valid value.
        max: u64,
    },
    /// A member would refresh its own objects only after they have expired elsewhere.
    Refresh {
        /// The value of `refresh_s`.
        refresh_s: u64,
        /// The value of `max_age_s`.
        max_age_s: u64,
    },
    /// A text is not the address of a member.
    Address(String),
    /// A configured route is not of the form `DST via NEXT`.
    NoVia,
    /// A configured route names no next hop.
    NoNextHop,
    /// A configured route names this next hop twice.
    SameNextHop(Address),
    /// Two configured routes have this destination.
    SameDestination(Address),
    /// A configured route is invalid, for the reason that is given.
    Route {
        /// What is wrong with the route.
        error: Box<RoutingError>,
        /// The route as it was given.
        route: String,
    },
}

impl fmt::Display for RoutingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoutingError::UnknownPolicy { name, known } => write!(
                f,
                "no routing policy `{name}`; there are: {}",
                known.join(", ")
            ),
            RoutingError::UnknownParameter(name) => {
                write!(f, "routing: there is no parameter `{name}`")
            }
            RoutingError::Value {
                parameter,
                value,
                meaning,
            } => write!(
                f,
                "routing: parameter {parameter} is {value:?}; it must be: {meaning}"
            ),
            RoutingError::Range {
                parameter,
                value,
                min,
                max,
            } => write!(
                f,
                "routing: {parameter} = {value} is not from {min} to {max}"
            ),
            RoutingError::Refresh {
                refresh_s,
                max_age_s,
            } => write!(
                f,
                "routing: refresh_s = {refresh_s} is more than half of max_age_s = {max_age_s}"
            ),
            RoutingError::Address(text) => write!(
                f,
                "routing: `{}` is no address of a member",
                text.escape_default()
            ),
            RoutingError::NoVia => f.write_str("routing: `DST via NEXT` is expected"),
            RoutingError::NoNextHop => f.write_str("routing: no next hop"),
            RoutingError::SameNextHop(next) => write!(f, "routing: next hop {next} twice"),
            RoutingError::SameDestination(dst) => write!(f, "routing: two routes to {dst}"),
            RoutingError::Route { error, route } => write!(f, "{error}, in route `{route}`"),
        }
    }
}

impl core::error::Error for RoutingError {}
