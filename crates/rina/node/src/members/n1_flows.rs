//! N-1 flows of members: requested, accepted, activated, and requested again.

use super::*;
use crate::incoming_flows::IncomingError;

impl Core {
    /// Requests the N-1 flows that are due.
    pub(crate) fn request_due_n1_flows(&mut self, now: Instant) {
        if self.is_stopping() {
            return;
        }
        for id in self.ipcps.ids() {
            if let Some(member) = self.ipcps.member_mut(id) {
                member.drop_satisfied();
            }
            if self.due_n1_flow(id, now).is_some() {
                self.check_n1_difs(id);
            }
            while let Some((at, dif, remote)) = self.due_n1_flow(id, now) {
                let ipcp = &self.ipcps[id].name;
                tracing::debug!(%ipcp, %dif, %remote, "N-1 flow requested");
                let asked = self.allocate_n1(id, at, &dif, &remote);
                if let Err(error) = asked
                    && let Some(member) = self.ipcps.member_mut(id)
                {
                    let reason = format!("N-1 flow to {remote} in {dif}: {}", error.message);
                    if let Some(wanted) = member.wanted_n1.get_mut(at) {
                        wanted.postpone(&reason, false, now);
                    }
                    member.record_failure(reason);
                }
            }
        }
    }

    /// Sends changed lists of N-1 DIFs to the members' IPCPs, which show them in their RIBs.
    pub(crate) fn publish_n1_difs(&mut self) {
        for id in self.ipcps.ids() {
            let Some(ipcp) = self.ipcps.get_mut(id) else {
                continue;
            };
            let (Some(member), Process::Normal(shim)) = (&mut ipcp.member, &mut ipcp.process)
            else {
                continue;
            };
            let difs = member.n1_difs();
            if member.deferred.is_none() && difs != member.published_n1_difs {
                member.published_n1_difs.clone_from(&difs);
                shim.command(carina_ipcp::Command::N1Difs { difs });
            }
        }
    }

    pub(super) fn due_n1_flow(
        &self,
        id: IpcpId,
        now: Instant,
    ) -> Option<(usize, DifName, AppName)> {
        let member = self.ipcps.get(id)?.member.as_ref()?;
        let mut wanted_n1 = member.wanted_n1.iter().enumerate();
        let is_due = |(_, wanted): &(usize, &WantedN1)| wanted.n1.is_none() && wanted.due <= now;
        let (at, wanted) = wanted_n1.find(is_due)?;
        Some((at, wanted.dif.clone(), wanted.remote.clone()))
    }

    /// When the next request for an N-1 flow is due.
    pub(crate) fn member_deadline(&self) -> Option<Instant> {
        self.ipcps
            .values()
            .filter_map(|ipcp| ipcp.member.as_ref())
            .flat_map(|member| &member.wanted_n1)
            .filter(|wanted| wanted.n1.is_none())
            .map(|wanted| wanted.due)
            .min()
    }

    /// Requests an N-1 flow, in the same way as an application requests a flow.
    pub(super) fn allocate_n1(
        &mut self,
        upper: IpcpId,
        wanted: usize,
        dif: &DifName,
        remote: &AppName,
    ) -> Result<(), ErrorBody> {
        let uid = rustix::process::geteuid().as_raw();
        let spec = FlowSpec::unreliable();
        let candidates = self.candidates(uid, remote, Some(dif), &spec)?;
        let gone = || ErrorBody::new(ErrorCode::NotFound, "the IPCP no longer exists");
        let asking = self.ipcps.get(upper).ok_or_else(gone)?;
        let own = app_name(&asking.name);
        let local = asking.member.as_ref().map(|member| member.name_below(&own));
        let local = local.unwrap_or(own);
        let port = self.endpoints.unused_port();
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms) + ANSWER_SLACK;
        let mut refusal = None;
        for ipcp in candidates {
            let member = self.ipcps.member_mut(upper).ok_or_else(gone)?;
            let n1 = member.free_n1();
            member
                .n1_flows
                .insert(n1.0, N1Flow::new(dif.clone(), remote.clone(), port, true));
            if let Some(wanted) = member.wanted_n1.get_mut(wanted) {
                wanted.n1 = Some(n1);
            }
            let stage = Stage::Requested {
                conn: None,
                until,
                channel_end: None,
            };
            let end = n1_endpoint(
                ipcp,
                upper,
                n1,
                (local.clone(), remote.clone()),
                spec,
                stage,
            );
            match self.request_flow(port, end) {
                Ok(()) => {
                    self.dispatch_ipcp_events(ipcp);
                    return Ok(());
                }
                Err(error) => {
                    refusal = Some(error);
                    if let Some(member) = self.ipcps.member_mut(upper) {
                        member.n1_flows.remove(&n1.0);
                        if let Some(wanted) = member.wanted_n1.get_mut(wanted) {
                            wanted.n1 = None;
                        }
                    }
                }
            }
        }
        Err(refusal.unwrap_or_else(|| crate::allocation::unknown_name(remote, Some(dif))))
    }

    /// Accepts an incoming flow to a member of this system as an N-1 flow.
    ///
    /// # Errors
    /// The refusal of the operating system, or a limit.
    pub(crate) fn accept_n1(
        &mut self,
        upper: IpcpId,
        ipcp: IpcpId,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: FlowSpec,
    ) -> Result<(), IncomingError> {
        let dif = self.ipcps.dif_of(ipcp);
        let dif = dif.ok_or(IncomingError::IpcpGone)?;
        let member = self
            .ipcps
            .member_mut(upper)
            .ok_or(IncomingError::CalledGone)?;
        if !member.is_over(&dif) {
            return Err(IncomingError::NotOver(dif));
        }
        if member.n1_flows.len() >= N1_FLOWS_MAX {
            return Err(IncomingError::TooManyN1Flows(N1_FLOWS_MAX));
        }
        let n1 = member.free_n1();
        member
            .n1_flows
            .insert(n1.0, N1Flow::new(dif, remote.clone(), port, false));
        let stage = Stage::Accepted { answer: None };
        let names = (local.clone(), remote.clone());
        let end = n1_endpoint(ipcp, upper, n1, names, spec, stage);
        self.endpoints.insert(port, end);
        self.accept_incoming(port).map_err(|error| {
            self.remove_endpoint(port);
            if let Some(member) = self.ipcps.member_mut(upper) {
                member.n1_flows.remove(&n1.0);
            }
            IncomingError::System(error.message)
        })
    }

    /// Handles the allocation of an N-1 flow: its IPCP may use the flow now.
    pub(crate) fn n1_allocated(&mut self, port: PortId, data_path: DataPath, is_initiator: bool) {
        let owner = self.endpoints.get(port).map(|end| end.owner);
        let Some(FlowOwner::Ipcp(upper, n1)) = owner else {
            return;
        };
        let flow = AllocatedFlow {
            control_socket: None,
            channel: None,
            data_path,
            close_reported: false,
            peer_graceful: false,
        };
        let Some(end) = self.endpoints.allocate(port, flow) else {
            return;
        };
        let (lower, remote) = (end.ipcp, end.remote.clone());
        let shown = format!("{} to {}", end.local, end.remote);
        let Some(below) = self.ipcps.get(lower) else {
            return;
        };
        let offered = below.process.as_dyn().qos_offered();
        // Reliability in a normal DIF depends on the QoS cube, and N-1 flows request no reliable
        // cube.
        let is_reliable = below.member.is_none() && offered.loss == 0 && offered.gap == 0;
        let member = self.ipcps.member(upper);
        let remote = match member {
            Some(member) => member_of(member.made_from.dialect, &remote),
            None => remote.into(),
        };
        let props = N1Properties {
            dif: below.dif.as_str().to_owned(),
            remote,
            sdu_max: self.n1_sdu_max(below, upper),
            is_reliable: is_reliable && offered.in_order,
            is_exposed: below.is_exposed,
            is_initiator,
            cost: 1,
        };
        let shown = format!("{shown} in {}", below.dif);
        self.journal.note(EventKind::FlowAllocated, port, shown);
        let ipcp = upper;
        self.plane.send(Command::N1Up { ipcp, n1, props });
        if let Some(reason) = self
            .ipcps
            .member_mut(upper)
            .and_then(|member| member.activate(n1))
        {
            self.deallocate_n1(port, &reason);
        }
    }

    /// Handles the end of an N-1 flow, or of a request for one.
    pub(crate) fn n1_ended(&mut self, upper: IpcpId, n1: N1Port, reason: &str) {
        let now = Instant::now();
        let ipcp = self.ipcps.get(upper).map(|ipcp| ipcp.name.as_str());
        tracing::debug!(ipcp, n1 = n1.0, reason, "N-1 flow ended or not allocated");
        let Some(member) = self.ipcps.member_mut(upper) else {
            return;
        };
        let Some(used) = member.n1_flows.remove(&n1.0) else {
            return;
        };
        let wants_another = member.wants_another(&used);
        // The reason of a failed enrollment is more useful than that of the flow's end that
        // followed.
        let (is_told, is_final) = (used.failure.is_some(), used.is_final);
        let reason = match (used.failure, used.is_up) {
            (Some(failure), _) => failure,
            (None, true) => format!(
                "N-1 flow to {} in {} ended: {reason}",
                used.remote, used.dif
            ),
            (None, false) => format!("N-1 flow to {} in {}: {reason}", used.remote, used.dif),
        };
        if let Some(wanted) = member
            .wanted_n1
            .iter_mut()
            .find(|wanted| wanted.n1 == Some(n1))
        {
            wanted.postpone(&reason, is_final, now);
        } else if wants_another {
            let mut wanted = WantedN1::new(used.dif, used.remote, now);
            wanted.postpone(&reason, is_final, now);
            member.wanted_n1.push(wanted);
        }
        member.drop_satisfied();
        if !is_told {
            member.record_failure(reason);
        }
    }

    /// Makes pending requests for N-1 flows through the DIF of an IPCP due at once, because its
    /// state has changed.
    pub(crate) fn retry_n1_flows_now(&mut self, below: IpcpId) {
        let Some(dif) = self.ipcps.dif_of(below) else {
            return;
        };
        let now = Instant::now();
        let members = self
            .ipcps
            .values_mut()
            .filter_map(|ipcp| ipcp.member.as_mut());
        for wanted in members.flat_map(|member| member.wanted_n1.iter_mut()) {
            if wanted.dif == dif && wanted.n1.is_none() {
                wanted.due = wanted.due.min(now);
            }
        }
    }
}

fn n1_endpoint(
    ipcp: IpcpId,
    upper: IpcpId,
    n1: N1Port,
    (local, remote): (AppName, AppName),
    spec: FlowSpec,
    stage: Stage,
) -> Endpoint {
    Endpoint {
        ipcp,
        owner: FlowOwner::Ipcp(upper, n1),
        local,
        remote,
        spec,
        uid: rustix::process::geteuid().as_raw(),
        pid: std::process::id() as i32,
        mode: Mode::Ring,
        attached: None,
        is_detached: false,
        membarrier: false,
        ring_bytes: carina_api::ipc::RING_BYTES_DEFAULT as usize,
        charge: 0,
        stage,
    }
}
