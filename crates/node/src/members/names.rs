//! Names of members in their N-1 DIFs.

use super::*;

impl Core {
    /// Registers the members that stand over the DIF of a new IPCP.
    pub fn register_members_in(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
            return;
        };
        for id in self.made.clone() {
            let member = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref());
            if member.is_some_and(|member| member.is_enrolled() && member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
        self.hurry_members(below);
    }

    /// Registers a member in every IPCP of its N-1 DIFs.
    pub(super) fn register_below(&mut self, id: IpcpId) {
        for below in self.made.clone() {
            let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
                continue;
            };
            let member = self.ipcps.get(&id).and_then(|ipcp| ipcp.member.as_ref());
            if member.is_some_and(|member| member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
    }

    /// Registers a member's name and, unless another member has it, its DIF's.
    pub(super) fn register_member(&mut self, id: IpcpId, below: IpcpId) {
        let Some(ipcp) = self.ipcps.get(&id) else {
            return;
        };
        let (own, dif_name) = (app_name(&ipcp.name), ipcp.dif.as_str().to_owned());
        let own = match &ipcp.member {
            Some(member) => member.name_below(&own),
            None => own,
        };
        let Ok(dif_name) = AppName::new(dif_name) else {
            return;
        };
        for name in [own.clone(), dif_name] {
            match self.ipcps.get(&below).and_then(|at| at.names.get(&name)) {
                None => {}
                Some(Registrant::Ipcp(_)) => continue,
                Some(Registrant::App(_)) => {
                    let what = format!("an application has taken the name {name} below");
                    self.journal.note(EventKind::Notice, &own, what);
                    continue;
                }
            }
            if let Err(refusal) = self.register_in(below, Registrant::Ipcp(id), &name) {
                self.journal
                    .note(EventKind::Notice, &own, refusal.to_string());
            }
        }
    }

    /// Takes a member's names and N-1 flows away; another member of this system takes over the
    /// DIF's name.
    pub fn leave_below(&mut self, id: IpcpId) {
        let Some(ipcp) = self.ipcps.get(&id).filter(|ipcp| ipcp.member.is_some()) else {
            return;
        };
        let dif = ipcp.dif.clone();
        let ports: Vec<PortId> = ipcp
            .member
            .iter()
            .flat_map(|member| member.uses.values().map(|n1| n1.port))
            .collect();
        self.withdraw_names(id);
        // The app on the data plane says its goodbyes and lets go of its N-1 flows itself.
        for port in ports {
            let Some(end) = self.drop_end(port) else {
                continue;
            };
            let below = self.ipcps.get_mut(&end.ipcp).map(|ipcp| &mut ipcp.carrier);
            if !matches!(end.stage, Stage::Up(_))
                && let Some(Carrier::Loopback(shim)) = below
            {
                carina_dataplane::IpcProcess::deallocate(shim, port, "the IPCP that asked is gone");
                self.pump(end.ipcp);
            }
        }
        self.register_twins(id, &dif);
    }

    /// The other members of a DIF in this system take over its name where it is free.
    pub(super) fn register_twins(&mut self, id: IpcpId, dif: &DifName) {
        for other in self.made.clone() {
            let is_twin = |ipcp: &crate::ipcps::Ipcp| {
                ipcp.dif == *dif && ipcp.member.as_ref().is_some_and(Membership::is_enrolled)
            };
            if other != id && self.ipcps.get(&other).is_some_and(is_twin) {
                self.register_below(other);
            }
        }
    }

    pub(super) fn withdraw_names(&mut self, id: IpcpId) {
        for below in self.made.clone() {
            self.withdraw_names_at(id, below);
        }
    }

    /// Takes a member's names away in one IPCP below.
    pub(super) fn withdraw_names_at(&mut self, id: IpcpId, below: IpcpId) {
        let Some(at) = self.ipcps.get(&below) else {
            return;
        };
        let own: Vec<AppName> = at
            .names
            .iter()
            .filter(|(_, who)| **who == Registrant::Ipcp(id))
            .map(|(name, _)| name.clone())
            .collect();
        for name in own {
            self.unregister_in(below, &name);
        }
    }
}
