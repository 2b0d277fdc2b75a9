//! Adds an N-1 DIF to a running member, which is multi-homed from then on.
//!
//! Like a joining member, it requests an N-1 flow to its DIF's name in the new N-1 DIF. It also
//! registers that name there, so the order in which two systems are extended does not matter.

use std::collections::BTreeSet;

use carina_api::control::{DifExtend, IpcpType};

use super::*;

impl Core {
    /// Adds an N-1 DIF to this system's member of a normal DIF.
    ///
    /// # Errors
    /// The member does not exist, has the N-1 DIF already, or is not allowed to use it; this system
    /// is not in the N-1 DIF; the N-1 DIF does not carry the longest PDU; or the DIF would run over
    /// itself.
    pub(crate) fn extend_dif(
        &mut self,
        name: &str,
        change: &DifExtend,
    ) -> Result<IpcpId, ErrorBody> {
        let id = self.own_member(name, change.ipcp.as_ref().map(LocalName::as_str))?;
        let Some(made_from) = self
            .ipcps
            .member_mut(id)
            .map(|member| member.made_from.clone())
        else {
            let what = format!("this system has no member of a normal DIF {name:?}");
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        };
        let via = MemberSpec {
            via: change.via.clone().or(made_from.via.clone()),
            ..made_from
        };
        self.extend_member(id, change.over.clone(), &via)?;
        Ok(id)
    }

    /// Finds this system's member of a normal DIF; `name` selects one of several.
    ///
    /// # Errors
    /// This system has no such member, or has several and `name` is `None`.
    pub(super) fn own_member(&self, dif: &str, name: Option<&str>) -> Result<IpcpId, ErrorBody> {
        let is_meant = |id: &IpcpId| {
            let ipcp = &self.ipcps[*id];
            let is_member = ipcp.member.is_some() && ipcp.dif.as_str() == dif;
            is_member && name.is_none_or(|name| ipcp.name.as_str() == name)
        };
        let meant: Vec<IpcpId> = self.ipcps.ids().into_iter().filter(is_meant).collect();
        match (&meant[..], name) {
            ([id], _) => Ok(*id),
            ([], None) => {
                let what = format!("this system has no member of a normal DIF {dif:?}");
                Err(ErrorBody::new(ErrorCode::NotFound, what))
            }
            ([], Some(name)) => {
                let what = format!("{name} is no member of a normal DIF {dif:?} in this system");
                Err(ErrorBody::new(ErrorCode::NotFound, what))
            }
            (several, _) => {
                let names: Vec<&str> = several
                    .iter()
                    .map(|id| self.ipcps[*id].name.as_str())
                    .collect();
                let what = format!(
                    "this system has several members of DIF {dif}: {}; name one of them (`ipcp`)",
                    names.join(", ")
                );
                Err(ErrorBody::new(ErrorCode::BadRequest, what))
            }
        }
    }

    /// Adds an N-1 DIF to a member, and requests an N-1 flow to the first contact of `asked` there.
    ///
    /// # Errors
    /// Those of [`Core::extend_dif`]; then nothing has changed.
    pub(crate) fn extend_member(
        &mut self,
        id: IpcpId,
        over: DifName,
        asked: &MemberSpec,
    ) -> Result<(), ErrorBody> {
        self.check_extension(id, &over)?;
        let now = Instant::now();
        let contacts = self.contacts_in(id, &over, asked);
        let Some(member) = self.ipcps.member_mut(id) else {
            return Ok(());
        };
        member.made_from.over.push(over.clone());
        let is_enrolled = member.is_enrolled();
        // A first member that has not started takes its N-1 DIFs into account when it starts.
        if member.deferred.is_none() {
            let wanted = |contact| WantedN1::new(over.clone(), contact, now);
            member.wanted_n1.extend(contacts.into_iter().map(wanted));
        }
        let name = self.ipcps[id].name.clone();
        let what = format!("the member now uses N-1 DIF {over}");
        self.journal.note(EventKind::Notice, &name, what);
        let below: Vec<IpcpId> = self.ipcps.ids();
        for below in below {
            if is_enrolled && self.ipcps.get(below).is_some_and(|ipcp| ipcp.dif == over) {
                self.register_member(id, below);
            }
        }
        self.request_due_n1_flows(now);
        Ok(())
    }

    /// The names to call in an added N-1 DIF. If this system's own IPCP there may answer to the
    /// DIF's name, these are the names of the member's neighbours.
    pub(super) fn contacts_in(
        &self,
        id: IpcpId,
        over: &DifName,
        asked: &MemberSpec,
    ) -> Vec<AppName> {
        let may_be_itself =
            |ipcp: &crate::ipcps::Ipcp| ipcp.member.is_some() || ipcp.kind == IpcpType::Loopback;
        let mut below = self.ipcps.values().filter(|ipcp| ipcp.dif == *over);
        let member = self.ipcps.member(id);
        let Some(member) = member.filter(|_| asked.via.is_none() && below.any(may_be_itself))
        else {
            return vec![asked.first_contact()];
        };
        let neighbours = member
            .n1_flows
            .values()
            .filter_map(|n1| n1.neighbour.as_ref());
        let names: BTreeSet<AppName> = neighbours.map(|name| member.name_below(name)).collect();
        names.into_iter().collect()
    }

    fn check_extension(&self, id: IpcpId, over: &DifName) -> Result<(), ErrorBody> {
        let conflict = |what: String| Err(ErrorBody::new(ErrorCode::Conflict, what));
        let Some((ipcp, member)) = self
            .ipcps
            .get(id)
            .and_then(|ipcp| Some((ipcp, ipcp.member.as_ref()?)))
        else {
            return Err(ErrorBody::new(
                ErrorCode::NotFound,
                "the IPCP no longer exists",
            ));
        };
        let dif = &ipcp.dif;
        if let Phase::Left(reason) = &member.phase {
            return conflict(format!("{} has left DIF {dif}: {reason}", ipcp.name));
        }
        if member.is_over(over) {
            return conflict(format!("DIF {dif} is over {over} already"));
        }
        let mut extended = member.made_from.clone();
        extended.over.push(over.clone());
        check_below(&extended, &layers(&self.ipcps))?;
        let over_alone = std::slice::from_ref(over);
        check_rules(&self.rules, &app_name(&ipcp.name), dif, over_alone)?;
        match self.pdu_size_conflict_of(member, over) {
            Some(what) => conflict(what),
            None => Ok(()),
        }
    }

    /// Adds the N-1 DIFs that only `wanted` has to a member, then removes those that only the
    /// member has.
    ///
    /// # Errors
    /// Those of [`Core::extend_dif`]; then the member has the same N-1 DIFs as before.
    pub(crate) fn rebase_member(
        &mut self,
        id: IpcpId,
        wanted: &MemberSpec,
    ) -> Result<(), ErrorBody> {
        let has = self
            .ipcps
            .member_mut(id)
            .map(|member| &member.made_from.over);
        let has = has.cloned().unwrap_or_default();
        let gains = wanted.over.iter().filter(|dif| !has.contains(dif));
        let mut gained = Vec::new();
        for over in gains {
            if let Err(error) = self.extend_member(id, over.clone(), wanted) {
                for over in gained {
                    self.retract_member(id, over)?;
                }
                return Err(error);
            }
            gained.push(over);
        }
        // Both have an N-1 DIF in common, so at least one is left.
        for below in has.iter().filter(|dif| !wanted.over.contains(dif)) {
            self.retract_member(id, below)?;
        }
        Ok(())
    }
}
