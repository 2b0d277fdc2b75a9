//! What a member is made from, by command or by configuration.

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

pub use self::auth::load as load_auth;
pub use self::check::{check_auth, check_member};
use self::dialect::PartialDifConfig;
pub use self::dialect::{member_of, name_below, wire_dialect};
pub use self::error::MemberSpecError;

/// `[[dif]]` in the configuration, and [`DifCreate`] with its configuration understood.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// Name of the DIF.
    pub name: DifName,
    /// First member or not.
    pub role: DifRole,
    /// The N-1 DIFs.
    pub over: Vec<DifName>,
    /// Name of the IPCP.
    #[serde(default)]
    pub ipcp: Option<LocalName>,
    /// The member to ask.
    #[serde(default)]
    pub via: Option<AppName>,
    /// Authentication.
    #[serde(default)]
    pub auth: Option<String>,
    /// What the members speak.
    #[serde(default)]
    pub dialect: Dialect,
    /// What all members agree on, or in [`Dialect::Irati`] this member's own.
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
    /// Checks what the fields mean together.
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

    /// The name of the IPCP in a system of this name, where none is given and it is free.
    pub fn default_ipcp_name(&self, system: &str) -> String {
        local_stem(&format!("{}.{system}", self.name))
    }

    /// The first free name made of DIF and system, where none is given.
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

    /// The member to ask for admission.
    pub fn first_contact(&self) -> AppName {
        match &self.via {
            Some(member) => dialect::name_below(self.dialect, member),
            None => AppName::new(self.name.as_str()).expect("both names have the same form"),
        }
    }

    /// The configuration that the member starts with. Those that join learn theirs, except that
    /// they take no other authentication than their own.
    ///
    /// # Errors
    /// What the dialect cannot do.
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
        // Parameters that the configuration gives for the same policy stay.
        slot.and_modify(|given| given.name.clone_from(&policy.name))
            .or_insert(policy);
        Ok(Some(config))
    }
}

impl MemberSpec {
    /// Whether it is the same but for the N-1 DIFs, of which they have some in common.
    pub fn rebases(&self, other: &MemberSpec) -> bool {
        let is_over = other.over.iter().any(|dif| self.over.contains(dif));
        let alike = MemberSpec {
            over: self.over.clone(),
            ..other.clone()
        };
        is_over && *self == alike
    }
}

/// Every name of an IPCP is one of an application.
pub fn app_name(name: &LocalName) -> AppName {
    AppName::new(name.as_str()).expect("LocalName allows less than AppName")
}

/// Makes a text fit for a [`LocalName`], with room for a number behind it.
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

/// A local name has 64 bytes at most.
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
