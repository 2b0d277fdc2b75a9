//! Checks whether a member could be made, before anything is done for it, so that a command or a
//! configuration is refused at once.

use carina_api::AppName;
use carina_api::control::{DifCreate, DifRole};
use carina_dialects::DIALECTS;
use carina_ipcp::{
    Catalogue, Command, Config as IpcpConfig, Event as MemberEvent, Ipcp, PolicySpec,
};
use carina_protect::{Credentials, Tools};
use carina_time::Instant;
use carina_wire::Bytes;

use super::error::MemberSpecError;
use super::{MemberSpec, app_name, auth, dialect};

/// What a node called `system` would refuse of a member that it is to make, as far as the wish
/// alone tells. Files are not read; see [`check_auth`].
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check_member(create: DifCreate, system: &str) -> Result<(), MemberSpecError> {
    let new = MemberSpec::try_from(create)?;
    new.check()?;
    let authentication = auth::policy(new.auth.as_deref()).map_err(|error| error.of(&new.name))?;
    new.check_for(system, authentication)
}

/// What a node would refuse of the files that `auth` names.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn check_auth(auth: &str) -> Result<(), MemberSpecError> {
    auth::load(Some(auth)).map(drop)
}

impl MemberSpec {
    /// The configuration of an IPCP of this name, with which one could be made.
    pub fn prepare(
        &self,
        own: &AppName,
        authentication: Option<PolicySpec>,
    ) -> Result<IpcpConfig, MemberSpecError> {
        let config = IpcpConfig {
            name: own.clone().into(),
            dif: self.name.as_str().to_owned(),
            dialect: dialect::wire_dialect(self.dialect),
            dif_config: self.dif_config(authentication)?,
        };
        trial_run(&config, self.role)?;
        Ok(config)
    }

    /// Whether a node of this name could make it.
    pub fn check_for(
        &self,
        system: &str,
        authentication: Option<PolicySpec>,
    ) -> Result<(), MemberSpecError> {
        let own = match &self.ipcp {
            Some(name) => app_name(name),
            None => AppName::new(self.default_ipcp_name(system))
                .map_err(|error| MemberSpecError::Name(error.to_string()))?,
        };
        let prepared = self.prepare(&own, authentication).map(drop);
        prepared.map_err(|error| error.of(&self.name))
    }
}

/// Checks a configuration with an IPCP that is made for this alone.
fn trial_run(config: &IpcpConfig, role: DifRole) -> Result<(), MemberSpecError> {
    let tools = Box::new(Tools::new(Credentials::default()));
    let mut ipcp = Ipcp::<Bytes>::new(DIALECTS, config.clone(), tools, Catalogue::empty(), 0)
        .map_err(|error| MemberSpecError::Ipcp(error.to_string()))?;
    if role == DifRole::Create {
        ipcp.handle(Instant::ZERO, Command::Bootstrap);
    }
    while let Some(event) = ipcp.poll_event() {
        if let MemberEvent::Left { reason } = event {
            return Err(MemberSpecError::Ipcp(reason));
        }
    }
    Ok(())
}
