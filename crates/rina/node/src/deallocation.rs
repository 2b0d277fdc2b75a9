//! Deallocation: ends of flows, caused by an application, the other side, a command, or a crash.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use carina_api::control::EventKind;
use carina_api::ipc::FlowNotice;
use carina_api::{ErrorBody, ErrorCode, PortId};
use carina_dataplane::Command;
use carina_ring::State;

use crate::connections::send;
use crate::core::Core;
use crate::endpoints::{DataPath, FlowOwner, Relay, Stage};

impl Core {
    /// Releases the endpoint of an application that closed its flow or crashed.
    pub(crate) fn release_endpoint(&mut self, port: PortId) {
        let Some(mut end) = self.remove_endpoint(port) else {
            return;
        };
        let Some(allocated) = end.allocated() else {
            // The application never got its descriptors, so only the IPCP's side exists.
            if let Some(ipcp) = self.ipcps.get_mut(end.ipcp) {
                ipcp.process
                    .as_dyn_mut()
                    .deallocate(port, "the application has ended");
            }
            return self.dispatch_ipcp_events(end.ipcp);
        };
        let graceful = match &allocated.channel {
            Some((channel, side)) => {
                // A stream that the application did not close has failed. In both cases the other
                // end wakes up.
                channel.fail(*side);
                channel.state(*side) == State::Closed
            }
            None => true,
        };
        let reason = if graceful { CLOSED } else { DIED };
        // An end that was reported to the application was noted at that moment.
        if !allocated.close_reported {
            self.journal.note(EventKind::FlowClosed, port, reason);
        }
        match allocated.data_path {
            DataPath::Plane => {
                if let Some(ipcp) = self.ipcps.get_mut(end.ipcp) {
                    ipcp.process.as_dyn_mut().deallocate(port, reason);
                }
                self.dispatch_ipcp_events(end.ipcp);
            }
            DataPath::Relayed { peer, relay } => {
                self.note_peer_close(peer, graceful);
                // The relay is known by the caller's port-id. If the called application is gone,
                // the called end of the relay detects that itself, and the caller's end is
                // notified after the SDUs that are still under way: deallocating at once would lose
                // them.
                if relay == port {
                    self.plane.send(Command::Deallocate {
                        port: relay,
                        reason: reason.into(),
                    });
                }
            }
            DataPath::Direct(peer) | DataPath::Sockets { peer, .. } => {
                self.note_peer_close(peer, graceful);
                if let Some(ipcp) = self.ipcps.get_mut(end.ipcp) {
                    ipcp.process.as_dyn_mut().deallocate(port, reason);
                }
                self.dispatch_ipcp_events(end.ipcp);
            }
        }
    }

    /// Records whether the other end closed in order, for the time when the flow's end is reported.
    fn note_peer_close(&mut self, peer: PortId, graceful: bool) {
        if let Some(allocated) = self.endpoints.allocated_mut(peer) {
            allocated.peer_graceful = graceful;
        }
    }

    /// Handles the end of a flow or of a request, as reported by an IPCP or the data plane.
    pub(crate) fn on_closed(&mut self, port: PortId, reason: &str) {
        if let Some(Relay { ipcp, ends }) = self.endpoints.take_relay(port) {
            for end in ends {
                self.report_close(end, reason);
            }
            if let Some(ipcp) = self.ipcps.get_mut(ipcp) {
                ipcp.process.as_dyn_mut().deallocate(port, reason);
            }
            return self.dispatch_ipcp_events(ipcp);
        }
        match self.endpoints.get(port).map(|end| &end.stage) {
            Some(Stage::Requested { .. }) => self.on_allocated(port, Err(reason.to_owned())),
            Some(Stage::Incoming { .. }) => {
                self.remove_endpoint(port);
            }
            Some(Stage::Accepted { answer }) => {
                if let Some((conn, request)) = *answer {
                    let error = ErrorBody::new(ErrorCode::FlowDenied, reason);
                    self.connections.send_refusal(conn, Some(request), error);
                }
                self.remove_endpoint(port);
            }
            Some(Stage::Allocated(_)) => self.report_close(port, reason),
            None => {}
        }
    }

    /// Tells an application that its flow has ended. The endpoint stays until the application
    /// closes it, so that queued SDUs can be read. In socket mode the kernel reports the end, and
    /// the endpoint is removed.
    fn report_close(&mut self, port: PortId, reason: &str) {
        let Some(allocated) = self.endpoints.allocated_mut(port) else {
            return;
        };
        let Some(control_socket) = &allocated.control_socket else {
            self.journal.note(EventKind::FlowClosed, port, reason);
            let end = self.remove_endpoint(port);
            if let Some(FlowOwner::Ipcp(upper, n1)) = end.map(|end| end.owner) {
                self.n1_ended(upper, n1, reason);
            }
            return;
        };
        if std::mem::replace(&mut allocated.close_reported, true) {
            return;
        }
        // The data plane closes the stream that it writes only if its peer closed in order.
        let closed = |(channel, side): &(_, carina_ring::channel::Side)| {
            let channel: &std::sync::Arc<carina_ring::channel::ChannelMemory> = channel;
            channel.state(side.other()) == State::Closed
        };
        allocated.peer_graceful |= allocated.channel.as_ref().is_some_and(closed);
        let notice = FlowNotice::Closed {
            reason: reason.to_owned(),
            graceful: allocated.peer_graceful,
        };
        if let Err(error) = send(control_socket.as_fd(), &notice, &[]) {
            tracing::debug!(%error, %port, "the application has ended already");
        }
        self.journal.note(EventKind::FlowClosed, port, reason);
    }

    /// Ends a flow by command, at both ends.
    ///
    /// # Errors
    /// The flow does not exist, or is not under the node's control.
    pub(crate) fn deallocate_by_command(&mut self, port: PortId) -> Result<(), ErrorBody> {
        let reason = "ended by command";
        let Some(end) = self.endpoints.get_mut(port) else {
            let what = format!("there is no flow with port {port}");
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        };
        let ipcp = end.ipcp;
        let Some(allocated) = end.allocated() else {
            let what = format!("flow {port} is not allocated yet");
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        };
        if matches!(allocated.data_path, DataPath::Sockets { .. }) {
            let what = format!(
                "flow {port} is a socket directly between two applications, which the node \
                 cannot close; end one of the applications"
            );
            return Err(ErrorBody::new(ErrorCode::Unsupported, what));
        }
        let (data_path, channel) = (allocated.data_path, allocated.channel.as_ref());
        if let Some((channel, side)) = channel {
            channel.fail(*side);
            channel.fail(side.other());
        }
        match data_path {
            DataPath::Relayed { relay, .. } => {
                self.plane.send(Command::Deallocate {
                    port: relay,
                    reason: reason.into(),
                });
            }
            _ => {
                if let Some(ipcp) = self.ipcps.get_mut(ipcp) {
                    ipcp.process.as_dyn_mut().deallocate(port, reason);
                }
            }
        }
        self.dispatch_ipcp_events(ipcp);
        self.report_close(port, reason);
        Ok(())
    }

    /// Ends an application's end of a flow because the node stops.
    pub(crate) fn stop_endpoint(&mut self, port: PortId) {
        let Some(end) = self.endpoints.get_mut(port) else {
            return;
        };
        let ipcp = end.ipcp;
        if let Some(allocated) = end.allocated() {
            let data_path = allocated.data_path;
            if let (Some((channel, side)), false) =
                (&allocated.channel, data_path == DataPath::Plane)
            {
                // The node moves no SDUs of this flow, so only a failed channel reports its end.
                channel.fail(side.other());
            }
            if data_path == DataPath::Plane
                && let Some(ipcp) = self.ipcps.get_mut(ipcp)
            {
                ipcp.process.as_dyn_mut().deallocate(port, STOPPED);
            }
            self.report_close(port, STOPPED);
        }
        self.remove_endpoint(port);
    }

    /// Checks for the end of socket flows before the next regular check, at most every few
    /// milliseconds. Returns whether it checked.
    pub(crate) fn poll_socket_flows_early(&mut self) -> bool {
        let now = Instant::now();
        if !self.has_socket_flows || now < self.next_early_poll {
            return false;
        }
        self.next_early_poll = now + EARLY_POLL_INTERVAL;
        self.poll_socket_flows();
        true
    }

    /// Ends socket flows whose sockets are closed. The node has no descriptor of them that would
    /// report that.
    pub(crate) fn poll_socket_flows(&mut self) {
        let watched: Vec<(PortId, u64)> = self
            .endpoints
            .iter_mut()
            .filter_map(|(port, end)| match end.allocated()?.data_path {
                DataPath::Sockets { watched, .. } => Some((port, watched)),
                _ => None,
            })
            .collect();
        self.has_socket_flows = !watched.is_empty();
        if watched.is_empty() {
            return;
        }
        let open = match self.socket_watch.open() {
            Ok(open) => open,
            Err(error) => {
                return tracing::warn!(%error, "the node cannot detect the end of \
                socket flows");
            }
        };
        for (port, watched) in watched {
            if !open.contains(&watched) {
                self.release_endpoint(port);
            }
        }
    }
}

/// Least time between two early checks: a user who has as many flows as the limit allows cannot
/// occupy the node with requests for more.
const EARLY_POLL_INTERVAL: Duration = Duration::from_millis(5);

const CLOSED: &str = "closed by the application";
const STOPPED: &str = "the node is stopping";
const DIED: &str = "the application died: it ended without closing the flow";
