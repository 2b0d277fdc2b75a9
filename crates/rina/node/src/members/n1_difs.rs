//! The capacity of N-1 DIFs, and the longest PDU that fits through all of them.
//!
//! The longest PDU of a DIF is one of the constants that its members agree on, so the first member
//! resolves it before the DIF begins. A DIF over normal DIFs of which this system is no member yet
//! begins when it is.

use super::*;
use crate::ipcps::Ipcp;
use crate::sdu_capacity::{self, MaxPduError, SduCapacity, longest_pdu};

impl Core {
    /// What every N-1 flow in this DIF takes that begins in this system; `None` while no member of
    /// it here knows.
    fn capacity_in(&self, dif: &DifName) -> Option<SduCapacity> {
        let is_there = |ipcp: &&Ipcp| {
            let member = ipcp.member.as_ref();
            ipcp.dif == *dif && !member.is_some_and(|m| matches!(m.phase, Phase::Left(_)))
        };
        // A member that is not enrolled yet will learn what another of the DIF knows.
        let known = self.ipcps.values().filter(is_there);
        let known = known.filter_map(|ipcp| self.capacity_of(ipcp));
        known.reduce(SduCapacity::least)
    }

    /// Longest SDU in bytes that a flow of an application takes in this IPCP's DIF; [`usize::MAX`]
    /// where only memory limits it.
    pub(crate) fn longest_sdu(&self, ipcp: &Ipcp) -> usize {
        match &ipcp.member {
            Some(_) => self
                .capacity_of(ipcp)
                .map_or(usize::MAX, |capacity| capacity.whole),
            None => {
                let offered = ipcp.process.as_dyn().qos_offered();
                offered.sdu_bytes_max.unwrap_or(usize::MAX)
            }
        }
    }

    fn capacity_of(&self, ipcp: &Ipcp) -> Option<SduCapacity> {
        let is_exposed = ipcp.is_exposed;
        let Some(member) = &ipcp.member else {
            let offered = ipcp.process.as_dyn().qos_offered().sdu_bytes_max;
            let whole = ipcp.piece_bytes_max.min(offered.unwrap_or(usize::MAX));
            let uncut = whole;
            return Some(SduCapacity {
                whole,
                uncut,
                is_exposed,
            });
        };
        let config = member.known_config()?;
        let max_pdu = match config.max_pdu {
            0 => {
                let capacity = |dif: &DifName| self.capacity_in(dif);
                longest_pdu(&member.made_from.over, config, &capacity).ok()?
            }
            known => known,
        };
        Some(SduCapacity::of_member(
            config,
            member.dialect,
            max_pdu,
            is_exposed,
        ))
    }

    /// Why a member's DIF cannot use an N-1 DIF, when that is known.
    pub(super) fn pdu_size_conflict_of(
        &self,
        member: &Membership,
        below: &DifName,
    ) -> Option<String> {
        let config = member.known_config()?;
        if config.max_pdu == 0 {
            return None;
        }
        let capacity = self.capacity_in(below)?;
        capacity.conflict(&member.made_from.name, config.max_pdu, below)
    }

    /// Resolves the longest PDU of a DIF that begins here; gives the N-1 DIF to wait for, where
    /// it is not known yet.
    ///
    /// # Errors
    /// What was configured does not go through one of the N-1 DIFs, or nothing does.
    pub(super) fn resolve_max_pdu(
        &self,
        new: &MemberSpec,
        config: &mut DifConfig,
    ) -> Result<Option<DifName>, MaxPduError> {
        sdu_capacity::resolve_max_pdu(new, config, &|dif| self.capacity_in(dif))
    }

    /// Starts the members that have waited for this.
    pub(super) fn start_deferred_members(&mut self) {
        for id in self.ipcps.ids() {
            let Some(mut deferred) = self.ipcps.member_mut(id).and_then(|m| m.deferred.take())
            else {
                continue;
            };
            let Some(member) = self.ipcps.member(id) else {
                continue;
            };
            let mut config = deferred.new.config.dif_config.take().unwrap_or_default();
            let resolved = self.resolve_max_pdu(&member.made_from, &mut config);
            deferred.new.config.dif_config = Some(config.clone());
            match resolved {
                Ok(None) => self.start_member(id, deferred.new, config),
                Ok(Some(dif)) => {
                    deferred.dif = dif;
                    if let Some(member) = self.ipcps.member_mut(id) {
                        member.deferred = Some(deferred);
                    }
                }
                Err(what) => {
                    let reason = format!("it could not begin: {what}");
                    self.on_member(id, MemberEvent::Left { reason });
                }
            }
        }
    }

    fn start_member(&mut self, id: IpcpId, new: Box<NormalBuilder>, config: DifConfig) {
        self.plane.add_ipcp(id, new);
        let Some(ipcp) = self.ipcps.get_mut(id) else {
            return;
        };
        if let Some(member) = &mut ipcp.member {
            member.given = Some(config);
        }
        if let Process::Normal(shim) = &mut ipcp.process {
            shim.begin();
            shim.command(carina_ipcp::Command::Bootstrap);
        }
        // Names that were registered before the app existed are registered now.
        for name in ipcp.names.keys().cloned() {
            self.plane.send(Command::Register {
                ipcp: id,
                name,
                reader: None,
            });
        }
    }

    /// Finds the N-1 DIFs that cannot carry the longest PDU of a DIF, and notes them.
    pub(super) fn check_n1_difs(&mut self, id: IpcpId) {
        let Some(ipcp) = self.ipcps.get(id) else {
            return;
        };
        let Some((member, config)) = ipcp
            .member
            .as_ref()
            .and_then(|member| Some((member, member.known_config()?)))
        else {
            return;
        };
        let is_new = |dif: &&DifName| !member.unusable.contains_key(*dif);
        let unusable: Vec<(DifName, String)> = member
            .made_from
            .over
            .iter()
            .filter(is_new)
            .filter_map(|dif| {
                let capacity = self.capacity_in(dif)?;
                let what = capacity.conflict(&ipcp.dif, config.max_pdu, dif)?;
                Some((dif.clone(), what))
            })
            .collect();
        let name = ipcp.name.clone();
        for (dif, what) in unusable {
            self.journal.note(EventKind::Notice, &name, &what);
            if let Some(member) = self.ipcps.member_mut(id) {
                member.wanted_n1.retain(|wanted| wanted.dif != dif);
                member.unusable.insert(dif, what);
            }
        }
    }

    /// An IPCP carries SDUs of another length from here on: members for which it is too short
    /// leave its DIF alone, and those that had done so ask there again when it does for them.
    pub(crate) fn recheck_members_over(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.dif_of(below) else {
            return;
        };
        for id in self.ipcps.ids() {
            let member = self.ipcps.member(id);
            let Some(member) = member.filter(|member| member.is_over(&dif)) else {
                continue;
            };
            if !member.unusable.contains_key(&dif) {
                self.check_n1_difs(id);
            } else if self.pdu_size_conflict_of(member, &dif).is_none() {
                let made_from = member.made_from.clone();
                let contacts = self.contacts_in(id, &dif, &made_from);
                self.resume_in(id, &dif, contacts);
            }
        }
        self.retry_n1_flows_now(below);
        self.request_due_n1_flows(Instant::now());
    }

    /// A member asks again in an N-1 DIF that fits again. N-1 flows without a neighbour were
    /// refused as too short and end first.
    fn resume_in(&mut self, id: IpcpId, dif: &DifName, contacts: Vec<AppName>) {
        let now = Instant::now();
        let Some(member) = self.ipcps.member_mut(id) else {
            return;
        };
        member.unusable.remove(dif);
        let wanted = |contact| WantedN1::new(dif.clone(), contact, now);
        member.wanted_n1.extend(contacts.into_iter().map(wanted));
        let n1_flows = member.n1_flows.values_mut();
        let useless = n1_flows.filter(|used| used.dif == *dif && used.is_up);
        let useless = useless.filter(|used| used.neighbour.is_none());
        let ports: Vec<PortId> = useless
            .map(|used| {
                // Its end is no reason to ask for another.
                used.is_dropped = true;
                used.port
            })
            .collect();
        for port in ports {
            self.deallocate_n1(port, "the N-1 DIF carries longer SDUs now");
        }
    }

    /// Longest PDU that a member may be given through an N-1 flow of `lower`; 0 for whatever the
    /// flow takes at a time. A normal DIF cuts what is too long for one of its PDUs, but is only
    /// made to where that was configured.
    pub(super) fn n1_sdu_max(&self, lower: &Ipcp, upper: IpcpId) -> usize {
        if lower.member.is_none() {
            return 0;
        }
        let Some(capacity) = self.capacity_of(lower) else {
            return 0;
        };
        let upper = self.ipcps.member(upper);
        let config = upper.and_then(Membership::known_config);
        let fits = config.is_some_and(|c| c.max_pdu != 0 && c.max_pdu as usize <= capacity.uncut);
        match (fits, capacity.whole) {
            (true, _) => capacity.uncut,
            (false, usize::MAX) => 0,
            (false, whole) => whole,
        }
    }
}
