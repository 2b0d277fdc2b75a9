//! Removes an N-1 DIF from a running member: its N-1 flows there end, the others continue.
//!
//! The member informs its neighbours there before the flows end, so that they reroute at once.

use super::*;

impl Core {
    /// Removes an N-1 DIF from this system's member of a normal DIF.
    ///
    /// # Errors
    /// The member does not exist, does not have the N-1 DIF, or has no other one.
    pub(crate) fn retract_dif(
        &mut self,
        name: &str,
        below: &str,
        ipcp: Option<&str>,
    ) -> Result<IpcpId, ErrorBody> {
        let id = self.own_member(name, ipcp)?;
        let below = DifName::new(below)
            .map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()))?;
        self.retract_member(id, &below)?;
        Ok(id)
    }

    /// Like [`Core::retract_dif`], for a member given by its id.
    ///
    /// # Errors
    /// Those of [`Core::retract_dif`]; then nothing has changed.
    pub(super) fn retract_member(&mut self, id: IpcpId, below: &DifName) -> Result<(), ErrorBody> {
        self.check_retraction(id, below)?;
        let Some(member) = self.ipcps.member_mut(id) else {
            return Ok(());
        };
        member.made_from.over.retain(|dif| dif != below);
        member.wanted_n1.retain(|wanted| wanted.dif != *below);
        member.unusable.remove(below);
        let mut given_up = Vec::new();
        for (n1, used) in &mut member.n1_flows {
            if used.dif == *below {
                // This end must not cause a request for another flow.
                used.is_dropped = true;
                // A flow that is still being allocated ends as soon as it is allocated.
                given_up.extend(used.is_up.then_some(N1Port(*n1)));
            }
        }
        let name = self.ipcps[id].name.clone();
        let what = format!("the member no longer uses N-1 DIF {below}");
        self.journal.note(EventKind::Notice, &name, what);
        self.unregister_names_in(id, below);
        if let Some(Process::Normal(shim)) = self.ipcps.get(id).map(|ipcp| &ipcp.process) {
            for n1 in given_up {
                let reason = RETRACTED.to_owned();
                shim.command(carina_ipcp::Command::GiveUpN1 { n1, reason });
            }
        }
        self.start_deferred_members();
        Ok(())
    }

    fn check_retraction(&self, id: IpcpId, below: &DifName) -> Result<(), ErrorBody> {
        let Some((dif, member)) = self
            .ipcps
            .get(id)
            .and_then(|ipcp| Some((&ipcp.dif, ipcp.member.as_ref()?)))
        else {
            return Err(ErrorBody::new(
                ErrorCode::NotFound,
                "the IPCP no longer exists",
            ));
        };
        let over: Vec<&str> = member.made_from.over.iter().map(DifName::as_str).collect();
        if !member.is_over(below) {
            let what = format!(
                "DIF {dif} is not over {below}; it is over {}",
                over.join(", ")
            );
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        }
        if over.len() == 1 {
            let what = format!(
                "{below} is the only N-1 DIF of DIF {dif} here; extend the DIF over another one \
                 first, or leave the DIF"
            );
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        }
        Ok(())
    }

    /// Removes a member's registrations in one N-1 DIF. Another member of this system, if any,
    /// registers the DIF's name there.
    fn unregister_names_in(&mut self, id: IpcpId, below: &DifName) {
        let Some(dif) = self.ipcps.dif_of(id) else {
            return;
        };
        for at in self.ipcps.ids() {
            if self.ipcps.get(at).is_some_and(|ipcp| ipcp.dif == *below) {
                self.unregister_names_at(id, at);
            }
        }
        self.hand_over_dif_name(id, &dif);
    }
}
