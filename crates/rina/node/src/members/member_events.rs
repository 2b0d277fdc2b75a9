//! Handles the events of members: enrollment, departure, neighbours, requests for N-1 flows.

use super::*;

impl Core {
    /// Handles an event of a normal IPCP.
    pub(crate) fn on_member(&mut self, id: IpcpId, event: MemberEvent) {
        let Some(name) = self.ipcps.get(id).map(|ipcp| ipcp.name.clone()) else {
            return;
        };
        match event {
            MemberEvent::Enrolled { address, config } => self.on_enrolled(id, address.0, config),
            MemberEvent::EnrollFailed { n1, reason } => {
                self.journal.note(EventKind::EnrollFailed, &name, &reason);
                self.enroll_failed(id, n1, &reason, false);
            }
            MemberEvent::EnrollRefused { n1, reason } => {
                self.journal.note(EventKind::EnrollFailed, &name, &reason);
                self.enroll_failed(id, n1, &reason, true);
            }
            MemberEvent::Left { reason } => self.on_left(id, reason),
            MemberEvent::NeighbourUp {
                name: neighbour,
                n1,
                ..
            } => {
                self.journal.note(EventKind::NeighbourUp, &name, &neighbour);
                let Some(member) = self.ipcps.member_mut(id) else {
                    return;
                };
                member.wanted_n1.retain(|wanted| wanted.n1 != Some(n1));
                if let Some(used) = member.n1_flows.get_mut(&n1.0) {
                    used.neighbour = AppName::new(neighbour).ok();
                }
                member.drop_satisfied();
            }
            MemberEvent::NeighbourDown {
                name: neighbour,
                n1,
                reason,
            } => {
                let what = format!("{neighbour}: {reason}");
                self.journal.note(EventKind::NeighbourDown, &name, what);
                if let Some(used) = self
                    .ipcps
                    .member_mut(id)
                    .and_then(|m| m.n1_flows.get_mut(&n1.0))
                {
                    used.lose_neighbour();
                }
            }
            MemberEvent::NeedN1 { dif, remote } => self.need_n1(id, dif, remote),
            MemberEvent::Registered {
                name: registered,
                result,
            } => {
                if let Ok(registered) = AppName::new(registered) {
                    self.on_registered(id, &registered, result.map_err(String::from));
                }
            }
            MemberEvent::DropN1 { n1, .. } => {
                if let Some(used) = self
                    .ipcps
                    .member_mut(id)
                    .and_then(|m| m.n1_flows.get_mut(&n1.0))
                {
                    used.is_dropped = true;
                }
            }
            MemberEvent::Answer { id, result } => self.rib.answer(id, result.map_err(String::from)),
            MemberEvent::Notice { text } => self.journal.note(EventKind::Notice, &name, text),
            // Names and flows are reported by events that are common to all IPCPs.
            MemberEvent::Reachable { .. }
            | MemberEvent::Unreachable { .. }
            | MemberEvent::Incoming { .. }
            | MemberEvent::Allocated { .. }
            | MemberEvent::Closed { .. } => {}
        }
    }

    fn on_enrolled(&mut self, id: IpcpId, address: u64, config: DifConfig) {
        let Some(ipcp) = self.ipcps.get_mut(id) else {
            return;
        };
        ipcp.state = LinkState::Up;
        ipcp.reason = None;
        let what = format!("address {address} in DIF {}", ipcp.dif);
        self.journal.note(EventKind::Enrolled, &ipcp.name, what);
        if let Some(member) = &mut ipcp.member {
            member.phase = Phase::Enrolled { address };
            member.config = Some(config);
            member.last_error = None;
        }
        self.check_n1_difs(id);
        self.register_below(id);
        self.retry_n1_flows_now(id);
        self.start_deferred_members();
    }

    /// Handles a failed attempt to join: deallocates its N-1 flow, and requests another one later.
    /// That also applies after a permanent refusal (`is_final`), because its cause may be removed
    /// at the other member.
    fn enroll_failed(&mut self, id: IpcpId, n1: N1Port, reason: &str, is_final: bool) {
        let Some(member) = self.ipcps.member_mut(id) else {
            return;
        };
        let Some(used) = member.n1_flows.get_mut(&n1.0) else {
            return;
        };
        let what = format!("enrolling with {} in {}: {reason}", used.remote, used.dif);
        used.failure = Some(what.clone());
        used.is_final = is_final;
        let port = used.port;
        member.record_refusal(n1, what, is_final);
        self.deallocate_n1(port, ENROLL_FAILED);
    }

    /// Deallocates an N-1 flow, or withdraws the request for it.
    pub(super) fn deallocate_n1(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.endpoints.get(port) else {
            return;
        };
        let ipcp = end.ipcp;
        match self
            .endpoints
            .get_mut(port)
            .and_then(|end| Some(end.allocated()?.data_path))
        {
            Some(DataPath::Relayed { relay, .. }) => self.plane.send(Command::Deallocate {
                port: relay,
                reason: reason.into(),
            }),
            _ => {
                if let Some(ipcp) = self.ipcps.get_mut(ipcp) {
                    ipcp.process.as_dyn_mut().deallocate(port, reason);
                }
            }
        }
    }

    fn on_left(&mut self, id: IpcpId, reason: String) {
        let Some(ipcp) = self.ipcps.get_mut(id) else {
            return;
        };
        ipcp.state = LinkState::Down;
        ipcp.peer_names.clear();
        self.journal.note(EventKind::LeftDif, &ipcp.name, &reason);
        ipcp.reason = Some(reason.clone());
        if let Some(member) = &mut ipcp.member {
            member.phase = Phase::Left(reason);
            member.wanted_n1.clear();
        }
        self.unregister_names(id);
    }

    /// Records that the IPCP wants an N-1 flow.
    fn need_n1(&mut self, id: IpcpId, dif: String, remote: String) {
        let (Ok(dif), Ok(remote)) = (DifName::new(dif), AppName::new(remote)) else {
            return;
        };
        let Some(member) = self.ipcps.member_mut(id) else {
            return;
        };
        if member.unusable.contains_key(&dif) || !member.is_over(&dif) {
            return;
        }
        let remote = if remote.as_str() == member.made_from.name.as_str() {
            remote
        } else {
            member.name_below(&remote)
        };
        let is_same = |wanted: &WantedN1| wanted.dif == dif && wanted.remote == remote;
        if !member.wanted_n1.iter().any(is_same) {
            member
                .wanted_n1
                .push(WantedN1::new(dif, remote, Instant::now()));
        }
        self.request_due_n1_flows(Instant::now());
    }
}

const ENROLL_FAILED: &str = "enrollment failed";
