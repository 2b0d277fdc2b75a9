//! What a configuration would do to the node, and whether it can.

use carina_api::control::{Applied, IpcpCreate, IpcpType, VmCreate};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use toml::Spanned;

use super::Settings;
use crate::config::{Config, Placement};
use crate::core::Core;
use crate::ipcp_kinds;
use crate::ipcps::{IPCPS_MAX, IpcpError};
use crate::layers::{Layer, check_below};
use crate::member_spec::{MemberSpec, load_auth};
use crate::members::{bad_request, check_rules};
use crate::rules::Rules;
use crate::vm_port::default_dif;

/// The way from what the node is to what a configuration says.
pub struct Plan {
    /// What stays or changes in place; what is made and destroyed is added when that is done.
    pub applied: Applied,
    /// IPCPs that are not wanted, those above before those below.
    pub leaving: Vec<IpcpId>,
    /// Shims to make.
    pub ipcps: Vec<IpcpCreate>,
    /// VM ports to make.
    pub vms: Vec<VmCreate>,
    /// Members to make, in order.
    pub members: Vec<MemberSpec>,
    /// Members that get and lose N-1 DIFs.
    pub rebased: Vec<(IpcpId, MemberSpec)>,
}

impl Plan {
    /// Plans, and judges everything that can be judged without doing it.
    ///
    /// # Errors
    /// The first part of the configuration that cannot be, and why.
    pub fn of(core: &Core, config: Config) -> Result<(Settings, Plan), ErrorBody> {
        check_node(core, &config)?;
        let mut ipcps = Vec::new();
        if config.wants_implicit_loopback() {
            ipcps.push(implicit_loopback());
        }
        ipcps.extend(config.ipcps.into_iter().map(Spanned::into_inner));
        // Checked whole, for those that stay count.
        ipcp_kinds::check_together(&ipcps)?;
        let node_uid = rustix::process::geteuid().as_raw();
        let rules = Rules::new(config.rules, node_uid);
        let placement = config.node.placement();
        let mut plan = Plan {
            applied: Applied {
                rules: rules.count() as u32,
                ..Applied::default()
            },
            leaving: Vec::new(),
            ipcps,
            vms: config.vms.into_iter().map(Spanned::into_inner).collect(),
            members: config.difs.into_iter().map(Spanned::into_inner).collect(),
            rebased: Vec::new(),
        };
        for id in core.ipcps.ids().into_iter().rev() {
            if !plan.keeps(core, &placement, id) {
                plan.leaving.push(id);
            }
        }
        // In the order in which they were made.
        plan.applied.unchanged.reverse();
        plan.applied.extended.reverse();
        plan.applied.retracted.reverse();
        plan.rebased.reverse();
        plan.judge(core, &rules)?;
        let settings = Settings {
            rules,
            limits: config.limits,
            dif_order: config.node.dif_order,
            placement,
        };
        Ok((settings, plan))
    }

    /// Takes out of what is to be made the wish that an IPCP already meets; says whether there was
    /// one.
    fn keeps(&mut self, core: &Core, placement: &Placement, id: IpcpId) -> bool {
        let ipcp = &core.ipcps[id];
        let (at, wanted) = (core.plane.worker_of(id), placement.get(&ipcp.name));
        if at.is_some() && wanted.is_some_and(|wanted| at != Some(*wanted)) {
            // An IPCP stays on its worker as long as it lives.
            return false;
        }
        let kept = match (&ipcp.vm, &ipcp.member) {
            (Some(vm), _) => take(&mut self.vms, |wanted| vm.matches_spec(wanted)).is_some(),
            (None, Some(member)) => {
                let made_from = &member.made_from;
                let same = take(&mut self.members, |wanted| wanted == made_from);
                let found =
                    same.or_else(|| take(&mut self.members, |wanted| wanted.rebases(made_from)));
                return found.is_some_and(|wanted| {
                    self.keep_member(id, ipcp.name.clone(), &made_from.over, wanted);
                    true
                });
            }
            (None, None) => {
                let is_it = |wanted: &IpcpCreate| Some(wanted) == ipcp.made_from.as_ref();
                take(&mut self.ipcps, is_it).is_some()
            }
        };
        if kept {
            self.applied.unchanged.push(ipcp.name.clone());
        }
        kept
    }

    fn keep_member(&mut self, id: IpcpId, name: LocalName, has: &[DifName], wanted: MemberSpec) {
        let gains = wanted.over.iter().any(|dif| !has.contains(dif));
        let loses = has.iter().any(|dif| !wanted.over.contains(dif));
        for (is_so, list) in [
            (gains, &mut self.applied.extended),
            (loses, &mut self.applied.retracted),
            (!gains && !loses, &mut self.applied.unchanged),
        ] {
            if is_so {
                list.push(name.clone());
            }
        }
        if gains || loses {
            self.rebased.push((id, wanted));
        }
    }

    /// Checks what is to be made against what there will be.
    fn judge(&self, core: &Core, rules: &Rules) -> Result<(), ErrorBody> {
        let mut world: Vec<Layer> = Vec::new();
        for id in core.ipcps.ids() {
            let ipcp = &core.ipcps[id];
            if self.leaving.contains(&id) {
                continue;
            }
            let rebased = self.rebased.iter().find(|(rebased, _)| *rebased == id);
            let spec = match (rebased, &ipcp.member) {
                (Some((_, wanted)), _) => Some(wanted),
                (None, member) => member.as_ref().map(|member| &member.made_from),
            };
            world.push(match spec {
                Some(spec) => Layer::of_member(ipcp.name.to_string(), spec),
                None => Layer::of_shim(&ipcp.name, ipcp.dif.clone()),
            });
        }
        for create in &self.ipcps {
            world.push(Layer::of_shim(&create.name, create.dif.clone()));
        }
        for create in &self.vms {
            let dif = create.dif.clone().or_else(|| default_dif(&create.name));
            let dif = dif.ok_or_else(|| {
                let what = format!("VM {}: the name is too long for its DIF's", create.name);
                ErrorBody::new(ErrorCode::BadRequest, what)
            })?;
            world.push(Layer::of_shim(&create.name, dif));
        }
        if world.len() + self.members.len() > IPCPS_MAX {
            return Err(IpcpError::TooMany.into());
        }
        for spec in &self.members {
            let ipcp = judge_member(core, rules, spec, &world)?;
            world.push(Layer::of_member(ipcp, spec));
        }
        for (id, wanted) in &self.rebased {
            let own = member_name(core.ipcps[*id].name.as_str())?;
            check_below(wanted, &world)
                .and_then(|()| check_rules(rules, &own, &wanted.name, &wanted.over))
                .map_err(|error| of_dif(wanted, error))?;
        }
        Ok(())
    }
}

/// Checks a member that is to be made; gives the name of its IPCP.
fn judge_member(
    core: &Core,
    rules: &Rules,
    spec: &MemberSpec,
    world: &[Layer],
) -> Result<String, ErrorBody> {
    check_below(spec, world).map_err(|error| of_dif(spec, error))?;
    let (authentication, _) =
        load_auth(spec.auth.as_deref()).map_err(|error| bad_request(error.of(&spec.name)))?;
    spec.check_for(&core.name, authentication)
        .map_err(bad_request)?;
    let ipcp = match &spec.ipcp {
        Some(name) => name.to_string(),
        None => spec.default_ipcp_name(&core.name),
    };
    let own = member_name(&ipcp)?;
    check_rules(rules, &own, &spec.name, &spec.over).map_err(|error| of_dif(spec, error))?;
    Ok(ipcp)
}

/// Takes the first that is meant out of a list.
fn take<T>(list: &mut Vec<T>, is_meant: impl Fn(&T) -> bool) -> Option<T> {
    let at = list.iter().position(is_meant)?;
    Some(list.remove(at))
}

fn member_name(text: &str) -> Result<AppName, ErrorBody> {
    AppName::new(text).map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()))
}

/// The refusal with the `[[dif]]` that it is about.
fn of_dif(spec: &MemberSpec, error: ErrorBody) -> ErrorBody {
    let message = format!("[[dif]] {}: {}", spec.name, error.message);
    ErrorBody { message, ..error }
}

fn check_node(core: &Core, config: &Config) -> Result<(), ErrorBody> {
    let fixed = |what: String| Err(ErrorBody::new(ErrorCode::Conflict, what));
    let workers = config.node.data_plane();
    match (&config.node.name, &config.node.run_dir) {
        (Some(name), _) if *name != core.name => fixed(format!(
            "[node] name is {}; a running node keeps its name",
            core.name
        )),
        (_, Some(dir)) if *dir != core.run_dir_lock.dir().path() => fixed(format!(
            "[node] run_dir is {}; a running node keeps its directory",
            core.run_dir_lock.dir().path().display()
        )),
        _ if config.node.workers.is_some() && workers.count != core.workers.count => {
            let (asked, has) = (workers.count, core.workers.count);
            fixed(format!(
                "[node] workers is {asked}; a running node keeps its {has}"
            ))
        }
        _ if !workers.cpus.is_empty() && workers.cpus != core.workers.cpus => {
            let (asked, has) = (workers.cpus, &core.workers.cpus);
            fixed(format!(
                "[node] cpus is {asked:?}; a running node keeps its {has:?}"
            ))
        }
        _ => Ok(()),
    }
}

/// The IPCP that a node has without configuration.
fn implicit_loopback() -> IpcpCreate {
    IpcpCreate::new(
        LocalName::new("loopback").expect("a valid name"),
        IpcpType::Loopback,
        DifName::new("local").expect("a valid name"),
    )
}
