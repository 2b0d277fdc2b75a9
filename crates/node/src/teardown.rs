//! How flows end: closed by an application, by the other side, by a command, or by a death.

use std::collections::HashSet;
use std::os::fd::AsFd;

use carina_api::control::EventKind;
use carina_api::ipc::FlowNotice;
use carina_api::{ErrorBody, ErrorCode, PortId};
use carina_dataplane::Command;
use carina_ring::State;

use crate::conns::send;
use crate::core::Core;
use crate::ends::{Owner, Stage, Wiring};

impl Core {
    /// An application has let go of its end, or died with it.
    pub fn end_is_gone(&mut self, port: PortId) {
        let Some(mut end) = self.drop_end(port) else {
            return;
        };
        let Some(live) = end.live() else {
            // It never had its descriptors; the shim's side is taken back.
            if let Some(ipcp) = self.ipcps.get_mut(&end.ipcp) {
                ipcp.carrier
                    .shim()
                    .deallocate(port, "the application is gone");
            }
            return self.pump(end.ipcp);
        };
        let graceful = match &live.channel {
            Some((channel, side)) => {
                // What the dead have not closed is failed; either way the other end wakes.
                channel.fail(*side);
                channel.state(*side) == State::Closed
            }
            None => true,
        };
        let reason = if graceful { CLOSED } else { DIED };
        self.journal.note(EventKind::FlowClosed, port, reason);
        match live.wiring {
            Wiring::Plane => {
                if let Some(ipcp) = self.ipcps.get_mut(&end.ipcp) {
                    ipcp.carrier.shim().deallocate(port, reason);
                }
                self.pump(end.ipcp);
            }
            Wiring::Relayed { peer, relay } => {
                self.expect_end(peer, graceful);
                self.plane.send(Command::Deallocate {
                    port: relay,
                    reason: reason.into(),
                });
            }
            Wiring::Direct(peer) | Wiring::Sockets { peer, .. } => {
                self.expect_end(peer, graceful);
                if let Some(ipcp) = self.ipcps.get_mut(&end.ipcp) {
                    ipcp.carrier.shim().deallocate(port, reason);
                }
                self.pump(end.ipcp);
            }
        }
    }

    /// Notes how the other end went, for when the shim says that the flow is closed.
    fn expect_end(&mut self, peer: PortId, graceful: bool) {
        if let Some(live) = self.ends.get_mut(&peer).and_then(|end| end.live()) {
            live.peer_graceful = graceful;
        }
    }

    /// A shim or the data plane says that a flow, or a request for one, is over.
    pub fn on_closed(&mut self, port: PortId, reason: &str) {
        if let Some((ipcp, ends)) = self.relays.remove(&port) {
            for end in ends {
                self.tell_end(end, reason);
            }
            if let Some(ipcp) = self.ipcps.get_mut(&ipcp) {
                ipcp.carrier.shim().deallocate(port, reason);
            }
            return self.pump(ipcp);
        }
        match self.ends.get(&port).map(|end| &end.stage) {
            Some(Stage::Asked { .. }) => self.on_allocated(port, Err(reason.to_owned())),
            Some(Stage::Offered { .. }) => {
                self.drop_end(port);
            }
            Some(Stage::Accepted { answer }) => {
                if let Some((conn, request)) = *answer {
                    let error = ErrorBody::new(ErrorCode::FlowDenied, reason);
                    self.refuse(conn, Some(request), error);
                }
                self.drop_end(port);
            }
            Some(Stage::Up(_)) => self.tell_end(port, reason),
            None => {}
        }
    }

    /// Tells an application that its flow is over. Its end stays until it lets go, so that it can
    /// read what is queued; in socket mode the kernel tells it and nothing stays.
    fn tell_end(&mut self, port: PortId, reason: &str) {
        let Some(live) = self.ends.get_mut(&port).and_then(|end| end.live()) else {
            return;
        };
        let Some(tether) = &live.tether else {
            self.journal.note(EventKind::FlowClosed, port, reason);
            let end = self.drop_end(port);
            if let Some(Owner::Ipcp(upper, n1)) = end.map(|end| end.owner) {
                self.n1_ended(upper, n1, reason);
            }
            return;
        };
        if std::mem::replace(&mut live.told, true) {
            return;
        }
        // The data plane closes the stream it writes only when its peer closed in good order.
        let closed = |(channel, side): &(_, carina_ring::channel::Side)| {
            let channel: &std::sync::Arc<carina_ring::channel::ChannelMemory> = channel;
            channel.state(side.other()) == State::Closed
        };
        live.peer_graceful |= live.channel.as_ref().is_some_and(closed);
        let notice = FlowNotice::Closed {
            reason: reason.to_owned(),
            graceful: live.peer_graceful,
        };
        if let Err(error) = send(tether.as_fd(), &notice, &[]) {
            tracing::debug!(%error, %port, "the application is gone already");
        }
        self.journal.note(EventKind::FlowClosed, port, reason);
    }

    /// Ends a flow by command, for both applications.
    ///
    /// # Errors
    /// There is no such flow, or it is out of the node's hands.
    pub fn cut(&mut self, port: PortId) -> Result<(), ErrorBody> {
        let reason = "ended by command";
        let Some(end) = self.ends.get_mut(&port) else {
            let what = format!("there is no flow with port {port}");
            return Err(ErrorBody::new(ErrorCode::NotFound, what));
        };
        let ipcp = end.ipcp;
        let Some(live) = end.live() else {
            let what = format!("flow {port} is not allocated yet");
            return Err(ErrorBody::new(ErrorCode::Conflict, what));
        };
        if matches!(live.wiring, Wiring::Sockets { .. }) {
            let what = format!(
                "flow {port} is a socket between two applications and out of the node's hands; \
                 end one of the applications"
            );
            return Err(ErrorBody::new(ErrorCode::Unsupported, what));
        }
        let (wiring, channel) = (live.wiring, live.channel.as_ref());
        if let Some((channel, side)) = channel {
            channel.fail(*side);
            channel.fail(side.other());
        }
        match wiring {
            Wiring::Relayed { relay, .. } => {
                self.plane.send(Command::Deallocate {
                    port: relay,
                    reason: reason.into(),
                });
            }
            _ => {
                if let Some(ipcp) = self.ipcps.get_mut(&ipcp) {
                    ipcp.carrier.shim().deallocate(port, reason);
                }
            }
        }
        self.pump(ipcp);
        self.tell_end(port, reason);
        Ok(())
    }

    /// Ends one application's end because the node stops.
    pub fn stop_end(&mut self, port: PortId) {
        let Some(end) = self.ends.get_mut(&port) else {
            return;
        };
        let ipcp = end.ipcp;
        if let Some(live) = end.live() {
            let wiring = live.wiring;
            if let (Some((channel, side)), false) = (&live.channel, wiring == Wiring::Plane) {
                // The node is in neither direction of it, yet nobody would tell of its end.
                channel.fail(side.other());
            }
            if wiring == Wiring::Plane
                && let Some(ipcp) = self.ipcps.get_mut(&ipcp)
            {
                ipcp.carrier.shim().deallocate(port, STOPPED);
            }
            self.tell_end(port, STOPPED);
        }
        self.drop_end(port);
    }

    /// Looks for socket flows whose sockets are gone: the node has no descriptor of them that
    /// could tell.
    pub fn sweep_sockets(&mut self) {
        let watched: Vec<(PortId, u64)> = self
            .ends
            .iter_mut()
            .filter_map(|(port, end)| match end.live()?.wiring {
                Wiring::Sockets { inode, .. } => Some((*port, inode)),
                _ => None,
            })
            .collect();
        self.socket_flows = !watched.is_empty();
        if watched.is_empty() {
            return;
        }
        let Ok(table) = std::fs::read_to_string("/proc/net/unix") else {
            return;
        };
        let open: HashSet<u64> = open_inodes(&table).collect();
        for (port, inode) in watched {
            if !open.contains(&inode) {
                self.end_is_gone(port);
            }
        }
    }
}

/// Inodes of the sockets listed in `/proc/net/unix`: the seventh column.
fn open_inodes(table: &str) -> impl Iterator<Item = u64> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(6)?.parse().ok())
}

const CLOSED: &str = "closed by the application";
const STOPPED: &str = "the node stops";
const DIED: &str = "the application died";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_are_read_from_the_kernels_table() {
        let (a, b) = carina_sys::socketpair_seqpacket().unwrap();
        let inode = rustix::fs::fstat(&a).unwrap().st_ino;
        let open = || {
            let table = std::fs::read_to_string("/proc/net/unix").unwrap();
            open_inodes(&table).any(|found| found == inode)
        };
        assert!(open());
        drop((a, b));
        assert!(!open());
    }
}
