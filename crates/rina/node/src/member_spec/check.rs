//! Checks whether a member can be created, before anything is done for it, so that an invalid
//! command or configuration is refused at once.

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

/// Checks the specification of a member as a node called `system` does before it creates the
/// member. Reads no files; [`check_auth`] checks those of `auth`.
///
/// # Errors
/// What is wrong, with the valid alternative.
pub fn check_member(create: DifCreate, system: &str) -> Result<(), MemberSpecError> {
    let new = MemberSpec::try_from(create)?;
    new.check()?;
    let authentication = auth::policy(new.auth.as_deref()).map_err(|error| error.of(&new.name))?;
    new.check_for(system, authentication)
}

/// Checks the files that `auth` names, as a node does.
///
/// # Errors
/// What is wrong, with the valid alternative.
pub fn check_auth(auth: &str) -> Result<(), MemberSpecError> {
    auth::load(Some(auth)).map(drop)
}

impl MemberSpec {
    /// Makes the configuration of the member's IPCP, called `own`, and checks it in a trial run.
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

    /// Checks whether a node called `system` could create the member.
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

/// Checks a configuration by making an IPCP that is then dropped.
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
