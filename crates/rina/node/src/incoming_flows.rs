//! Incoming flows: asks the called application or member, and passes the answer to the IPCP. The
//! caller's side is in `allocation`.

use std::time::{Duration, Instant};

use carina_api::control::EventKind;
use carina_api::ipc::{FlowRequest, Mode, REASON_BYTES_MAX, Reply, Request};
use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, IpcpId, PortId};

use carina_dataplane::StreamSocket;
use carina_sys::Credentials;
use thiserror::Error;

use crate::allocation::ring_charge;
use crate::attached_socket::stream_spec_checked;
use crate::connections::ConnectionId;
use crate::core::Core;
use crate::endpoints::{Endpoint, FlowOwner, Stage};
use crate::ipcps::Registrant;
use crate::users::LimitError;

/// Why an incoming flow is refused before the called application is asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum IncomingError {
    #[error("the IPCP no longer exists")]
    IpcpGone,
    #[error("the called IPCP no longer exists")]
    CalledGone,
    #[error("no application is registered as {0}")]
    NotRegistered(AppName),
    #[error("{local} has not answered {limit} flow requests; that is the limit")]
    TooManyRequests { local: AppName, limit: u32 },
    #[error("{0} does not listen")]
    NotListening(AppName),
    #[error("{0} does not read the flows that were accepted for it")]
    Unread(AppName),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error("the DIF of the called IPCP no longer uses N-1 DIF {0}")]
    NotOver(DifName),
    #[error("the called IPCP has {0} N-1 flows; that is the limit")]
    TooManyN1Flows(usize),
    #[error("the node is stopping")]
    Stopping,
    /// The operating system refuses a resource.
    #[error("{0}")]
    System(String),
}

impl Core {
    /// Handles an incoming flow: asks the called application or IPCP.
    pub(crate) fn on_incoming_flow(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        local: AppName,
        remote: AppName,
        spec: FlowSpec,
    ) {
        // The data plane may reuse the port of a flow whose application still holds its end.
        if self.endpoints.contains(port) {
            self.remove_endpoint(port);
        }
        if let Err(reason) = self.offer_to_owner(ipcp, port, &local, &remote, spec) {
            self.journal.note(
                EventKind::FlowRefused,
                port,
                format!("{remote} to {local}: {reason}"),
            );
            self.answer_process(ipcp, port, Err(reason.to_string()));
        }
    }

    fn offer_to_owner(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        local: &AppName,
        remote: &AppName,
        spec: FlowSpec,
    ) -> Result<(), IncomingError> {
        if self.is_stopping() {
            return Err(IncomingError::Stopping);
        }
        let through = self.ipcps.get(ipcp).ok_or(IncomingError::IpcpGone)?;
        let unknown = || IncomingError::NotRegistered(local.clone());
        let conn_id = match *through.names.get(local).ok_or_else(unknown)? {
            Registrant::App(conn) => conn,
            Registrant::Ipcp(upper) => {
                return self.accept_n1(upper, ipcp, port, local, remote, spec);
            }
        };
        let dif = through.dif.clone();
        if self.connections.takes_streams(conn_id) {
            return self.accept_stream(conn_id, ipcp, port, [local, remote], spec);
        }
        let limit = self.limits.flow_requests_per_app;
        let peer = match self.connections.get(conn_id) {
            Some(conn) => conn.peer,
            None => return Err(unknown()),
        };
        let app = self.connections.app_mut(conn_id).ok_or_else(unknown)?;
        if app.requests.len() >= limit as usize {
            let local = local.clone();
            return Err(IncomingError::TooManyRequests { local, limit });
        }
        let (uid, request) = (peer.uid, app.next_request);
        app.next_request = app.next_request.wrapping_add(1);
        app.requests.insert(request, port);
        if let Err(error) = self.charge_user(uid, 0) {
            self.connections.take_request(conn_id, request);
            return Err(error.into());
        }
        let until = Instant::now() + Duration::from_millis(self.limits.answer_ms);
        let stage = Stage::Incoming {
            conn: conn_id,
            request,
            until,
        };
        let end = self.called_end(ipcp, [local, remote], spec, peer, stage);
        self.endpoints.insert(port, end);
        let (local, remote) = (local.clone(), remote.clone());
        let asked = FlowRequest {
            request,
            local,
            remote,
            dif,
            spec,
        };
        if let Some(app) = self.connections.app_mut(conn_id)
            && !app.pending_ipcps.is_empty()
        {
            // The application first gets the confirmation of its registration.
            app.deferred_requests.push(asked);
            return Ok(());
        }
        let (app, dif) = (&asked.local, &asked.dif);
        tracing::debug!(flow = %port, %dif, %app, remote = %asked.remote, "flow offered");
        // An application that does not read is disconnected, which denies its requests.
        self.connections
            .send_reply(conn_id, &Reply::FlowRequest(asked), &[]);
        Ok(())
    }

    /// The end of a flow at the called application.
    pub(crate) fn called_end(
        &self,
        ipcp: IpcpId,
        [local, remote]: [&AppName; 2],
        spec: FlowSpec,
        peer: Credentials,
        stage: Stage,
    ) -> Endpoint {
        Endpoint {
            ipcp,
            owner: FlowOwner::App,
            local: local.clone(),
            remote: remote.clone(),
            spec,
            uid: peer.uid,
            pid: peer.pid,
            mode: Mode::Ring,
            attached: None,
            is_detached: false,
            membarrier: false,
            ring_bytes: self.limits.ring_bytes as usize,
            charge: 0,
            stage,
        }
    }

    /// Handles the answer of an application to a flow request.
    pub(crate) fn on_flow_response(
        &mut self,
        id: ConnectionId,
        answer: Request,
        attached: Result<Option<StreamSocket>, ErrorBody>,
    ) {
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
        let Some(port) = self.connections.take_request(id, request) else {
            if accept {
                let what = format!(
                    "flow request {request} no longer exists: it was withdrawn, answered or timed out"
                );
                self.connections.send_refusal(
                    id,
                    Some(request),
                    ErrorBody::new(ErrorCode::NotFound, what),
                );
            }
            return;
        };
        if !accept {
            let reason = reason.unwrap_or_else(|| "the application said no".into());
            return self.refuse_incoming(port, cut(&reason));
        }
        let Some(end) = self.endpoints.get_mut(port) else {
            return;
        };
        let attached =
            attached.and_then(|socket| stream_spec_checked(mode, &end.spec).map(|()| socket));
        end.mode = mode;
        end.membarrier = membarrier;
        let answer = Some((id, request));
        end.stage = Stage::Accepted { answer };
        let ipcp = end.ipcp;
        let accepted = match attached {
            Ok(socket) => {
                end.attached = socket;
                self.accept_incoming(port)
            }
            Err(error) => Err(error),
        };
        if let Err(error) = accepted {
            let reason = format!("the node of the application failed: {}", error.message);
            self.connections.send_refusal(id, Some(request), error);
            self.remove_endpoint(port);
            self.answer_process(ipcp, port, Err(reason));
        }
    }

    /// Tells the IPCP that the called side has accepted a flow.
    ///
    /// # Errors
    /// A limit is reached, or the operating system refuses a resource.
    pub(crate) fn accept_incoming(&mut self, port: PortId) -> Result<(), ErrorBody> {
        let Some(end) = self.endpoints.get(port) else {
            return Ok(());
        };
        let (ipcp, uid) = (end.ipcp, end.uid);
        let ipcp_of_flow = self.ipcps.get(ipcp);
        if ipcp_of_flow.is_some_and(|ipcp| ipcp.process.as_dyn().is_local()) {
            // Both ends are connected after the IPCP has reported the result to the caller.
            self.answer_process(ipcp, port, Ok(None));
            return Ok(());
        }
        let bytes = match end.owner {
            FlowOwner::App => ring_charge(end.mode, end.ring_bytes),
            FlowOwner::Ipcp(..) => 0,
        };
        self.users.charge_bytes(uid, bytes, &self.limits)?;
        let Some(end) = self.endpoints.get_mut(port) else {
            return Ok(());
        };
        end.charge = bytes;
        let attached = end.attached.take();
        let end = &self.endpoints[port];
        let (channel_end, to_plane) = self.make_channel_end(port, end, attached)?;
        self.answer_process(ipcp, port, Ok(Some(to_plane)));
        self.deliver_channel(port, channel_end, crate::endpoints::DataPath::Plane);
        Ok(())
    }

    /// Refuses a flow request.
    pub(crate) fn refuse_incoming(&mut self, port: PortId, reason: &str) {
        let Some(end) = self.remove_endpoint(port) else {
            return;
        };
        let what = format!("{} to {}: {reason}", end.remote, end.local);
        self.journal.note(EventKind::FlowRefused, port, what);
        self.answer_process(end.ipcp, port, Err(reason.to_owned()));
    }

    /// Passes the answer to an incoming flow to an IPCP, and handles the events that follow.
    pub(crate) fn answer_process(
        &mut self,
        ipcp: IpcpId,
        port: PortId,
        answer: Result<Option<carina_dataplane::FlowEnd>, String>,
    ) {
        let Some(through) = self.ipcps.get_mut(ipcp) else {
            return;
        };
        if let Err(refusal) = through.process.as_dyn_mut().respond(port, answer) {
            tracing::debug!(%refusal, %port, "an answer came too late");
        }
        self.dispatch_ipcp_events(ipcp);
    }
}

/// Truncates a reason given by an application to [`REASON_BYTES_MAX`] bytes.
fn cut(reason: &str) -> &str {
    let mut end = reason.len().min(REASON_BYTES_MAX);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason[..end]
}
