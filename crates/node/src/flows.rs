//! Flows that are asked for here: which DIF carries them, and what became of them. Those that come
//! are in `offers`.

use std::time::{Duration, Instant};

use carina_api::control::{EventKind, LinkState};
use carina_api::ipc::{Mode, Request, ring_bytes_checked};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, PortId};
use carina_dataplane::FlowRequest;

use crate::apps::{denied, refused};
use crate::conns::{ConnId, Role};
use crate::core::{Core, Token};
use crate::ends::{End, Owner, Stage};
use crate::ipcps::Carrier;
use crate::rules::Action;

impl Core {
    /// Starts an allocation: the first DIF that reaches the name, allows it and meets the
    /// specification is asked.
    pub fn allocate(&mut self, id: ConnId, request: Request) -> Result<(), ErrorBody> {
        let Request::Allocate {
            local,
            remote,
            dif,
            spec,
            mode,
            membarrier,
            ring_bytes,
            ..
        } = request
        else {
            return Ok(());
        };
        let Some(conn) = self.conns.get(&id) else {
            return Ok(());
        };
        let (uid, pid) = (conn.peer.uid, conn.peer.pid);
        spec.check()
            .map_err(|what| ErrorBody::new(ErrorCode::BadRequest, what))?;
        let ring_bytes = ring_bytes_checked(ring_bytes)?;
        let candidates = self.candidates(uid, &remote, dif.as_ref(), &spec)?;
        let charge = if mode == Mode::Ring {
            2 * ring_bytes as u64
        } else {
            0
        };
        self.charge(uid, charge)?;
        let port = self.free_port();
        // A remote system has its own limit for the answer; ours only covers its silence.
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms) + ANSWER_SLACK;
        let mut refusal = None;
        for ipcp in candidates {
            let stage = Stage::Asked {
                conn: Some(id),
                until,
                plug: None,
            };
            let (local, remote) = (local.clone(), remote.clone());
            let end = End {
                ipcp,
                owner: Owner::App,
                local,
                remote,
                spec,
                uid,
                pid,
                mode,
                membarrier,
                ring_bytes,
                charge,
                stage,
            };
            match self.ask(port, end) {
                Ok(()) => {
                    self.deadlines.insert((until, port));
                    if let Some(conn) = self.conns.get_mut(&id) {
                        conn.role = Role::Asking(port);
                    }
                    self.pump(ipcp);
                    return Ok(());
                }
                Err(error) => refusal = Some(error),
            }
        }
        self.discharge(uid, charge);
        Err(refusal.unwrap_or_else(|| unknown_name(&remote, dif.as_ref())))
    }

    /// IPCPs to ask, in order; a refusal when there is none, with the reason that goes deepest.
    pub fn candidates(
        &self,
        uid: u32,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Vec<IpcpId>, ErrorBody> {
        let (mut found, mut refusal, mut members) = (Vec::new(), None, 0);
        let mut unasked = None;
        // Those that know the name, before those that would have to ask for it.
        let mut possible = Vec::new();
        for id in self.search_order() {
            let ipcp = &self.ipcps[&id];
            if dif.is_some_and(|dif| ipcp.dif != *dif) {
                continue;
            }
            members += 1;
            if dif.is_some() && ipcp.state == LinkState::Down {
                refusal.get_or_insert_with(|| down(ipcp));
            }
            let shim = ipcp.carrier.shim_ref();
            let is_known = shim.reaches(remote);
            if !is_known && !shim.may_reach(remote) {
                continue;
            }
            if !self
                .rules
                .allow(uid, Action::Allocate, remote.as_str(), ipcp.dif.as_str())
            {
                refusal = Some(denied(uid, "reach", remote, Some(&ipcp.dif)));
            } else if let Err(what) = shim.qos_offered().meets(spec) {
                let what = format!(
                    "DIF {} cannot meet the flow specification: {what}",
                    ipcp.dif
                );
                // Nobody has said that the name is there, where one would have to ask for it.
                match is_known || dif.is_some() {
                    true => refusal = Some(ErrorBody::new(ErrorCode::SpecNotMet, what)),
                    false => unasked = unasked.or(Some(what)),
                }
            } else if is_known {
                found.push(id);
            } else {
                possible.push(id);
            }
        }
        found.append(&mut possible);
        match (found.is_empty(), dif) {
            (false, _) => Ok(found),
            (true, Some(dif)) if members == 0 => Err(self.unknown_dif(dif)),
            (true, _) => Err(refusal.unwrap_or_else(|| {
                let mut unknown = unknown_name(remote, dif);
                if let Some(why) = unasked {
                    unknown.message += &format!("; not asked for where it might be: {why}");
                }
                unknown
            })),
        }
    }

    /// Asks one IPCP; the end is kept when it was asked.
    pub fn ask(&mut self, port: PortId, mut end: End) -> Result<(), ErrorBody> {
        let (id, dif) = (end.ipcp, self.ipcps[&end.ipcp].dif.clone());
        let call = FlowRequest {
            port,
            local: end.local.clone(),
            remote: end.remote.clone(),
            spec: end.spec,
        };
        let to_plane = match &self.ipcps[&id].carrier {
            Carrier::Loopback(_) => None,
            _ => {
                let (plug, to_plane) = self.make_plug(&end)?;
                if let Stage::Asked { plug: slot, .. } = &mut end.stage {
                    *slot = Some(plug);
                }
                Some(to_plane)
            }
        };
        let Some(ipcp) = self.ipcps.get_mut(&id) else {
            return Ok(());
        };
        let shim = ipcp.carrier.shim();
        shim.allocate(call, to_plane)
            .map_err(|refusal| refused(refusal, &dif))?;
        self.ends.insert(port, end);
        Ok(())
    }

    /// Takes an allocation back that has not been answered.
    pub fn withdraw(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.drop_end(port) else {
            return;
        };
        if let Some(ipcp) = self.ipcps.get_mut(&end.ipcp) {
            ipcp.carrier.shim().deallocate(port, reason);
        }
        self.pump(end.ipcp);
    }

    /// The answer to an allocation.
    pub fn on_allocated(&mut self, port: PortId, result: Result<(), String>) {
        let Some(end) = self.ends.get_mut(&port) else {
            // Withdrawn meanwhile; a shim that said yes after that is told by `withdraw`.
            return;
        };
        let Stage::Asked { conn, plug, .. } = &mut end.stage else {
            return;
        };
        let (conn, plug, ipcp) = (*conn, plug.take(), end.ipcp);
        if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(&conn)) {
            conn.role = Role::New;
        }
        match (result, plug) {
            (Ok(()), Some(plug)) => self.hand_out(port, plug, crate::ends::Wiring::Plane),
            (Ok(()), None) => self.join(ipcp, port, conn),
            (Err(reason), _) => {
                let owner = self.drop_end(port).map(|end| {
                    let what = format!("{} to {}: {reason}", end.local, end.remote);
                    self.journal.note(EventKind::FlowRefused, port, what);
                    end.owner
                });
                if let Some(conn) = conn {
                    self.refuse(conn, None, ErrorBody::new(ErrorCode::FlowDenied, reason));
                } else if let Some(Owner::Ipcp(upper, n1)) = owner {
                    self.n1_ended(upper, n1, &reason);
                }
            }
        }
    }

    /// Ends what nobody answered in time.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(until, port)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            let Some(end) = self
                .ends
                .get(&port)
                .filter(|end| end.until() == Some(until))
            else {
                continue;
            };
            match end.stage {
                Stage::Offered { conn, request, .. } => {
                    self.forget_request(conn, request);
                    let ms = self.limits.answer_ms;
                    self.deny(
                        port,
                        &format!("the application did not answer within {ms} ms"),
                    );
                }
                Stage::Asked { conn, .. } => {
                    let what = format!("no answer from {} in time", end.remote);
                    let owner = end.owner;
                    if let Some(conn) = conn.and_then(|conn| self.conns.get_mut(&conn)) {
                        conn.role = Role::New;
                    }
                    self.withdraw(port, "no answer in time");
                    if let Some(conn) = conn {
                        self.refuse(conn, None, ErrorBody::new(ErrorCode::TimedOut, what));
                    } else if let Owner::Ipcp(upper, n1) = owner {
                        self.n1_ended(upper, n1, &what);
                    }
                }
                _ => {}
            }
        }
    }

    /// Removes an end with what the node holds of it.
    pub fn drop_end(&mut self, port: PortId) -> Option<End> {
        let mut end = self.ends.remove(&port)?;
        if let Some(until) = end.until() {
            self.deadlines.remove(&(until, port));
        }
        if let Stage::Offered { conn, request, .. } = end.stage {
            self.forget_request(conn, request);
        }
        if let Some(tether) = end.live().and_then(|live| live.tether.take())
            && let Err(error) = self.epoll.del(&tether)
        {
            tracing::warn!(%error, token = Token::Tether(port).pack(), "a flow was not watched");
        }
        if end.owner == Owner::App {
            self.discharge(end.uid, end.charge);
        }
        Some(end)
    }
}

/// The refusal of a name that nobody registered.
pub fn unknown_name(remote: &AppName, dif: Option<&DifName>) -> ErrorBody {
    let place = dif.map_or("any DIF of this system".to_owned(), |dif| {
        format!("the DIF {dif}")
    });
    ErrorBody::new(
        ErrorCode::UnknownName,
        format!("no application is registered as {remote} in {place}"),
    )
}

/// The refusal of an IPCP that is down: for good when it was refused so where it asked to join.
fn down(ipcp: &crate::ipcps::Ipcp) -> ErrorBody {
    match &ipcp.member {
        Some(member) if member.is_refused() => link_down(&ipcp.dif, member.last_error()).for_good(),
        Some(member) => {
            let reason = ipcp.reason.as_deref().or(member.last_error());
            link_down(&ipcp.dif, reason)
        }
        None => link_down(&ipcp.dif, ipcp.reason.as_deref()),
    }
}

fn link_down(dif: &DifName, reason: Option<&str>) -> ErrorBody {
    let reason = reason.unwrap_or("no peer has been seen yet");
    ErrorBody::new(
        ErrorCode::LinkDown,
        format!("the DIF {dif} is down: {reason}"),
    )
}

/// How much longer than its own applications a node waits for a remote system's.
pub const ANSWER_SLACK: Duration = Duration::from_secs(2);
