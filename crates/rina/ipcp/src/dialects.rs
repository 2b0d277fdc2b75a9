//! The dialects that an IPC process can speak: the one place that knows the layer management of
//! each.
//!
//! A dialect is added with a module that has a `DialectProfile` and a row of `DIALECTS`.

use alloc::boxed::Box;

use carina_wire::dif::Dialect;

use crate::config::Config;
use crate::layer::{CreateError, DialectProfile, LayerManagement, ReadNames};
use crate::policy::Catalogue;
use crate::security::Toolbox;
use crate::{irati, layer_management, rlite};

const DIALECTS: [DialectProfile; 3] = [layer_management::DIALECT, rlite::DIALECT, irati::DIALECT];

fn profile(dialect: Dialect) -> Option<&'static DialectProfile> {
    DIALECTS.iter().find(|profile| profile.dialect == dialect)
}

/// The policies that a DIF of this dialect can be configured with, by component; the first of a
/// component is its default.
#[must_use]
pub fn policies_of(dialect: Dialect, toolbox: &dyn Toolbox) -> Catalogue {
    policies_with(dialect, toolbox, Catalogue::empty())
}

/// The policies of [`policies_of`] and those of another catalogue.
pub(crate) fn policies_with(dialect: Dialect, toolbox: &dyn Toolbox, more: Catalogue) -> Catalogue {
    let mut all = Catalogue::standard();
    let Some(profile) = profile(dialect) else {
        return all;
    };
    (profile.describe)(&mut all);
    all.extend(more);
    all.describe_toolbox(toolbox);
    all.retain(profile.adopt);
    all
}

/// What reads the M_CONNECT of a dialect. See [`ConnectReader`](crate::ConnectReader).
pub(crate) fn connect_names(dialect: Dialect) -> Option<ReadNames> {
    profile(dialect)?.connect_names
}

/// The layer management of the configuration's dialect. See [`Create`](crate::layer::Create).
///
/// # Errors
/// What is wrong with the configuration.
pub(crate) fn management(
    config: Config,
    toolbox: Box<dyn Toolbox>,
    catalogue: Catalogue,
    seed: u64,
) -> Result<Box<dyn LayerManagement>, CreateError> {
    match profile(config.dialect) {
        Some(profile) => (profile.create)(config, toolbox, catalogue, seed),
        None => Err(CreateError::Dialect(config.dialect)),
    }
}
