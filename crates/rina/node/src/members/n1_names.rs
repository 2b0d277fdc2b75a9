//! Names of members in their N-1 DIFs.

use carina_dialects::DIALECTS;
use carina_ipcp::ConnectReader;

use super::*;

impl Core {
    /// Registers members in a new IPCP, if its DIF is one of their N-1 DIFs.
    pub(crate) fn register_members_in(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.dif_of(below) else {
            return;
        };
        for id in self.ipcps.ids() {
            let member = self.ipcps.member(id);
            if member.is_some_and(|member| member.is_enrolled() && member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
        self.retry_n1_flows_now(below);
    }

    /// Registers a member in every IPCP of its N-1 DIFs.
    pub(super) fn register_below(&mut self, id: IpcpId) {
        for below in self.ipcps.ids() {
            let Some(dif) = self.ipcps.dif_of(below) else {
                continue;
            };
            let member = self.ipcps.member(id);
            if member.is_some_and(|member| member.is_over(&dif)) {
                self.register_member(id, below);
            }
        }
    }

    /// Registers a member's name in one IPCP and, unless another member has registered it, the name
    /// of the member's DIF.
    pub(super) fn register_member(&mut self, id: IpcpId, below: IpcpId) {
        let Some(ipcp) = self.ipcps.get(id) else {
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
            match self.ipcps.get(below).and_then(|at| at.names.get(&name)) {
                None => {}
                Some(Registrant::Ipcp(_)) => continue,
                Some(Registrant::App(_)) => {
                    let what = format!(
                        "an application has registered the name {name} in the \
                        N-1 DIF"
                    );
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

    /// The reader that recognizes the first PDU of the member's peers, in the format of the
    /// member's DIF.
    pub(crate) fn connect_reader(&self, id: IpcpId) -> Option<ConnectReader> {
        let member = self.ipcps.member(id)?;
        ConnectReader::new(DIALECTS, member.dialect, member.known_config())
    }

    /// Removes a member's registrations and N-1 flows. Another member of this system, if any,
    /// registers the DIF's name.
    pub(crate) fn detach_from_n1_difs(&mut self, id: IpcpId) {
        let Some(ipcp) = self.ipcps.get(id).filter(|ipcp| ipcp.member.is_some()) else {
            return;
        };
        let dif = ipcp.dif.clone();
        let ports: Vec<PortId> = ipcp
            .member
            .iter()
            .flat_map(|member| member.n1_flows.values().map(|n1| n1.port))
            .collect();
        self.unregister_names(id);
        // The member's app on the data plane informs its peers and releases its N-1 flows itself.
        for port in ports {
            let Some(end) = self.remove_endpoint(port) else {
                continue;
            };
            let below = self.ipcps.get_mut(end.ipcp);
            let below = below.map(|ipcp| ipcp.process.as_dyn_mut());
            if !matches!(end.stage, Stage::Allocated(_))
                && let Some(shim) = below.filter(|shim| shim.is_local())
            {
                shim.deallocate(port, "the calling IPCP no longer exists");
                self.dispatch_ipcp_events(end.ipcp);
            }
        }
        self.hand_over_dif_name(id, &dif);
    }

    /// Lets the other members of a DIF in this system register the DIF's name where it is free.
    pub(super) fn hand_over_dif_name(&mut self, id: IpcpId, dif: &DifName) {
        for other in self.ipcps.ids() {
            let is_other_member = |ipcp: &crate::ipcps::Ipcp| {
                ipcp.dif == *dif && ipcp.member.as_ref().is_some_and(Membership::is_enrolled)
            };
            if other != id && self.ipcps.get(other).is_some_and(is_other_member) {
                self.register_below(other);
            }
        }
    }

    pub(super) fn unregister_names(&mut self, id: IpcpId) {
        for below in self.ipcps.ids() {
            self.unregister_names_at(id, below);
        }
    }

    /// Removes a member's registrations in one IPCP below it.
    pub(super) fn unregister_names_at(&mut self, id: IpcpId, below: IpcpId) {
        let Some(at) = self.ipcps.get(below) else {
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
