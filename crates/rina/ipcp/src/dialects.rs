//! The dialects that a program's IPC processes can speak: a list that the program gives, for this
//! crate has the layer management of none.

use alloc::boxed::Box;

use carina_wire::dif::Dialect;

use crate::config::Config;
use crate::layer::{CreateError, DialectProfile, LayerManagement, ReadNames};
use crate::policy::Catalogue;
use crate::security::Toolbox;

/// A list of dialects, with the layer management of each. `carina-dialects` has the list of all.
#[derive(Clone, Copy)]
pub struct Dialects(&'static [DialectProfile]);

impl Dialects {
    /// A list of profiles, at most one for each dialect.
    #[must_use]
    pub const fn new(profiles: &'static [DialectProfile]) -> Dialects {
        Dialects(profiles)
    }

    fn profile(self, dialect: Dialect) -> Option<&'static DialectProfile> {
        self.0.iter().find(|profile| profile.dialect == dialect)
    }

    /// The policies that a DIF of this dialect can be configured with, by component; the first of a
    /// component is its default.
    #[must_use]
    pub fn policies_of(self, dialect: Dialect, toolbox: &dyn Toolbox) -> Catalogue {
        self.policies_with(dialect, toolbox, Catalogue::empty())
    }

    /// The policies of [`Dialects::policies_of`] and the policies of another catalogue.
    pub(crate) fn policies_with(
        self,
        dialect: Dialect,
        toolbox: &dyn Toolbox,
        more: Catalogue,
    ) -> Catalogue {
        let mut all = Catalogue::standard();
        let Some(profile) = self.profile(dialect) else {
            return all;
        };
        (profile.describe)(&mut all);
        all.extend(more);
        all.describe_toolbox(toolbox);
        all.retain(profile.adopt);
        all
    }

    /// What reads the M_CONNECT of a dialect. See [`ConnectReader`](crate::ConnectReader).
    pub(crate) fn connect_names(self, dialect: Dialect) -> Option<ReadNames> {
        self.profile(dialect)?.connect_names
    }

    /// The layer management of the configuration's dialect. See [`Create`](crate::layer::Create).
    ///
    /// # Errors
    /// What is wrong with the configuration; a dialect that is not in the list.
    pub(crate) fn management(
        self,
        config: Config,
        toolbox: Box<dyn Toolbox>,
        catalogue: Catalogue,
        seed: u64,
    ) -> Result<Box<dyn LayerManagement>, CreateError> {
        match self.profile(config.dialect) {
            Some(profile) => (profile.create)(config, toolbox, catalogue, seed),
            None => Err(CreateError::Dialect(config.dialect)),
        }
    }
}
