//! Members of normal DIFs in this system: creation, N-1 flows, events.
//!
//! ```text
//!             create: bootstrap                      leave, or expelled
//!   (made) ------------------------> Enrolled -----------------------------> Left
//!      \   join                      ^     |
//!       +-------> Joining -----------+     | an N-1 flow ends: requested again,
//!                  |  ^   enrolled         +  with growing pauses
//!                  +--+ N-1 flow or enrollment failed: tried again, with growing pauses
//! ```
//!
//! While a member is enrolled, it is registered in each of its N-1 DIFs under two names: its own,
//! and the name of its DIF, which joining members call.

use std::time::{Duration, Instant};

use carina_api::control::{DifCreate, DifRole, EventKind, IpcpType, LinkState};
use carina_api::ipc::Mode;
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, LocalName, PortId};
use carina_dataplane::{Command, NormalBuilder, NormalIpcp};
use carina_dialects::DIALECTS;
use carina_ipcp::{DifConfig, Event as MemberEvent, N1Port, N1Properties};
use carina_protect::Tools;

use crate::allocation::ANSWER_SLACK;
use crate::core::Core;
use crate::endpoints::{AllocatedFlow, DataPath, Endpoint, FlowOwner, Stage};
use crate::ipcp_handlers::NewIpcp;
use crate::ipcp_kinds::Opened;
use crate::ipcps::{IpcpError, Process, Registrant};
use crate::layers::{check_below, layers};
use crate::member_spec::{MemberSpec, MemberSpecError, app_name, load_auth, member_of};
use crate::membership::{DeferredStart, Membership, N1Flow, Phase, RETRACTED, WantedN1};
use crate::rules::{Action, Rules};
use crate::seed::random_seed;

mod extend;
mod member_events;
mod n1_difs;
mod n1_flows;
mod n1_names;
mod retract;

impl Core {
    /// Creates a member as a command asks for it.
    ///
    /// # Errors
    /// Those of [`Core::create_member`]; or the configuration of the DIF is invalid.
    pub(crate) fn create_dif(&mut self, create: DifCreate) -> Result<IpcpId, ErrorBody> {
        let new = MemberSpec::try_from(create).map_err(bad_request)?;
        self.create_member(new)
    }

    /// Creates a normal IPCP that creates or joins a DIF.
    ///
    /// # Errors
    /// The name is in use, this system is not in one of the N-1 DIFs, the access rules forbid it,
    /// or the configuration is invalid.
    pub(crate) fn create_member(&mut self, new: MemberSpec) -> Result<IpcpId, ErrorBody> {
        new.check().map_err(bad_request)?;
        check_below(&new, &layers(&self.ipcps))?;
        let prepared = self.prepare_member(new, &[])?;
        self.add_member(prepared)
    }

    /// Checks and loads everything for a new member that may fail: access rules, files, policies
    /// and the longest PDU. The IPCPs in `gone` end before the member is added, so their names
    /// count as free.
    ///
    /// # Errors
    /// Those of [`Core::create_member`], except for the N-1 DIFs, which are not checked.
    pub(crate) fn prepare_member(
        &self,
        new: MemberSpec,
        gone: &[IpcpId],
    ) -> Result<PreparedMember, ErrorBody> {
        let name = self.member_name(&new, gone)?;
        let own = app_name(&name);
        check_rules(&self.rules, &own, &new.name, &new.over)?;
        let dif = new.name.clone();
        let wrong = |error: MemberSpecError| bad_request(error.of(&dif));
        let (authentication, credentials) = load_auth(new.auth.as_deref()).map_err(wrong)?;
        let mut config = new.prepare(&own, authentication).map_err(wrong)?;
        let tools = Tools::new(credentials);
        let awaited = match &mut config.dif_config {
            Some(dif_config) => self.resolve_max_pdu(&new, dif_config).map_err(|error| {
                let what = format!("DIF {dif}: {error}");
                ErrorBody::new(ErrorCode::BadRequest, what)
            })?,
            None => None,
        };
        let mut member = Membership::new(new, config.dialect, Instant::now());
        let resolved = |config: &DifConfig| config.max_pdu != 0;
        member.given = config.dif_config.clone().filter(resolved);
        let builder = Box::new(NormalBuilder {
            dialects: DIALECTS,
            config,
            tools: Box::new(tools),
            seed: random_seed(),
        });
        Ok(PreparedMember {
            name,
            member,
            builder,
            awaited,
        })
    }

    /// Creates the IPCP of a prepared member.
    ///
    /// # Errors
    /// The name is in use, or there are too many IPCPs.
    pub(crate) fn add_member(&mut self, prepared: PreparedMember) -> Result<IpcpId, ErrorBody> {
        let PreparedMember {
            name,
            mut member,
            builder,
            awaited,
        } = prepared;
        let dif = member.made_from.name.clone();
        let bootstraps = member.made_from.role == DifRole::Create;
        let mut opened = Opened::new(IpcpType::Normal, move |id, commands| {
            Process::Normal(NormalIpcp::new(id, commands))
        });
        match awaited {
            None => {
                opened.builder = Some(builder);
                opened.process = Box::new(move |id, commands| {
                    let mut normal = NormalIpcp::new(id, commands);
                    normal.begin();
                    if bootstraps {
                        normal.command(carina_ipcp::Command::Bootstrap);
                    }
                    Process::Normal(normal)
                });
            }
            Some(dif) => member.deferred = Some(DeferredStart { new: builder, dif }),
        }
        let id = self.add_ipcp(NewIpcp {
            name,
            dif,
            made_from: None,
            member: Some(member),
            opened,
        })?;
        self.request_due_n1_flows(Instant::now());
        Ok(id)
    }

    /// The name of the member's IPCP: as configured, or the first free name made from DIF and
    /// system.
    fn member_name(&self, new: &MemberSpec, gone: &[IpcpId]) -> Result<LocalName, ErrorBody> {
        let is_free = |name: &str| {
            let holder = self.ipcps.named(name);
            holder.is_none_or(|id| gone.contains(&id))
        };
        ipcp_name(new, &self.name, is_free)
    }

    /// Removes this system's member of a DIF.
    ///
    /// # Errors
    /// This system has no such member, or has several and `ipcp` does not name one of them.
    pub(crate) fn leave_dif(&mut self, name: &str, ipcp: Option<&str>) -> Result<(), ErrorBody> {
        let id = self.own_member(name, ipcp)?;
        self.remove_ipcp(id, "the IPCP left the DIF by command");
        Ok(())
    }
}

/// A new member after all checks; only its name may still turn out to be in use.
pub(crate) struct PreparedMember {
    name: LocalName,
    member: Membership,
    builder: Box<NormalBuilder>,
    /// The N-1 DIF that must exist before the member can start; `None` if the member can start now.
    awaited: Option<DifName>,
}

/// The name of a member's IPCP: as configured, or the first free name made from DIF and `system`.
///
/// # Errors
/// The configured name is in use, or no free name can be made from DIF and system.
pub(crate) fn ipcp_name(
    new: &MemberSpec,
    system: &str,
    is_free: impl Fn(&str) -> bool,
) -> Result<LocalName, ErrorBody> {
    if let Some(name) = &new.ipcp {
        return if is_free(name.as_str()) {
            Ok(name.clone())
        } else {
            Err(IpcpError::NameInUse(name.clone()).into())
        };
    }
    new.free_ipcp_name(system, is_free).ok_or_else(|| {
        let what = format!(
            "no name is free for a member of {}; specify one (`ipcp`)",
            new.name
        );
        ErrorBody::new(ErrorCode::DuplicateName, what)
    })
}

/// Checks that the node's user may register a member and its DIF's name in these N-1 DIFs.
///
/// # Errors
/// The first N-1 DIF in which an access rule forbids it.
pub(crate) fn check_rules(
    rules: &Rules,
    own: &AppName,
    dif: &DifName,
    over: &[DifName],
) -> Result<(), ErrorBody> {
    let uid = rustix::process::geteuid().as_raw();
    for below in over {
        let is_allowed = |name: &str| rules.allow(uid, Action::Register, name, below.as_str());
        if !is_allowed(own.as_str()) || !is_allowed(dif.as_str()) {
            let denied = crate::registrations::denied(uid, "register", own, Some(below));
            return Err(denied);
        }
    }
    Ok(())
}

/// The error for an invalid specification of a member.
pub(crate) fn bad_request(error: MemberSpecError) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, error.to_string())
}

/// Largest number of N-1 flows of one member.
const N1_FLOWS_MAX: usize = 4096;
