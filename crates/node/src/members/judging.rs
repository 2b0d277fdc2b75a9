//! Whether a member could be made, found out before anything is done for it: whoever wants one is
//! told what is wrong, not left with a member that gives up at once.

use carina_api::control::{DifCreate, DifRole};
use carina_api::{AppName, ErrorBody, ErrorCode};
use carina_ipcp::{Catalogue, Command, Config as IpcpConfig, Event as Told, Ipcp, PolicySpec};
use carina_protect::{Credentials, Tools};
use carina_time::Instant;
use carina_wire::Bytes;

use super::{Membership, NewDif, app_name, auth, dialect};
use crate::core::Core;

/// What a node called `system` would refuse of a member that it is to make, as far as the wish
/// alone tells. Files are not read; see [`judge_auth`].
///
/// # Errors
/// What is wrong, and what would be right.
pub fn judge_member(create: DifCreate, system: &str) -> Result<(), String> {
    let new = NewDif::try_from(create)?;
    new.check()?;
    let authentication = auth::policy(new.auth.as_deref()).map_err(|what| new.wrong(&what))?;
    new.judge(system, authentication)
}

/// What a node would refuse of the files that `auth` names.
///
/// # Errors
/// What is wrong, and what would be right.
pub fn judge_auth(auth: &str) -> Result<(), String> {
    auth::load(Some(auth)).map(drop)
}

impl NewDif {
    /// The configuration of an IPCP of this name, with which one could be made.
    pub(super) fn prepare(
        &self,
        own: &AppName,
        authentication: Option<PolicySpec>,
    ) -> Result<IpcpConfig, String> {
        let config = IpcpConfig {
            name: own.clone().into(),
            dif: self.name.as_str().to_owned(),
            dialect: dialect::on_the_wire(self.dialect),
            dif_config: self.dif_config(authentication)?,
        };
        try_out(&config, self.role)?;
        Ok(config)
    }

    /// Whether a node of this name could make it.
    fn judge(&self, system: &str, authentication: Option<PolicySpec>) -> Result<(), String> {
        let own = match &self.ipcp {
            Some(name) => app_name(name),
            None => AppName::new(self.usual_name(system)).map_err(|error| error.to_string())?,
        };
        let prepared = self.prepare(&own, authentication).map(drop);
        prepared.map_err(|what| self.wrong(&what))
    }

    fn wrong(&self, what: &str) -> String {
        format!("DIF {}: {what}", self.name)
    }
}

impl Core {
    /// Checks the members that a configuration adds, before anything of it is done: those that they
    /// replace would be gone.
    ///
    /// # Errors
    /// The first that cannot be made, and why.
    pub fn check_new_members(&self, wanted: &[NewDif]) -> Result<(), ErrorBody> {
        let there = self.ipcps.values();
        let there: Vec<&Membership> = there.filter_map(|ipcp| ipcp.member.as_ref()).collect();
        let stays = |new: &NewDif| {
            let mut members = there.iter().map(|member| &member.made_from);
            members.any(|made_from| new == made_from || new.rebases(made_from))
        };
        for new in wanted.iter().filter(|new| !stays(new)) {
            let loaded = auth::load(new.auth.as_deref()).map_err(|what| new.wrong(&what));
            loaded
                .and_then(|(authentication, _)| new.judge(&self.name, authentication))
                .map_err(|what| ErrorBody::new(ErrorCode::BadRequest, what))?;
        }
        Ok(())
    }
}

/// Checks a configuration with an IPCP that is made for this alone.
fn try_out(config: &IpcpConfig, role: DifRole) -> Result<(), String> {
    let tools = Box::new(Tools::new(Credentials::default()));
    let mut trial = Ipcp::<Bytes>::new(config.clone(), tools, Catalogue::empty(), 0)?;
    if role == DifRole::Create {
        trial.handle(Instant::ZERO, Command::Bootstrap);
    }
    while let Some(event) = trial.poll_event() {
        if let Told::Left { reason } = event {
            return Err(reason);
        }
    }
    Ok(())
}
