//! Plans the changes that a configuration makes to the node, and checks them.

use std::collections::BTreeMap;

use carina_api::control::{Applied, IpcpCreate};
use carina_api::{DifName, ErrorBody, ErrorCode, IpcpId, LocalName};
use toml::Spanned;

use super::Settings;
use super::wishes::{Fault, Wishes, World, of_dif};
use crate::config::{Config, Placement};
use crate::core::Core;
use crate::layers::{Layer, check_below};
use crate::member_spec::{MemberSpec, app_name};
use crate::members::check_rules;
use crate::rules::Rules;

/// The steps that turn the present node into the one that a configuration describes.
pub(super) struct Plan {
    /// What the change does, for the answer: IPCPs that stay or change in place. Created and
    /// destroyed IPCPs are added when that happens.
    pub applied: Applied,
    /// IPCPs to remove, upper IPCPs before the IPCPs below them.
    pub leaving: Vec<IpcpId>,
    /// What the node must create.
    pub wishes: Wishes,
    /// Members whose N-1 DIFs change, each with its new specification.
    pub rebased: Vec<(IpcpId, Spanned<MemberSpec>)>,
}

impl Plan {
    /// Makes the plan, and checks everything that can be checked without carrying it out.
    ///
    /// # Errors
    /// The first part of the configuration that is invalid, and the reason.
    pub(super) fn of(core: &Core, config: Config) -> Result<(Settings, Plan), ErrorBody> {
        check_node(core, &config)?;
        // Checks the whole configuration, since IPCPs that stay matter for the others.
        let in_text = |fault: Fault| fault.with_line(&config);
        let (wishes, rules) = Wishes::of(&config).map_err(in_text)?;
        let placement = config.node.placement();
        let mut plan = Plan {
            applied: Applied {
                rules: rules.count() as u32,
                ..Applied::default()
            },
            leaving: Vec::new(),
            wishes,
            rebased: Vec::new(),
        };
        for id in core.ipcps.ids().into_iter().rev() {
            if !plan.keeps(core, &placement, id) {
                plan.leaving.push(id);
            }
        }
        // Restores the order of creation.
        plan.applied.unchanged.reverse();
        plan.applied.extended.reverse();
        plan.applied.retracted.reverse();
        plan.rebased.reverse();
        plan.check(core, &rules).map_err(in_text)?;
        let settings = Settings {
            rules,
            limits: config.limits,
            dif_order: config.node.dif_order,
            placement,
        };
        Ok((settings, plan))
    }

    /// Finds the wish that an existing IPCP fulfils, and removes the wish from the list. Returns
    /// true if there was one.
    fn keeps(&mut self, core: &Core, placement: &Placement, id: IpcpId) -> bool {
        let ipcp = &core.ipcps[id];
        let (at, wanted) = (core.plane.worker_of(id), placement.get(&ipcp.name));
        if at.is_some() && wanted.is_some_and(|wanted| at != Some(*wanted)) {
            // An IPCP cannot move to another worker.
            return false;
        }
        let kept = match (&ipcp.vm, &ipcp.member) {
            (Some(vm), _) => take(&mut self.wishes.vms, |wanted| vm.matches_spec(wanted)).is_some(),
            (None, Some(member)) => {
                let made_from = &member.made_from;
                let members = &mut self.wishes.members;
                let same = take(members, |wanted| wanted == made_from);
                let found = same.or_else(|| take(members, |wanted| wanted.rebases(made_from)));
                return found.is_some_and(|wanted| {
                    self.keep_member(id, ipcp.name.clone(), &made_from.over, wanted);
                    true
                });
            }
            (None, None) => {
                let is_it = |wanted: &IpcpCreate| Some(wanted) == ipcp.made_from.as_ref();
                take(&mut self.wishes.ipcps, is_it).is_some()
            }
        };
        if kept {
            self.applied.unchanged.push(ipcp.name.clone());
        }
        kept
    }

    fn keep_member(
        &mut self,
        id: IpcpId,
        name: LocalName,
        has: &[DifName],
        wanted: Spanned<MemberSpec>,
    ) {
        let over = &wanted.get_ref().over;
        let gains = over.iter().any(|dif| !has.contains(dif));
        let loses = has.iter().any(|dif| !over.contains(dif));
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

    /// Checks the IPCPs to create together with those that stay.
    fn check(&self, core: &Core, rules: &Rules) -> Result<(), Fault> {
        let mut world: Vec<Layer> = Vec::new();
        for id in core.ipcps.ids() {
            let ipcp = &core.ipcps[id];
            if self.leaving.contains(&id) {
                continue;
            }
            let rebased = self.rebased.iter().find(|(rebased, _)| *rebased == id);
            let spec = match (rebased, &ipcp.member) {
                (Some((_, wanted)), _) => Some(wanted.get_ref()),
                (None, member) => member.as_ref().map(|member| &member.made_from),
            };
            world.push(match spec {
                Some(spec) => Layer::of_member(ipcp.name.to_string(), spec),
                None => Layer::of(ipcp),
            });
        }
        let mut world = World {
            layers: world,
            capacities: BTreeMap::new(),
        };
        self.wishes.check(&core.name, rules, &mut world)?;
        for (id, part) in &self.rebased {
            let (own, wanted) = (app_name(&core.ipcps[*id].name), part.get_ref());
            check_below(wanted, &world.layers)
                .and_then(|()| check_rules(rules, &own, &wanted.name, &wanted.over))
                .map_err(|error| of_dif(wanted, error))
                .map_err(Fault::of(part))?;
        }
        Ok(())
    }
}

/// Removes the first element that matches from a list, and returns it.
fn take<T>(list: &mut Vec<Spanned<T>>, is_meant: impl Fn(&T) -> bool) -> Option<Spanned<T>> {
    let at = list.iter().position(|part| is_meant(part.get_ref()))?;
    Some(list.remove(at))
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
