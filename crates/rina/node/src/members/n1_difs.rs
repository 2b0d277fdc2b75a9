//! The SDU capacity of N-1 DIFs, and the longest PDU that all of them carry.
//!
//! The longest PDU of a DIF is a constant that its members share, so the first member determines it
//! before the DIF starts. If an N-1 DIF is a normal DIF of which this system is not a member yet,
//! the DIF starts when this system has become a member of it.

use super::*;
use crate::ipcps::Ipcp;
use crate::sdu_capacity::{self, MaxPduError, SduCapacity, longest_pdu};

impl Core {
    /// How long SDUs may be on any N-1 flow that starts in this system in this DIF. `None` while no
    /// IPCP of this system in the DIF knows.
    fn capacity_in(&self, dif: &DifName) -> Option<SduCapacity> {
        let is_member = |ipcp: &&Ipcp| {
            let member = ipcp.member.as_ref();
            ipcp.dif == *dif && !member.is_some_and(|m| matches!(m.phase, Phase::Left(_)))
        };
        // A member that is not enrolled yet will get the configuration that another one here knows.
        let known = self.ipcps.values().filter(is_member);
        let known = known.filter_map(|ipcp| self.capacity_of(ipcp));
        known.reduce(SduCapacity::least)
    }

    /// Longest SDU of an application's flow in this IPCP's DIF, in bytes; [`usize::MAX`] if only
    /// memory limits it.
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

    /// Why an N-1 DIF cannot carry the PDUs of a member's DIF; `None` if it can, or if that is
    /// unknown.
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

    /// Determines the longest PDU of a DIF, for a new member that has the DIF's configuration from
    /// the start. Returns the N-1 DIF to wait for if its capacity is not known yet.
    ///
    /// # Errors
    /// An N-1 DIF cannot carry the configured length, or cannot carry any valid one.
    pub(super) fn resolve_max_pdu(
        &self,
        new: &MemberSpec,
        config: &mut DifConfig,
    ) -> Result<Option<DifName>, MaxPduError> {
        sdu_capacity::resolve_max_pdu(new, config, &|dif| self.capacity_in(dif))
    }

    /// Starts the members that wait for the capacity of an N-1 DIF, if it is known now.
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
                    let reason = format!("the member could not start: {what}");
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
        // Registers the names that were registered before the app existed.
        for name in ipcp.names.keys().cloned() {
            self.plane.send(Command::Register {
                ipcp: id,
                name,
                reader: None,
            });
        }
    }

    /// Records the N-1 DIFs that cannot carry the longest PDU of a member's DIF.
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

    /// Handles a change of the SDU length that an IPCP carries. Members whose PDUs do not fit stop
    /// using its DIF; members that had stopped and whose PDUs fit again request N-1 flows there.
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

    /// Makes a member use an N-1 DIF again that carries its PDUs again. N-1 flows without a
    /// neighbour end first, since they were refused as too short.
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
                // This end must not cause a request for another flow.
                used.is_dropped = true;
                used.port
            })
            .collect();
        for port in ports {
            self.deallocate_n1(port, "the N-1 DIF carries longer SDUs now");
        }
    }

    /// Longest SDU that a member may send on an N-1 flow of `lower`; 0 for no limit beyond that of
    /// the flow. A normal DIF could fragment longer SDUs. The limit avoids that, unless the
    /// member's longest PDU is unknown or requires it.
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
