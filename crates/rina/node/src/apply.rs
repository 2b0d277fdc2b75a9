//! Applies a configuration to a running node: completely, or not at all.
//!
//! ```text
//!   judge        checks the whole configuration against the planned state       refused: no change
//!   make         creates shims and VMs that need nothing of what is removed     fails: undone
//!   replace      removes what conflicts, just before its replacement            fails: undone
//!   rebase       adds and removes N-1 DIFs of members                           fails: undone
//!   take away    removes what is not in the configuration
//! ```
//!
//! So a step that the system may refuse runs before anything is removed, except for what that step
//! replaces.

use std::time::{Duration, Instant};

use carina_api::control::{Applied, EventKind, IpcpCreate, VmCreate};
use carina_api::{DifName, ErrorBody, IpcpId, LocalName};
use carina_gateway::{Services, Setting};
use toml::Spanned;

use crate::apply::plan::Plan;
use crate::config::{Config, Limits, Placement};
use crate::core::Core;
use crate::ipcp_kinds;
use crate::ipcps::Ipcp;
use crate::member_spec::MemberSpec;
use crate::rules::Rules;
use crate::vm_port::default_dif;

mod plan;
mod wishes;

pub(crate) use self::wishes::check_alone;

impl Core {
    /// Makes the node match the configuration: creates what is missing, destroys what is not in the
    /// configuration, and recreates what differs.
    ///
    /// # Errors
    /// The configuration is invalid, or the system refuses a part of it. The node is then as
    /// before: an IPCP that had to be removed before its replacement was created exists again, but
    /// its flows have ended.
    pub(crate) fn apply(&mut self, config: Config) -> Result<Applied, ErrorBody> {
        let (services, ips) = (config.services(), config.ip_settings());
        // The error is permanent until the text or the node changes.
        let (settings, plan) = Plan::of(self, config).map_err(ErrorBody::for_good)?;
        let mut steps = Steps {
            former: settings.put_into(self),
            done: Vec::new(),
            leaving: plan.leaving.clone(),
            applied: plan.applied.clone(),
        };
        if let Err(error) = steps.take(self, plan) {
            let undone = steps.undo(self);
            let what = format!("not applied: {error}; {undone}");
            self.journal
                .note(EventKind::Notice, "configuration", what.as_str());
            let message = format!("{}; {undone}", error.message);
            return Err(ErrorBody { message, ..error });
        }
        self.configured_services = services;
        self.serve_wanted();
        self.configured_ips = ips;
        self.run_wanted_ip();
        let applied = steps.applied;
        let what = format!(
            "{} created, {} extended, {} retracted, {} destroyed",
            applied.created.len(),
            applied.extended.len(),
            applied.retracted.len(),
            applied.destroyed.len()
        );
        self.journal.note(EventKind::Applied, "configuration", what);
        Ok(applied)
    }
}

impl Core {
    /// Has the servers and sockets of the configuration and the doors of VMs served, and no others.
    pub(crate) fn serve_wanted(&mut self) {
        let doors = self.ipcps.values().filter_map(|ipcp| ipcp.vm.as_ref());
        let doors = doors.filter_map(|vm| vm.internet.clone().map(Setting::Internet));
        let configured = self.configured_services.iter().cloned();
        let wanted: Vec<Setting> = configured.chain(doors).collect();
        if self.services.is_none() && !wanted.is_empty() {
            match Services::start(self.run_dir_lock.dir().ipc_sock()) {
                Ok(services) => self.services = Some(services),
                Err(error) => {
                    let what = format!("nothing is exposed or connected: {error}");
                    return self.journal.note(EventKind::Notice, "configuration", what);
                }
            }
        }
        if let Some(services) = &self.services {
            services.set(wanted);
        }
    }
}

impl Core {
    /// Has the members of `[[ip]]` and the IP links of VMs run, and no others.
    pub(crate) fn run_wanted_ip(&mut self) {
        let vms = self.ipcps.values().filter_map(|ipcp| {
            let vm = ipcp.vm.as_ref()?;
            Some(vm.ip.as_ref()?.of_host(ipcp.name.as_str()))
        });
        let wanted: Vec<_> = self.configured_ips.iter().cloned().chain(vms).collect();
        if let Err(error) = self.ip_members.set(&wanted) {
            let what = format!("not every IP interface is up: {error}");
            self.journal.note(EventKind::Notice, "configuration", what);
        }
    }
}

/// The parts of a configuration that concern the node itself.
struct Settings {
    rules: Rules,
    limits: Limits,
    dif_order: Vec<DifName>,
    placement: Placement,
}

impl Settings {
    /// Puts these settings in force, and returns the ones before.
    fn put_into(self, core: &mut Core) -> Settings {
        Settings {
            rules: std::mem::replace(&mut core.rules, self.rules),
            limits: std::mem::replace(&mut core.limits, self.limits),
            dif_order: std::mem::replace(&mut core.dif_order, self.dif_order),
            placement: std::mem::replace(&mut core.placement, self.placement),
        }
    }
}

/// Retries `make` for a short time, if it needs what another IPCP has just released: the data plane
/// closes the sockets of that IPCP a moment later.
fn soon<T>(mut make: impl FnMut() -> Result<T, ErrorBody>) -> Result<T, ErrorBody> {
    let deadline = Instant::now() + GIVEN_UP;
    loop {
        match make() {
            Err(_) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            outcome => return outcome,
        }
    }
}

/// How long the data plane may take to close the sockets of an IPCP.
const GIVEN_UP: Duration = Duration::from_millis(500);
/// Pause between two attempts in that time.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The steps by which the node has applied a configuration, so that it can undo them.
struct Steps {
    /// The settings before the configuration was applied.
    former: Settings,
    done: Vec<Step>,
    /// IPCPs that are to be removed but still exist.
    leaving: Vec<IpcpId>,
    applied: Applied,
}

enum Step {
    /// The node has created this IPCP.
    Made(IpcpId),
    /// The node has removed the IPCP of this name. The second value says how to create the IPCP
    /// again; `None` if that is not possible.
    Removed(LocalName, Option<Former>),
    /// The node has given a member other N-1 DIFs. The second value is the member's specification
    /// before that.
    Rebased(IpcpId, MemberSpec),
}

/// What a removed IPCP can be recreated from.
enum Former {
    Shim(IpcpCreate),
    Vm(VmCreate),
    Member(MemberSpec),
}

impl Former {
    /// `None` for an IPCP over a device that was already open when the node got it.
    fn of(ipcp: &Ipcp) -> Option<Former> {
        match (&ipcp.vm, &ipcp.member, &ipcp.made_from) {
            (Some(vm), ..) => Some(Former::Vm(vm.create.clone())),
            (_, Some(member), _) => Some(Former::Member(member.made_from.clone())),
            (.., made_from) => made_from.clone().map(Former::Shim),
        }
    }

    fn make(self, core: &mut Core) -> Result<IpcpId, ErrorBody> {
        match self {
            Former::Shim(create) => soon(|| core.create_ipcp(create.clone())),
            Former::Vm(create) => soon(|| core.create_vm(create.clone())),
            Former::Member(spec) => core.create_member(spec),
        }
    }
}

/// What a new IPCP needs for itself, and what another IPCP may have.
struct Claim<'a> {
    name: Option<&'a LocalName>,
    /// The name that the IPCP gets if none is configured.
    default_name: Option<String>,
    dif: Option<DifName>,
    is_member: bool,
    shim: Option<&'a IpcpCreate>,
}

impl Claim<'_> {
    /// True when `ipcp` must be removed before the new IPCP can be created.
    fn is_against(&self, ipcp: &Ipcp) -> bool {
        let has_name = self.name == Some(&ipcp.name)
            || self.default_name.as_deref() == Some(ipcp.name.as_str());
        // Otherwise two members of one DIF might become neighbours for a moment.
        let has_dif =
            self.dif.as_ref() == Some(&ipcp.dif) && (self.is_member || ipcp.member.is_some());
        let has_medium = self
            .shim
            .zip(ipcp.made_from.as_ref())
            .is_some_and(|(new, old)| ipcp_kinds::share_medium(new, old));
        has_name || has_dif || has_medium
    }

    fn of_shim(create: &IpcpCreate) -> Claim<'_> {
        Claim {
            name: Some(&create.name),
            default_name: None,
            dif: Some(create.dif.clone()),
            is_member: false,
            shim: Some(create),
        }
    }

    fn of_vm(create: &VmCreate) -> Claim<'_> {
        Claim {
            name: Some(&create.name),
            default_name: None,
            dif: create.dif.clone().or_else(|| default_dif(&create.name)),
            is_member: false,
            shim: None,
        }
    }

    fn of_member<'a>(spec: &'a MemberSpec, system: &str) -> Claim<'a> {
        let is_unnamed = spec.ipcp.is_none();
        Claim {
            name: spec.ipcp.as_ref(),
            default_name: is_unnamed.then(|| spec.default_ipcp_name(system)),
            dif: Some(spec.name.clone()),
            is_member: true,
            shim: None,
        }
    }
}

impl Steps {
    fn take(&mut self, core: &mut Core, plan: Plan) -> Result<(), ErrorBody> {
        // First creates what needs nothing of the IPCPs to remove: if that fails, nothing was
        // removed.
        let is_free =
            |steps: &Steps, core: &Core, claim: &Claim<'_>| steps.conflicts(core, claim).is_empty();
        let (free, bound): (Vec<_>, Vec<_>) = plan
            .wishes
            .ipcps
            .into_iter()
            .map(Spanned::into_inner)
            .partition(|create| is_free(self, core, &Claim::of_shim(create)));
        let (free_vms, bound_vms): (Vec<_>, Vec<_>) = plan
            .wishes
            .vms
            .into_iter()
            .map(Spanned::into_inner)
            .partition(|create| is_free(self, core, &Claim::of_vm(create)));
        for create in free {
            let id = core.create_ipcp(create)?;
            self.note_made(core, id);
        }
        for create in free_vms {
            let id = core.create_vm(create)?;
            self.note_made(core, id);
        }
        for create in bound {
            let gone = self.conflicts(core, &Claim::of_shim(&create));
            self.remove(core, &gone);
            let id = soon(|| core.create_ipcp(create.clone()))?;
            self.note_made(core, id);
        }
        for create in bound_vms {
            let gone = self.conflicts(core, &Claim::of_vm(&create));
            self.remove(core, &gone);
            let id = soon(|| core.create_vm(create.clone()))?;
            self.note_made(core, id);
        }
        for spec in plan.wishes.members.into_iter().map(Spanned::into_inner) {
            let gone = self.conflicts(core, &Claim::of_member(&spec, &core.name));
            let prepared = core.prepare_member(spec, &gone)?;
            self.remove(core, &gone);
            let id = core.add_member(prepared)?;
            self.note_made(core, id);
        }
        for (id, wanted) in plan.rebased {
            let Some(former) = core.ipcps.member(id).map(|member| member.made_from.clone()) else {
                continue;
            };
            core.rebase_member(id, wanted.get_ref())?;
            self.done.push(Step::Rebased(id, former));
        }
        // The remaining steps cannot fail.
        let rest = self.leaving.clone();
        self.remove(core, &rest);
        Ok(())
    }

    /// The IPCPs to remove that have what a new one needs, upper ones before those below.
    fn conflicts(&self, core: &Core, claim: &Claim<'_>) -> Vec<IpcpId> {
        let is_against = |id: &IpcpId| core.ipcps.get(*id).is_some_and(|i| claim.is_against(i));
        self.leaving.iter().copied().filter(is_against).collect()
    }

    fn note_made(&mut self, core: &Core, id: IpcpId) {
        self.done.push(Step::Made(id));
        self.applied.created.push(core.ipcps[id].name.clone());
    }

    fn remove(&mut self, core: &mut Core, gone: &[IpcpId]) {
        for &id in gone {
            self.leaving.retain(|leaving| *leaving != id);
            let Some(ipcp) = core.ipcps.get(id) else {
                continue;
            };
            let name = ipcp.name.clone();
            let former = Former::of(ipcp);
            core.remove_ipcp(id, "not in the configuration applied");
            self.applied.destroyed.push(name.clone());
            self.done.push(Step::Removed(name, former));
        }
    }

    /// Restores the node as it was before. Returns text that says how far that succeeded.
    fn undo(self, core: &mut Core) -> String {
        // The settings come first: recreating IPCPs must be allowed as it was before.
        self.former.put_into(core);
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        for step in self.done.into_iter().rev() {
            match step {
                Step::Made(id) => core.remove_ipcp(id, "the configuration could not be applied"),
                Step::Removed(name, former) => match former.map(|former| former.make(core)) {
                    Some(Ok(_)) => again.push(name),
                    Some(Err(error)) => lost.push(format!("{name} ({error})")),
                    None => lost.push(format!("{name} (its device was given to the node)")),
                },
                Step::Rebased(id, former) => {
                    if let Err(error) = core.rebase_member(id, &former) {
                        lost.push(format!("N-1 DIFs of {} ({error})", former.name));
                    }
                }
            }
        }
        let mut text = "nothing was changed".to_owned();
        if !again.is_empty() {
            let names: Vec<&str> = again.iter().map(LocalName::as_str).collect();
            let names = names.join(", ");
            text =
                format!("nothing is changed, but {names} were recreated, which ended their flows");
        }
        if !lost.is_empty() {
            let lost = lost.join(", ");
            tracing::error!(
                lost,
                "parts that a failed configuration replaced could not be restored"
            );
            text = format!("not restored: {lost}");
        }
        text
    }
}
