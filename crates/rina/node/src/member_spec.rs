//! The specification of a member of a normal DIF, from a command or a configuration.

use std::collections::BTreeSet;

use carina_api::control::{Dialect, DifCreate, DifRole};
use carina_api::{AppName, DifName, LocalName};
use carina_ipcp::policy::component::AUTHENTICATION;
use carina_ipcp::{DifConfig, PolicySpec};
use serde::Deserialize;

mod auth;
mod check;
mod dialect;
mod error;

pub(crate) use self::auth::load as load_auth;
pub use self::check::{check_auth, check_member};
use self::dialect::PartialDifConfig;
pub(crate) use self::dialect::{member_of, name_below, wire_dialect};
pub use self::error::MemberSpecError;

/// The specification of a member of a normal DIF: the table `[[dif]]` of a configuration, or a
/// [`DifCreate`] whose configuration has been parsed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// Name of the DIF that the member creates or joins.
    pub name: DifName,
    /// Whether the member creates the DIF, or joins it.
    pub role: DifRole,
    /// Names of the N-1 DIFs over which the member reaches its neighbours.
    pub over: Vec<DifName>,
    /// Name of the member's IPCP; default: made from the names of DIF and system.
    #[serde(default)]
    pub ipcp: Option<LocalName>,
    /// Name of the member to ask for admission; default: any member.
    #[serde(default)]
    pub via: Option<AppName>,
    /// Authentication: `none`, `password:FILE` or `ed25519:KEYFILE,ALLOWEDFILE`.
    #[serde(default)]
    pub auth: Option<String>,
    /// Dialect of the protocols that all members of the DIF use.
    #[serde(default)]
    pub dialect: Dialect,
    /// The settings of the DIF's configuration that are given; the dialect's defaults complete
    /// them. A joining member may have settings in [`Dialect::Rlite`] and [`Dialect::Irati`] only.
    #[serde(default)]
    pub config: Option<PartialDifConfig>,
}

impl TryFrom<DifCreate> for MemberSpec {
    type Error = MemberSpecError;

    fn try_from(create: DifCreate) -> Result<MemberSpec, MemberSpecError> {
        let config = create.config.map(serde_json::from_value).transpose();
        let config = config.map_err(|error: serde_json::Error| {
            MemberSpecError::Config(error.to_string()).of(&create.name)
        })?;
        Ok(MemberSpec {
            name: create.name,
            role: create.role,
            over: create.over,
            ipcp: create.ipcp,
            via: create.via,
            auth: create.auth,
            dialect: create.dialect,
            config,
        })
    }
}

impl MemberSpec {
    /// Checks that the fields of the specification fit together.
    ///
    /// # Errors
    /// [`MemberSpecError::Of`] with the name of the DIF.
    pub fn check(&self) -> Result<(), MemberSpecError> {
        self.check_fields().map_err(|error| error.of(&self.name))
    }

    fn check_fields(&self) -> Result<(), MemberSpecError> {
        if self.over.is_empty() {
            return Err(MemberSpecError::NoN1Dif);
        }
        let distinct: BTreeSet<&DifName> = self.over.iter().collect();
        if distinct.len() != self.over.len() {
            return Err(MemberSpecError::N1DifTwice);
        }
        if self.over.contains(&self.name) {
            return Err(MemberSpecError::OwnN1Dif);
        }
        match self.role {
            DifRole::Create if self.via.is_some() => Err(MemberSpecError::ViaOfFirst),
            _ if !dialect::supports_auth(self.dialect, self.auth.as_deref()) => {
                Err(MemberSpecError::AuthOfDialect {
                    auth: self.auth.clone().unwrap_or_default(),
                    dialect: self.dialect.name(),
                })
            }
            _ => dialect::configure(self.dialect, self.role, self.config.as_ref()).map(drop),
        }
    }

    /// Returns the default name of the member's IPCP in a system called `system`.
    pub fn default_ipcp_name(&self, system: &str) -> String {
        local_stem(&format!("{}.{system}", self.name))
    }

    /// Returns the first name for the member's IPCP that `is_free` accepts, made from the names of
    /// DIF and system; `None` if it accepts none.
    pub fn free_ipcp_name(
        &self,
        system: &str,
        is_free: impl Fn(&str) -> bool,
    ) -> Option<LocalName> {
        let stem = self.default_ipcp_name(system);
        let numbered = (2..).map(|number| format!("{stem}.{number}"));
        std::iter::once(stem.clone())
            .chain(numbered)
            .map_while(|name| LocalName::new(name).ok())
            .find(|name| is_free(name.as_str()))
    }

    /// Returns the name to call for admission: the member `via`, or the DIF for any member.
    pub fn first_contact(&self) -> AppName {
        match &self.via {
            Some(member) => dialect::name_below(self.dialect, member),
            None => AppName::new(self.name.as_str()).expect("both names have the same form"),
        }
    }

    /// The configuration with which the member's IPCP starts; `None` if the IPCP gets its
    /// configuration at enrollment. The settings are `config`; fields that they lack have the
    /// dialect's defaults.
    ///
    /// | dialect | first member | member that joins                     |
    /// |---------|--------------|---------------------------------------|
    /// | native  | settings     | `None`; settings are an error         |
    /// | rlite   | settings     | settings; `None` if none are given    |
    /// | irati   | settings     | settings                              |
    ///
    /// `authentication` overrides the name of the authentication policy in the settings; parameters
    /// of the policy in the settings are kept. With `authentication`, a native member that joins
    /// starts with the default settings and this policy. At enrollment the DIF's configuration
    /// replaces the settings, and the member keeps the policy unless it is `none`. A dialect that
    /// has no such policy ignores `authentication`.
    ///
    /// # Errors
    /// The dialect does not support a setting, or a native member that joins has settings.
    pub fn dif_config(
        &self,
        authentication: Option<PolicySpec>,
    ) -> Result<Option<DifConfig>, MemberSpecError> {
        let config = dialect::configure(self.dialect, self.role, self.config.as_ref())?;
        let Some(policy) = authentication else {
            return Ok(config);
        };
        let Some(policy) = dialect::auth_policy(self.dialect, policy) else {
            return Ok(config);
        };
        let mut config = config.unwrap_or_default();
        let slot = config.policies.entry(AUTHENTICATION.to_owned());
        // Parameters that the configuration sets for the same policy are kept.
        slot.and_modify(|given| given.name.clone_from(&policy.name))
            .or_insert(policy);
        Ok(Some(config))
    }
}

impl MemberSpec {
    /// Whether `other` differs from this specification only in its N-1 DIFs, and at least one N-1
    /// DIF is common to both.
    pub fn rebases(&self, other: &MemberSpec) -> bool {
        let is_over = other.over.iter().any(|dif| self.over.contains(dif));
        let alike = MemberSpec {
            over: self.over.clone(),
            ..other.clone()
        };
        is_over && *self == alike
    }
}

/// The application name of an IPCP, which is its local name.
pub(crate) fn app_name(name: &LocalName) -> AppName {
    AppName::new(name.as_str()).expect("LocalName allows less than AppName")
}

/// Converts a text to a valid [`LocalName`] with room for a number at the end.
fn local_stem(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let mut name: String = text
        .chars()
        .map(|c| if plain(c) { c } else { '_' })
        .take(STEM_MAX)
        .collect();
    if name.starts_with(['.', '-']) {
        name.replace_range(..1, "_");
    }
    name
}

/// Length limit of the stem in bytes: a local name has at most 64.
const STEM_MAX: usize = 58;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_to_fit() {
        for text in ["net.host", "-ä|b", "x", &"long".repeat(40), ".a"] {
            let name = LocalName::new(format!("{}.4096", local_stem(text)));
            assert!(name.is_ok(), "{text}: {name:?}");
        }
    }
}
