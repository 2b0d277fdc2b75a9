//! N-1 flows of members: asked for, accepted, put into use, asked for again.

use super::retracting::RETRACTED;
use super::*;

impl Core {
    /// Asks for N-1 flows whose time has come.
    pub fn tend_members(&mut self, now: Instant) {
        for id in self.made.clone() {
            if let Some(member) = self.member_mut(id) {
                member.drop_met_needs();
            }
            if self.due_need(id, now).is_some() {
                self.check_fit(id);
            }
            while let Some((at, dif, remote)) = self.due_need(id, now) {
                let asked = self.allocate_n1(id, at, &dif, &remote);
                if let Err(error) = asked
                    && let Some(member) = self.member_mut(id)
                {
                    let reason = format!("N-1 flow to {remote} in {dif}: {}", error.message);
                    if let Some(need) = member.needs.get_mut(at) {
                        need.put_off(&reason, false, now);
                    }
                    member.note_failure(reason);
                }
            }
        }
    }

    /// Tells members what they stand on, where that has changed: whoever reads their RIBs sees it.
    pub fn tell_n1_difs(&mut self) {
        for id in &self.made {
            let Some(ipcp) = self.ipcps.get_mut(id) else {
                continue;
            };
            let (Some(member), Carrier::Normal(shim)) = (&mut ipcp.member, &mut ipcp.carrier)
            else {
                continue;
            };
            let difs = member.n1_difs();
            if member.waiting.is_none() && difs != member.told_n1_difs {
                member.told_n1_difs.clone_from(&difs);
                shim.command(carina_ipcp::Command::N1Difs { difs });
            }
        }
    }

    pub(super) fn due_need(&self, id: IpcpId, now: Instant) -> Option<(usize, DifName, AppName)> {
        let member = self.ipcps.get(&id)?.member.as_ref()?;
        let mut needs = member.needs.iter().enumerate();
        let is_due = |(_, need): &(usize, &Need)| need.n1.is_none() && need.due <= now;
        let (at, need) = needs.find(is_due)?;
        Some((at, need.dif.clone(), need.remote.clone()))
    }

    /// When an N-1 flow is to be asked for next.
    pub fn member_deadline(&self) -> Option<Instant> {
        self.ipcps
            .values()
            .filter_map(|ipcp| ipcp.member.as_ref())
            .flat_map(|member| &member.needs)
            .filter(|need| need.n1.is_none())
            .map(|need| need.due)
            .min()
    }

    /// Asks for an N-1 flow as any application would.
    pub(super) fn allocate_n1(
        &mut self,
        upper: IpcpId,
        need: usize,
        dif: &DifName,
        remote: &AppName,
    ) -> Result<(), ErrorBody> {
        let uid = rustix::process::geteuid().as_raw();
        let spec = FlowSpec::unreliable();
        let candidates = self.candidates(uid, remote, Some(dif), &spec)?;
        let gone = || ErrorBody::new(ErrorCode::NotFound, "the IPCP is gone");
        let asking = self.ipcps.get(&upper).ok_or_else(gone)?;
        let own = app_name(&asking.name);
        let local = asking.member.as_ref().map(|member| member.name_below(&own));
        let local = local.unwrap_or(own);
        let port = self.free_port();
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms) + ANSWER_SLACK;
        let mut refusal = None;
        for ipcp in candidates {
            let member = self.member_mut(upper).ok_or_else(gone)?;
            let n1 = member.free_n1();
            member
                .uses
                .insert(n1.0, Use::new(dif.clone(), remote.clone(), port, true));
            if let Some(need) = member.needs.get_mut(need) {
                need.n1 = Some(n1);
            }
            let stage = Stage::Asked {
                conn: None,
                until,
                plug: None,
            };
            let end = n1_end(
                ipcp,
                upper,
                n1,
                (local.clone(), remote.clone()),
                spec,
                stage,
            );
            match self.ask(port, end) {
                Ok(()) => {
                    self.deadlines.insert((until, port));
                    self.pump(ipcp);
                    return Ok(());
                }
                Err(error) => {
                    refusal = Some(error);
                    if let Some(member) = self.member_mut(upper) {
                        member.uses.remove(&n1.0);
                        if let Some(need) = member.needs.get_mut(need) {
                            need.n1 = None;
                        }
                    }
                }
            }
        }
        Err(refusal.unwrap_or_else(|| crate::flows::unknown_name(remote, Some(dif))))
    }

    /// Somebody asks for a flow to a member of this system: it becomes an N-1 flow.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn accept_n1(
        &mut self,
        upper: IpcpId,
        ipcp: IpcpId,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: FlowSpec,
    ) -> Result<(), String> {
        let dif = self.ipcps.get(&ipcp).map(|ipcp| ipcp.dif.clone());
        let dif = dif.ok_or("the IPCP is gone")?;
        let member = self.member_mut(upper).ok_or("the IPCP called is gone")?;
        if !member.is_over(&dif) {
            return Err(format!("its DIF is not over {dif} here any more"));
        }
        if member.uses.len() >= N1_FLOWS_MAX {
            return Err(format!(
                "it has {N1_FLOWS_MAX} N-1 flows; that is the limit"
            ));
        }
        let n1 = member.free_n1();
        member
            .uses
            .insert(n1.0, Use::new(dif, remote.clone(), port, false));
        let stage = Stage::Accepted { answer: None };
        let names = (local.clone(), remote.clone());
        let end = n1_end(ipcp, upper, n1, names, spec, stage);
        self.ends.insert(port, end);
        self.accept(port).map_err(|error| {
            self.drop_end(port);
            if let Some(member) = self.member_mut(upper) {
                member.uses.remove(&n1.0);
            }
            error.message
        })
    }

    /// An N-1 flow is allocated, and its IPCP may use it.
    pub fn n1_is_there(&mut self, port: PortId, wiring: Wiring, is_initiator: bool) {
        let Some(end) = self.ends.get_mut(&port) else {
            return;
        };
        let Owner::Ipcp(upper, n1) = end.owner else {
            return;
        };
        if let Some(until) = end.until() {
            self.deadlines.remove(&(until, port));
        }
        end.stage = Stage::Up(Live {
            tether: None,
            channel: None,
            wiring,
            told: false,
            peer_graceful: false,
        });
        let (lower, remote) = (end.ipcp, end.remote.clone());
        let shown = format!("{} to {}", end.local, end.remote);
        let Some(below) = self.ipcps.get(&lower) else {
            return;
        };
        let offered = below.carrier.shim_ref().qos_offered();
        // What a normal DIF gives depends on the cube, and an N-1 flow asks for nothing.
        let is_reliable = below.member.is_none() && offered.loss == 0 && offered.gap == 0;
        let member = self.ipcps.get(&upper).and_then(|ipcp| ipcp.member.as_ref());
        let remote = match member {
            Some(member) => dialect::member_of(member.made_from.dialect, &remote),
            None => remote.into(),
        };
        let props = N1Properties {
            dif: below.dif.as_str().to_owned(),
            remote,
            sdu_max: self.n1_sdu_max(below, upper),
            is_reliable: is_reliable && offered.in_order,
            is_exposed: below.is_exposed(),
            is_initiator,
            cost: 1,
        };
        let shown = format!("{shown} in {}", below.dif);
        self.journal.note(EventKind::FlowAllocated, port, shown);
        let ipcp = upper;
        self.plane.send(Command::N1Up { ipcp, n1, props });
        if let Some(reason) = self
            .member_mut(upper)
            .and_then(|member| member.put_to_use(n1))
        {
            self.let_go(port, &reason);
        }
    }

    /// An N-1 flow has ended or did not come about.
    pub fn n1_ended(&mut self, upper: IpcpId, n1: N1Port, reason: &str) {
        let now = Instant::now();
        let Some(member) = self.member_mut(upper) else {
            return;
        };
        let Some(used) = member.uses.remove(&n1.0) else {
            return;
        };
        let wants_another = member.wants_another(&used);
        // What went wrong in an enrollment says more than the end of the flow that followed.
        let (is_told, is_final) = (used.failure.is_some(), used.is_final);
        let reason = match (used.failure, used.is_up) {
            (Some(failure), _) => failure,
            (None, true) => format!(
                "N-1 flow to {} in {} ended: {reason}",
                used.remote, used.dif
            ),
            (None, false) => format!("N-1 flow to {} in {}: {reason}", used.remote, used.dif),
        };
        if let Some(need) = member.needs.iter_mut().find(|need| need.n1 == Some(n1)) {
            need.put_off(&reason, is_final, now);
        } else if wants_another {
            let mut need = Need::new(used.dif, used.remote, now);
            need.put_off(&reason, is_final, now);
            member.needs.push(need);
        }
        member.drop_met_needs();
        if !is_told {
            member.note_failure(reason);
        }
    }

    /// Asks again at once for N-1 flows through an IPCP that has news.
    pub fn hurry_members(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.get(&below).map(|ipcp| ipcp.dif.clone()) else {
            return;
        };
        let now = Instant::now();
        let members = self
            .ipcps
            .values_mut()
            .filter_map(|ipcp| ipcp.member.as_mut());
        for need in members.flat_map(|member| member.needs.iter_mut()) {
            if need.dif == dif && need.n1.is_none() {
                need.due = need.due.min(now);
            }
        }
    }
}

impl Membership {
    /// An N-1 flow is there; says why it is of no use any more when that turned out while it was on
    /// its way.
    fn put_to_use(&mut self, n1: N1Port) -> Option<String> {
        let used = self.uses.get_mut(&n1.0)?;
        used.is_up = true;
        let misfit = self.unfit.get(&used.dif).filter(|_| used.is_initiator);
        let taken_away = used.is_dropped.then(|| RETRACTED.to_owned());
        taken_away.or_else(|| misfit.cloned())
    }

    /// Whether the end of this N-1 flow is a reason to ask for another.
    fn wants_another(&self, used: &Use) -> bool {
        let has_left = matches!(self.phase, Phase::Left(_));
        let is_of_use = !used.is_dropped && !self.unfit.contains_key(&used.dif);
        used.is_initiator && is_of_use && !has_left
    }
}

fn n1_end(
    ipcp: IpcpId,
    upper: IpcpId,
    n1: N1Port,
    (local, remote): (AppName, AppName),
    spec: FlowSpec,
    stage: Stage,
) -> End {
    End {
        ipcp,
        owner: Owner::Ipcp(upper, n1),
        local,
        remote,
        spec,
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id() as i32,
        mode: Mode::Ring,
        membarrier: false,
        ring_bytes: carina_api::ipc::RING_BYTES_DEFAULT as usize,
        charge: 0,
        stage,
    }
}
