//! What a normal IPCP says of its membership, and what becomes of it.

use super::*;

impl Membership {
    /// Takes note of an attempt that was refused, and whether for good: at once, not when its N-1
    /// flow has ended, for whoever sees the failure before would take it for one that passes.
    pub(super) fn note_refusal(&mut self, n1: N1Port, reason: String, is_final: bool) {
        if let Some(need) = self.needs.iter_mut().find(|need| need.n1 == Some(n1)) {
            need.is_final = is_final;
        }
        self.note_failure(reason);
    }
}

impl Core {
    /// Acts on what a normal IPCP says.
    pub fn on_member(&mut self, id: IpcpId, event: Told) {
        let Some(name) = self.ipcps.get(&id).map(|ipcp| ipcp.name.clone()) else {
            return;
        };
        match event {
            Told::Enrolled { address, config } => self.on_enrolled(id, address.0, config),
            Told::EnrollFailed { n1, reason } => {
                self.journal.note(EventKind::EnrollFailed, &name, &reason);
                self.enroll_failed(id, n1, &reason, false);
            }
            Told::EnrollRefused { n1, reason } => {
                self.journal.note(EventKind::EnrollFailed, &name, &reason);
                self.enroll_failed(id, n1, &reason, true);
            }
            Told::Left { reason } => self.on_left(id, reason),
            Told::NeighbourUp {
                name: neighbour,
                n1,
                ..
            } => {
                self.journal.note(EventKind::NeighbourUp, &name, &neighbour);
                let Some(member) = self.member_mut(id) else {
                    return;
                };
                member.needs.retain(|need| need.n1 != Some(n1));
                if let Some(used) = member.uses.get_mut(&n1.0) {
                    used.neighbour = AppName::new(neighbour).ok();
                }
                member.drop_met_needs();
            }
            Told::NeighbourDown {
                name: neighbour,
                n1,
                reason,
            } => {
                let what = format!("{neighbour}: {reason}");
                self.journal.note(EventKind::NeighbourDown, &name, what);
                if let Some(used) = self.member_mut(id).and_then(|m| m.uses.get_mut(&n1.0)) {
                    used.neighbour = None;
                }
            }
            Told::NeedN1 { dif, remote } => self.need_n1(id, dif, remote),
            Told::Registered {
                name: registered,
                result,
            } => {
                if let Ok(registered) = AppName::new(registered) {
                    self.on_registered(id, &registered, result);
                }
            }
            Told::DropN1 { n1, .. } => {
                if let Some(used) = self.member_mut(id).and_then(|m| m.uses.get_mut(&n1.0)) {
                    used.is_dropped = true;
                }
            }
            Told::Answer { id, result } => self.rib.answer(id, result),
            Told::Notice { text } => self.journal.note(EventKind::Notice, &name, text),
            // Names and flows come as the events of every IPCP.
            Told::Reachable { .. }
            | Told::Unreachable { .. }
            | Told::Incoming { .. }
            | Told::Allocated { .. }
            | Told::Closed { .. } => {}
        }
    }

    fn on_enrolled(&mut self, id: IpcpId, address: u64, config: DifConfig) {
        let Some(ipcp) = self.ipcps.get_mut(&id) else {
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
        self.check_fit(id);
        self.register_below(id);
        self.hurry_members(id);
        self.start_waiting_members();
    }

    /// An attempt to join has failed: its N-1 flow is let go, and another is asked for later; also
    /// after a refusal for a reason that stays, for somebody may set right what is wrong there.
    fn enroll_failed(&mut self, id: IpcpId, n1: N1Port, reason: &str, is_final: bool) {
        let Some(member) = self.member_mut(id) else {
            return;
        };
        let Some(used) = member.uses.get_mut(&n1.0) else {
            return;
        };
        let what = format!("enrolling with {} in {}: {reason}", used.remote, used.dif);
        used.failure = Some(what.clone());
        used.is_final = is_final;
        let port = used.port;
        member.note_refusal(n1, what, is_final);
        self.let_go(port, ENROLL_FAILED);
    }

    /// Ends an N-1 flow, or the wish for it.
    pub(super) fn let_go(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.ends.get(&port) else {
            return;
        };
        let ipcp = end.ipcp;
        match self
            .ends
            .get_mut(&port)
            .and_then(|end| Some(end.live()?.wiring))
        {
            Some(Wiring::Relayed { relay, .. }) => self.plane.send(Command::Deallocate {
                port: relay,
                reason: reason.into(),
            }),
            _ => {
                if let Some(ipcp) = self.ipcps.get_mut(&ipcp) {
                    ipcp.carrier.shim().deallocate(port, reason);
                }
            }
        }
    }

    fn on_left(&mut self, id: IpcpId, reason: String) {
        let Some(ipcp) = self.ipcps.get_mut(&id) else {
            return;
        };
        ipcp.state = LinkState::Down;
        ipcp.peer_names.clear();
        self.journal.note(EventKind::LeftDif, &ipcp.name, &reason);
        ipcp.reason = Some(reason.clone());
        if let Some(member) = &mut ipcp.member {
            member.phase = Phase::Left(reason);
            member.needs.clear();
        }
        self.withdraw_names(id);
    }

    /// The IPCP wants an N-1 flow.
    fn need_n1(&mut self, id: IpcpId, dif: String, remote: String) {
        let (Ok(dif), Ok(remote)) = (DifName::new(dif), AppName::new(remote)) else {
            return;
        };
        let Some(member) = self.member_mut(id) else {
            return;
        };
        if member.unfit.contains_key(&dif) || !member.is_over(&dif) {
            return;
        }
        let remote = match remote.as_str() == member.made_from.name.as_str() {
            true => remote,
            false => member.name_below(&remote),
        };
        let is_same = |need: &Need| need.dif == dif && need.remote == remote;
        if !member.needs.iter().any(is_same) {
            member.needs.push(Need::new(dif, remote, Instant::now()));
        }
        self.tend_members(Instant::now());
    }
}

const ENROLL_FAILED: &str = "enrollment failed";
