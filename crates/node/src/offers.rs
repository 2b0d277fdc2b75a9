//! Flows that come: the application or the member that they are for is asked, and its answer goes
//! back. Those that are asked for here are in `flows`.

use std::time::{Duration, Instant};

use carina_api::control::EventKind;
use carina_api::ipc::{FlowRequest, Mode, REASON_BYTES_MAX, Reply, Request};
use carina_api::{AppName, ErrorBody, ErrorCode, FlowSpec, IpcpId, PortId};

use crate::conns::{ConnId, Role};
use crate::core::Core;
use crate::ends::{End, Owner, Stage};
use crate::ipcps::{Carrier, Registrant};

impl Core {
    /// A flow to an application of this system: asks the application.
    pub fn offer(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        local: AppName,
        remote: AppName,
        spec: FlowSpec,
    ) {
        // The data plane may give out again the port of a flow whose application lingers.
        if self.ends.contains_key(&port) {
            self.drop_end(port);
        }
        if let Err(reason) = self.try_offer(ipcp, port, &local, &remote, spec) {
            self.journal.note(
                EventKind::FlowRefused,
                port,
                format!("{remote} to {local}: {reason}"),
            );
            self.answer(ipcp, port, Err(reason));
        }
    }

    fn try_offer(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: FlowSpec,
    ) -> Result<(), String> {
        let through = self.ipcps.get(&ipcp).ok_or("the IPCP is gone")?;
        let unknown = || format!("no application is registered as {local}");
        let conn_id = match *through.names.get(local).ok_or_else(unknown)? {
            Registrant::App(conn) => conn,
            Registrant::Ipcp(upper) => {
                return self.accept_n1(upper, ipcp, port, local, remote, spec);
            }
        };
        let dif = through.dif.clone();
        let limit = self.limits.flow_requests_per_app;
        let conn = self.conns.get_mut(&conn_id).ok_or_else(unknown)?;
        let Role::App(app) = &mut conn.role else {
            return Err(unknown());
        };
        if app.requests.len() >= limit as usize {
            return Err(format!(
                "{local} has not answered {limit} flow requests; that is the limit"
            ));
        }
        let (uid, pid, request) = (conn.peer.uid, conn.peer.pid, app.next_request);
        app.next_request = app.next_request.wrapping_add(1);
        app.requests.insert(request, port);
        if let Err(error) = self.charge(uid, 0) {
            self.forget_request(conn_id, request);
            return Err(error.message);
        }
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms);
        let end = End {
            ipcp,
            owner: Owner::App,
            local: local.clone(),
            remote: remote.clone(),
            spec,
            uid,
            pid,
            mode: Mode::Ring,
            membarrier: false,
            ring_bytes: carina_api::ipc::RING_BYTES_DEFAULT as usize,
            charge: 0,
            stage: Stage::Offered {
                conn: conn_id,
                request,
                until,
            },
        };
        self.ends.insert(port, end);
        self.deadlines.insert((until, port));
        let (local, remote) = (local.clone(), remote.clone());
        let asked = FlowRequest {
            request,
            local,
            remote,
            dif,
            spec,
        };
        if let Some(Role::App(app)) = self.conns.get_mut(&conn_id).map(|conn| &mut conn.role)
            && !app.unanswered.is_empty()
        {
            // It hears first that it is registered.
            app.held.push(asked);
            return Ok(());
        }
        // When the application does not read it is disconnected, and its requests are denied.
        self.say(conn_id, &Reply::FlowRequest(asked), &[]);
        Ok(())
    }

    /// The answer of an application to a flow request.
    pub fn respond(&mut self, id: ConnId, answer: Request) {
        let Request::Respond {
            request,
            accept,
            reason,
            mode,
            membarrier,
        } = answer
        else {
            return;
        };
        let Some(port) = self.forget_request(id, request) else {
            if accept {
                let what = format!("flow request {request} is gone: withdrawn, late or answered");
                self.refuse(id, Some(request), ErrorBody::new(ErrorCode::NotFound, what));
            }
            return;
        };
        if !accept {
            let reason = reason.unwrap_or_else(|| "the application said no".into());
            return self.deny(port, cut(&reason));
        }
        let Some(end) = self.ends.get_mut(&port) else {
            return;
        };
        end.mode = mode;
        end.membarrier = membarrier;
        let answer = Some((id, request));
        end.stage = Stage::Accepted { answer };
        let ipcp = end.ipcp;
        if let Err(error) = self.accept(port) {
            let reason = format!("the node of the application failed: {}", error.message);
            self.refuse(id, Some(request), error);
            self.drop_end(port);
            self.answer(ipcp, port, Err(reason));
        }
    }

    /// Tells the shim that the called side has accepted.
    ///
    /// # Errors
    /// A limit, or the system's refusal.
    pub fn accept(&mut self, port: PortId) -> Result<(), ErrorBody> {
        let Some(end) = self.ends.get(&port) else {
            return Ok(());
        };
        let (ipcp, uid) = (end.ipcp, end.uid);
        if matches!(
            self.ipcps.get(&ipcp).map(|i| &i.carrier),
            Some(Carrier::Loopback(_))
        ) {
            // Both ends are plugged together when the shim has told the one who asked.
            self.answer(ipcp, port, Ok(None));
            return Ok(());
        }
        let bytes = match (end.owner, end.mode) {
            (Owner::App, Mode::Ring) => 2 * end.ring_bytes as u64,
            _ => 0,
        };
        self.charge_bytes(uid, bytes)?;
        let Some(end) = self.ends.get_mut(&port) else {
            return Ok(());
        };
        end.charge = bytes;
        let (plug, to_plane) = self.make_plug(&self.ends[&port])?;
        self.answer(ipcp, port, Ok(Some(to_plane)));
        self.hand_out(port, plug, crate::ends::Wiring::Plane);
        Ok(())
    }

    /// Denies a flow request.
    pub fn deny(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.drop_end(port) else {
            return;
        };
        let what = format!("{} to {}: {reason}", end.remote, end.local);
        self.journal.note(EventKind::FlowRefused, port, what);
        self.answer(end.ipcp, port, Err(reason.to_owned()));
    }

    /// Gives a shim the answer to an incoming flow, and hears what follows from it.
    pub fn answer(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        answer: Result<Option<carina_dataplane::FlowEnd>, String>,
    ) {
        let Some(through) = self.ipcps.get_mut(&ipcp) else {
            return;
        };
        if let Err(refusal) = through.carrier.shim().respond(port, answer) {
            tracing::debug!(%refusal, %port, "an answer came too late");
        }
        self.pump(ipcp);
    }

    /// Takes a flow request off an application's list.
    pub fn forget_request(&mut self, id: ConnId, request: u32) -> Option<PortId> {
        match &mut self.conns.get_mut(&id)?.role {
            Role::App(app) => app.requests.remove(&request),
            _ => None,
        }
    }
}

/// Cuts a reason that an application gave to a length that fits everywhere.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
