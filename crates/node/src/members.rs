//! Members of normal DIFs in this system: creation, N-1 flows, events.
//!
//! ```text
//!             create: bootstrap                      leave, or expelled
//!   (made) ------------------------> Enrolled -----------------------------> Left
//!      \   join                      ^     |
//!       +-------> Joining -----------+     | an N-1 flow ends: asked for again,
//!                  |  ^   enrolled         +  with growing pauses
//!                  +--+ N-1 flow or enrollment failed: again, with growing pauses
//! ```
//!
//! While it is enrolled, a member is registered in each of its N-1 DIFs under its own name and
//! under the name of its DIF, which joining members ask for.

use std::time::{Duration, Instant};

use carina_api::control::{DifCreate, DifRole, EventKind, IpcpType, LinkState};
use carina_api::ipc::Mode;
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, LocalName, PortId};
use carina_dataplane::{Command, NormalBuilder, NormalIpcp};
use carina_ipcp::{DifConfig, Event as MemberEvent, N1Port, N1Properties};
use carina_protect::Tools;

use crate::allocation::ANSWER_SLACK;
use crate::core::Core;
use crate::endpoints::{AllocatedFlow, DataPath, Endpoint, FlowOwner, Stage};
use crate::ipcp_handlers::NewIpcp;
use crate::ipcp_kinds::Opened;
use crate::ipcps::{Process, Registrant};
use crate::member_spec::{MemberSpec, MemberSpecError, app_name, load_auth, member_of};
use crate::membership::{DeferredStart, Membership, N1Flow, Phase, RETRACTED, WantedN1};
use crate::rules::Action;

mod extend;
mod member_events;
mod n1_difs;
mod n1_flows;
mod n1_names;
mod retract;

impl Core {
    /// Makes a member as asked by command.
    ///
    /// # Errors
    /// As of [`Core::create_member`], or the configuration of the DIF is no good.
    pub fn create_dif(&mut self, create: DifCreate) -> Result<IpcpId, ErrorBody> {
        let new = MemberSpec::try_from(create).map_err(bad_request)?;
        self.create_member(new)
    }

    /// Makes a normal IPCP that creates or joins a DIF.
    ///
    /// # Errors
    /// The name is taken, this system is in none of the N-1 DIFs, the rules forbid it, or the
    /// configuration is no good.
    pub fn create_member(&mut self, new: MemberSpec) -> Result<IpcpId, ErrorBody> {
        new.check().map_err(bad_request)?;
        self.check_below(&new)?;
        let name = self.member_name(&new)?;
        let own = app_name(&name);
        for dif in &new.over {
            let uid = rustix::process::geteuid().as_raw();
            let is_allowed =
                |name: &str| self.rules.allow(uid, Action::Register, name, dif.as_str());
            if !is_allowed(own.as_str()) || !is_allowed(new.name.as_str()) {
                return Err(crate::registrations::denied(
                    uid,
                    "register",
                    &own,
                    Some(dif),
                ));
            }
        }
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
        let seed = random_seed();
        let builder = Box::new(NormalBuilder {
            config,
            tools: Box::new(tools),
            seed,
        });
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

    /// Checks the members that a configuration adds, before anything of it is done: those that they
    /// replace would be gone.
    ///
    /// # Errors
    /// The first that cannot be made, and why.
    pub fn check_new_members(&self, wanted: &[MemberSpec]) -> Result<(), ErrorBody> {
        let there = self.ipcps.values();
        let there: Vec<&Membership> = there.filter_map(|ipcp| ipcp.member.as_ref()).collect();
        let stays = |new: &MemberSpec| {
            let mut members = there.iter().map(|member| &member.made_from);
            members.any(|made_from| new == made_from || new.rebases(made_from))
        };
        for new in wanted.iter().filter(|new| !stays(new)) {
            let loaded = load_auth(new.auth.as_deref()).map_err(|error| error.of(&new.name));
            loaded
                .and_then(|(authentication, _)| new.check_for(&self.name, authentication))
                .map_err(bad_request)?;
        }
        Ok(())
    }

    /// Checks that the N-1 DIFs are there and that no DIF would stand upon itself.
    fn check_below(&self, new: &MemberSpec) -> Result<(), ErrorBody> {
        let is_other = |ipcp: &&crate::ipcps::Ipcp| ipcp.dif == new.name && ipcp.member.is_none();
        if let Some(shim) = self.ipcps.values().find(is_other) {
            let what = format!(
                "{} is the name of a DIF that is a shim's ({})",
                new.name, shim.name
            );
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        }
        for dif in &new.over {
            if !self.ipcps.values().any(|ipcp| ipcp.dif == *dif) {
                return Err(self.ipcps.unknown_dif(dif));
            }
        }
        let (mut todo, mut seen) = (new.over.clone(), Vec::new());
        while let Some(dif) = todo.pop() {
            if dif == new.name {
                let what = format!("DIF {dif} would be its own N-1 DIF");
                return Err(ErrorBody::new(ErrorCode::BadRequest, what));
            }
            if !seen.contains(&dif) {
                let members = self.ipcps.values().filter(|ipcp| ipcp.dif == dif);
                todo.extend(
                    members
                        .filter_map(|ipcp| ipcp.member.as_ref())
                        .flat_map(|member| member.made_from.over.iter().cloned()),
                );
                seen.push(dif);
            }
        }
        Ok(())
    }

    /// The name asked for, or the first free one made of DIF and system.
    fn member_name(&self, new: &MemberSpec) -> Result<LocalName, ErrorBody> {
        if let Some(name) = &new.ipcp {
            self.ipcps.check_name_unused(name)?;
            return Ok(name.clone());
        }
        let stem = new.default_ipcp_name(&self.name);
        let numbered = (2..).map(|number| format!("{stem}.{number}"));
        std::iter::once(stem.clone())
            .chain(numbered)
            .take(crate::ipcps::IPCPS_MAX)
            .filter_map(|name| LocalName::new(name).ok())
            .find(|name| self.ipcps.named(name.as_str()).is_none())
            .ok_or_else(|| {
                let what = format!("no name is free for a member of {}; give one", new.name);
                ErrorBody::new(ErrorCode::DuplicateName, what)
            })
    }

    /// Ends a member of a DIF in this system.
    ///
    /// # Errors
    /// This system has no such member, or has several and `ipcp` names none of them.
    pub fn leave_dif(&mut self, name: &str, ipcp: Option<&str>) -> Result<(), ErrorBody> {
        let id = self.own_member(name, ipcp)?;
        self.remove_ipcp(id, "it left the DIF by command");
        Ok(())
    }
}

/// The refusal of a member that cannot be as it is asked for.
fn bad_request(error: MemberSpecError) -> ErrorBody {
    ErrorBody::new(ErrorCode::BadRequest, error.to_string())
}

/// For everything in an IPCP that must not be guessed or the same twice.
fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_ne_bytes(bytes),
        // Not before the kernel's pool is filled, at the very start of a system.
        _ => carina_sys::monotonic_ns(),
    }
}

/// N-1 flows of one member.
const N1_FLOWS_MAX: usize = 4096;
