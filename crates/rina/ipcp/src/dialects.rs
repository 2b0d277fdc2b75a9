//! The dialects that a program's IPCPs support. The program provides the list, because this crate
//! has no layer management itself.

use alloc::boxed::Box;

use carina_wire::dif::Dialect;

use crate::config::Config;
use crate::layer::{CreateError, DialectProfile, LayerManagement, ReadNames};
use crate::policy::Catalogue;
use crate::security::Toolbox;

/// A list of dialects with the layer management of each. The crate `carina-dialects` has the list
/// of all dialects.
#[derive(Clone, Copy)]
pub struct Dialects(&'static [DialectProfile]);

impl Dialects {
    /// Makes the list from `profiles`, which has at most one profile for each dialect.
    #[must_use]
    pub const fn new(profiles: &'static [DialectProfile]) -> Dialects {
        Dialects(profiles)
    }

    fn profile(self, dialect: Dialect) -> Option<&'static DialectProfile> {
        self.0.iter().find(|profile| profile.dialect == dialect)
    }

    /// Returns the policies that a DIF of this dialect can use, by component, with those of
    /// `toolbox`. The first policy of a component is its default.
    #[must_use]
    pub fn policies_of(self, dialect: Dialect, toolbox: &dyn Toolbox) -> Catalogue {
        self.policies_with(dialect, toolbox, Catalogue::empty())
    }

    /// Like [`Dialects::policies_of`], with the policies of another catalogue added.
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

    /// The function that reads an M_CONNECT of a dialect, if it has one. See
    /// [`ConnectReader`](crate::ConnectReader).
    pub(crate) fn connect_names(self, dialect: Dialect) -> Option<ReadNames> {
        self.profile(dialect)?.connect_names
    }

    /// Makes the layer management for the dialect of `config`. See
    /// [`Create`](crate::layer::Create).
    ///
    /// # Errors
    /// The configuration is invalid, or its dialect is not in the list.
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
