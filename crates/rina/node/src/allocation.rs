//! Flow allocation at the caller's side: chooses the DIF for the flow, sends the request to its
//! IPCP, and delivers the result. The called side is in `incoming_flows`.
//!
//! The steps are those of the Flow Allocator (J. Day, *Patterns in Network Architecture*; PSOC,
//! *Flow Allocator Specification*) in which the IPC Manager of a system takes part.

use std::time::{Duration, Instant};

use carina_api::control::{EventKind, LinkState};
use carina_api::ipc::{FILLER_BYTES_MAX, Mode, Request, ring_bytes_checked};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, PortId};
use carina_dataplane::{FlowRequest, StreamSocket};

use crate::attached_socket::stream_spec_checked;
use crate::connections::{ConnectionId, Role};
use crate::core::{Core, Token};
use crate::endpoints::{Endpoint, FlowOwner, Stage};
use crate::layers::{layers, unknown_dif};
use crate::registrations::{denied, refused};
use crate::rules::Action;
use crate::users::LimitError;

impl Core {
    /// Starts an allocation. The request goes to the first DIF that reaches the name, whose access
    /// rules allow the call, and that meets the flow specification.
    pub(crate) fn allocate(
        &mut self,
        id: ConnectionId,
        request: Request,
        attached: Option<StreamSocket>,
    ) -> Result<(), ErrorBody> {
        let Request::Allocate {
            local,
            remote,
            dif,
            spec,
            mode,
            membarrier,
            ring_bytes,
            filler,
            detached,
            closes,
            ..
        } = request
        else {
            return Ok(());
        };
        let Some(conn) = self.connections.get(id) else {
            return Ok(());
        };
        let (uid, pid) = (conn.peer.uid, conn.peer.pid);
        check_spec(mode, &spec)?;
        let attached = with_filler(attached, filler)?;
        let ring_bytes = ring_bytes_checked(ring_bytes.unwrap_or(self.limits.ring_bytes))?;
        tracing::debug!(app = %local, %remote, ?dif, uid, "flow requested");
        let candidates = self.candidates(uid, &remote, dif.as_ref(), &spec)?;
        let charge = ring_charge(mode, ring_bytes);
        self.charge_user(uid, charge)?;
        let port = self.endpoints.unused_port();
        // A remote system has its own time limit for the answer; this limit covers only its
        // silence.
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms) + ANSWER_SLACK;
        let mut refusal = None;
        for ipcp in candidates {
            let stage = Stage::Requested {
                conn: Some(id),
                until,
                channel_end: None,
            };
            let end = Endpoint {
                ipcp,
                owner: FlowOwner::App,
                local: local.clone(),
                remote: remote.clone(),
                spec,
                uid,
                pid,
                mode,
                attached: attached.as_ref().and_then(|socket| socket.try_clone().ok()),
                is_detached: detached,
                membarrier,
                ring_bytes,
                charge,
                stage,
            };
            if end.attached.is_none() && attached.is_some() {
                refusal = Some(no_descriptor());
                break;
            }
            match self.request_flow(port, end) {
                Ok(()) => {
                    if let Some(conn) = self.connections.get_mut(id) {
                        conn.role = Role::Allocating(port);
                        conn.closes = closes || detached;
                    }
                    self.dispatch_ipcp_events(ipcp);
                    return Ok(());
                }
                Err(error) => refusal = Some(error),
            }
        }
        self.users.discharge(uid, charge);
        Err(refusal.unwrap_or_else(|| unknown_name(&remote, dif.as_ref())))
    }

    /// The IPCPs to try, in order. If no IPCP fits, the error has the most specific reason.
    pub(crate) fn candidates(
        &self,
        uid: u32,
        remote: &AppName,
        dif: Option<&DifName>,
        spec: &FlowSpec,
    ) -> Result<Vec<IpcpId>, ErrorBody> {
        let (mut found, mut refusal, mut members) = (Vec::new(), None, 0);
        let mut unasked = None;
        // IPCPs that know the name come before those that would have to query other members for it.
        let mut possible = Vec::new();
        for id in self.ipcps.search_order(&self.dif_order) {
            let ipcp = &self.ipcps[id];
            if dif.is_some_and(|dif| ipcp.dif != *dif) {
                continue;
            }
            members += 1;
            if dif.is_some() && ipcp.state == LinkState::Down {
                refusal.get_or_insert_with(|| down(ipcp));
            }
            let shim = ipcp.process.as_dyn();
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
                // If a query would be needed, the name is not known to exist.
                if is_known || dif.is_some() {
                    refusal = Some(ErrorBody::new(ErrorCode::SpecNotMet, what))
                } else {
                    unasked = unasked.or(Some(what))
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
            (true, Some(dif)) if members == 0 => Err(unknown_dif(dif, &layers(&self.ipcps))),
            (true, _) => Err(refusal.unwrap_or_else(|| {
                let mut unknown = unknown_name(remote, dif);
                if let Some(why) = unasked {
                    unknown.message += &format!(
                        "; a DIF that may have the name was not asked: \
                        {why}"
                    );
                }
                unknown
            })),
        }
    }

    /// Sends the request for a flow to one IPCP. On success the endpoint is stored.
    pub(crate) fn request_flow(
        &mut self,
        port: PortId,
        mut end: Endpoint,
    ) -> Result<(), ErrorBody> {
        let (id, dif) = (end.ipcp, self.ipcps[end.ipcp].dif.clone());
        let call = FlowRequest {
            port,
            local: end.local.clone(),
            remote: end.remote.clone(),
            spec: end.spec,
        };
        let to_plane = if self.ipcps[id].process.as_dyn().is_local() {
            None
        } else {
            let attached = end.attached.take();
            let (channel_end, to_plane) = self.make_channel_end(port, &end, attached)?;
            if let Stage::Requested {
                channel_end: slot, ..
            } = &mut end.stage
            {
                *slot = Some(channel_end);
            }
            Some(to_plane)
        };
        let Some(ipcp) = self.ipcps.get_mut(id) else {
            return Ok(());
        };
        let shim = ipcp.process.as_dyn_mut();
        shim.allocate(call, to_plane)
            .map_err(|refusal| refused(refusal, &dif))?;
        let name = &ipcp.name;
        let (app, remote) = (&end.local, &end.remote);
        tracing::debug!(flow = %port, ipcp = %name, %dif, %app, %remote, "flow requested of the IPCP");
        self.endpoints.insert(port, end);
        Ok(())
    }

    /// Withdraws an allocation that has not been answered.
    pub(crate) fn withdraw_request(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.remove_endpoint(port) else {
            return;
        };
        if let Some(ipcp) = self.ipcps.get_mut(end.ipcp) {
            ipcp.process.as_dyn_mut().deallocate(port, reason);
        }
        self.dispatch_ipcp_events(end.ipcp);
    }

    /// Handles the answer to an allocation.
    pub(crate) fn on_allocated(&mut self, port: PortId, result: Result<(), String>) {
        let Some(end) = self.endpoints.get_mut(port) else {
            // The allocation was withdrawn: `withdraw_request` has deallocated the flow in the
            // IPCP.
            return;
        };
        let Stage::Requested {
            conn, channel_end, ..
        } = &mut end.stage
        else {
            return;
        };
        let (conn, channel_end, ipcp) = (*conn, channel_end.take(), end.ipcp);
        if let Some(conn) = conn {
            self.connections.end_allocation(conn);
        }
        match (result, channel_end) {
            (Ok(()), Some(channel_end)) => {
                self.deliver_channel(port, channel_end, crate::endpoints::DataPath::Plane)
            }
            (Ok(()), None) => self.connect_local(ipcp, port, conn),
            (Err(reason), _) => {
                let owner = self.remove_endpoint(port).map(|end| {
                    let what = format!("{} to {}: {reason}", end.local, end.remote);
                    self.journal.note(EventKind::FlowRefused, port, what);
                    end.owner
                });
                if let Some(conn) = conn {
                    self.connections.send_refusal(
                        conn,
                        None,
                        ErrorBody::new(ErrorCode::FlowDenied, reason),
                    );
                } else if let Some(FlowOwner::Ipcp(upper, n1)) = owner {
                    self.n1_ended(upper, n1, &reason);
                }
            }
        }
    }

    /// Ends the requests that were not answered in time.
    pub(crate) fn expire_requests(&mut self, now: Instant) {
        while let Some(port) = self.endpoints.take_overdue(now) {
            let Some(end) = self.endpoints.get(port) else {
                continue;
            };
            match end.stage {
                Stage::Incoming { conn, request, .. } => {
                    self.connections.take_request(conn, request);
                    let ms = self.limits.answer_ms;
                    self.refuse_incoming(
                        port,
                        &format!("the application did not answer within {ms} ms"),
                    );
                }
                Stage::Requested { conn, .. } => {
                    let what = format!("no answer from {} in time", end.remote);
                    let owner = end.owner;
                    if let Some(conn) = conn {
                        self.connections.end_allocation(conn);
                    }
                    self.withdraw_request(port, "no answer in time");
                    if let Some(conn) = conn {
                        self.connections.send_refusal(
                            conn,
                            None,
                            ErrorBody::new(ErrorCode::TimedOut, what),
                        );
                    } else if let FlowOwner::Ipcp(upper, n1) = owner {
                        self.n1_ended(upper, n1, &what);
                    }
                }
                _ => {}
            }
        }
    }

    /// Removes an endpoint and releases what the node holds for it.
    pub(crate) fn remove_endpoint(&mut self, port: PortId) -> Option<Endpoint> {
        let mut end = self.endpoints.remove(port)?;
        if let Stage::Incoming { conn, request, .. } = end.stage {
            self.connections.take_request(conn, request);
        }
        if let Some(control_socket) = end
            .allocated()
            .and_then(|allocated| allocated.control_socket.take())
            && let Err(error) = self.epoll.del(&control_socket)
        {
            tracing::warn!(%error, token = Token::FlowControl(port).pack(), "a flow cannot be \
                watched");
        }
        if end.owner == FlowOwner::App {
            self.users.discharge(end.uid, end.charge);
        }
        Some(end)
    }

    /// Charges a user for a flow and its rings. If the user has as many flows as the limit allows,
    /// the node first checks whether some of them have ended since its last check.
    ///
    /// # Errors
    /// The limit that is reached; then nothing is charged.
    pub(crate) fn charge_user(&mut self, uid: u32, ring_bytes: u64) -> Result<(), LimitError> {
        let charged = self.users.charge(uid, ring_bytes, &self.limits);
        if !matches!(charged, Err(LimitError::Flows { .. })) || !self.poll_socket_flows_early() {
            return charged;
        }
        self.users.charge(uid, ring_bytes, &self.limits)
    }
}

/// Checks that a flow with this specification can exist, and has SDUs in this mode.
fn check_spec(mode: Mode, spec: &FlowSpec) -> Result<(), ErrorBody> {
    spec.check()
        .map_err(|error| ErrorBody::new(ErrorCode::BadRequest, error.to_string()))?;
    stream_spec_checked(mode, spec)
}

/// Bytes of rings that a flow in `mode` adds to its user's total, which is limited.
pub(crate) fn ring_charge(mode: Mode, ring_bytes: usize) -> u64 {
    match mode {
        Mode::Ring => 2 * ring_bytes as u64,
        Mode::Socket | Mode::Stream => 0,
    }
}

/// The error for a name that is not registered.
pub(crate) fn unknown_name(remote: &AppName, dif: Option<&DifName>) -> ErrorBody {
    let place = dif.map_or("any DIF of this system".to_owned(), |dif| {
        format!("the DIF {dif}")
    });
    ErrorBody::new(
        ErrorCode::UnknownName,
        format!("no application is registered as {remote} in {place}"),
    )
}

/// Notes the bytes that are to be taken off an attached socket.
fn with_filler(
    attached: Option<StreamSocket>,
    filler: u32,
) -> Result<Option<StreamSocket>, ErrorBody> {
    if filler > 0 && (attached.is_none() || filler > FILLER_BYTES_MAX) {
        let what = format!(
            "the request has {filler} bytes of filler; only a request that attaches a socket \
             may have filler, and at most {FILLER_BYTES_MAX} bytes"
        );
        return Err(ErrorBody::new(ErrorCode::BadRequest, what));
    }
    Ok(attached.map(|socket| socket.with_filler(filler as usize)))
}

fn no_descriptor() -> ErrorBody {
    let what = "the node has too many open files to take the attached socket";
    ErrorBody::new(ErrorCode::LimitReached, what)
}

/// The error for an IPCP that is down. It is permanent if a member refused to admit the IPCP.
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

/// How much longer than for its own applications a node waits for an answer from a remote system.
pub(crate) const ANSWER_SLACK: Duration = Duration::from_secs(2);
