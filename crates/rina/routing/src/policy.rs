//! The routing policies, by name.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;

use crate::api::Routing;
use crate::error::RoutingError;
use crate::link_state::LinkState;
use crate::static_routes::StaticRoutes;

/// Description of a policy: its name, and its parameters with default and meaning.
pub type Entry = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

/// The policies of the component `routing`. All their parameters can be changed while the DIF runs.
pub const POLICIES: &[Entry] = &[
    ("link-state", crate::parameters::PARAMETERS),
    ("static", crate::static_routes::PARAMETERS),
];

/// Creates the policy `name`. An empty name means the first one of [`POLICIES`].
///
/// # Errors
/// The policy or a parameter is unknown, or a value is invalid.
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
