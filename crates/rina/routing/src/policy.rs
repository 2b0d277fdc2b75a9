//! The routing policies by name.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::api::Routing;
use crate::error::RoutingError;
use crate::link_state::LinkState;
use crate::static_routes::StaticRoutes;

/// A policy for the catalogue: its name, and its parameters with defaults and meaning.
pub type Entry = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

/// The policies of component `routing`. The parameters of all of them can be changed on a living
/// DIF.
pub const POLICIES: &[Entry] = &[
    ("link-state", crate::parameters::PARAMETERS),
    ("static", crate::static_routes::PARAMETERS),
];

/// Makes the policy `name`; an empty name means the first of [`POLICIES`].
///
/// # Errors
/// An unknown policy or parameter, or an invalid value.
pub fn make(
    name: &str,
    params: &BTreeMap<String, String>,
) -> Result<Box<dyn Routing>, RoutingError> {
    match name {
        "" | "link-state" => Ok(Box::new(LinkState::new(params)?)),
        "static" => Ok(Box::new(StaticRoutes::new(params)?)),
        _ => Err(RoutingError::UnknownPolicy {
            name: name.into(),
            known: POLICIES.iter().map(|(name, _)| *name).collect(),
        }),
    }
}
