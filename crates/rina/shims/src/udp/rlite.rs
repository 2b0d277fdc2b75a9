//! Flows of the UDP shim in the framing of rlite and IRATI: bare SDUs, one flow per pair of
//! addresses.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use carina_api::AppName;
use carina_engine::counters::Value;
use carina_engine::{Buffer, Close, Links, Packet};
use carina_time::{Duration, Instant};

use super::pace::Pace;
use super::sockets::SocketId;
use super::{Framing, Peer, Udp};
use crate::flow_table::Names;

/// State of this framing.
#[derive(Default)]
pub(super) struct Rlite {
    /// Flows that peers have started, by the peer's address. They use the listening socket.
    by_peer: HashMap<SocketAddr, usize>,
    /// Flows that this side has requested, each with its own socket.
    calls: HashMap<SocketId, usize>,
    /// Addresses whose flow has ended, and until when datagrams from there count as late ones.
    ended: HashMap<SocketAddr, Instant>,
    /// Datagrams from addresses whose name is being resolved.
    unresolved: HashMap<IpAddr, Vec<(SocketAddr, Packet)>>,
}

impl Rlite {
    pub(super) fn forget(&mut self, peer: Peer, now: Instant) {
        let Some(address) = peer.address else { return };
        if peer.socket_id != SocketId::LISTEN {
            self.calls.remove(&peer.socket_id);
            return;
        }
        self.by_peer.remove(&address);
        if self.ended.len() >= UNRESOLVED_MAX {
            self.ended.retain(|_, until| *until > now);
        }
        if self.ended.len() < UNRESOLVED_MAX {
            self.ended.insert(address, now + LATE);
        }
    }
}

impl Udp {
    fn rlite(&mut self) -> Option<&mut Rlite> {
        match &mut self.framing {
            Framing::Rlite(rlite) => Some(rlite),
            Framing::Native(_) => None,
        }
    }

    /// Opens a flow to the called application, whose address the resolver has found. The peer need
    /// not be asked.
    pub(super) fn resolved_rlite(&mut self, at: usize, address: SocketAddr, links: &mut Links) {
        let socket_id = match self.sockets.open() {
            Ok(socket_id) => socket_id,
            Err(error) => {
                return self.close_flow(at, Close::Refused(error.to_string()), links);
            }
        };
        if let Some(flow) = self.flows.get_mut(at) {
            flow.peer.address = Some(address);
            flow.peer.socket_id = socket_id;
        }
        if let Some(rlite) = self.rlite() {
            rlite.calls.insert(socket_id, at);
        }
        let credit = self.credit();
        self.flows.confirm(self.now, at, credit, links);
    }

    /// Delivers a received datagram.
    pub(super) fn receive_rlite(
        &mut self,
        (socket_id, from): (SocketId, SocketAddr),
        buffer: Buffer,
        links: &mut Links,
    ) {
        let packet = Packet::from_buffer(buffer, false);
        let now = self.now;
        if socket_id != SocketId::LISTEN {
            return match self.answering(socket_id, from) {
                Some(at) => self.flows.deliver(at, packet, links),
                None => self.flows.row.add(Value::DropUnknownChannel, 1),
            };
        }
        if let Some(at) = self
            .rlite()
            .and_then(|rlite| rlite.by_peer.get(&from).copied())
        {
            return self.flows.deliver(at, packet, links);
        }
        let is_served = !self.flows.names.is_empty();
        // An M_CONNECT of an IPCP starts a new flow.
        let is_connecting = self.flows.connecting(&packet).is_some();
        let Some(rlite) = self.rlite() else { return };
        if is_connecting {
            rlite.ended.remove(&from);
        } else if rlite.ended.get(&from).is_some_and(|until| now < *until) {
            return self.flows.row.add(Value::DropFlowEnded, 1);
        }
        if !is_served {
            return self.flows.row.add(Value::DropUnknownChannel, 1);
        }
        let count = rlite.unresolved.len();
        let waiting = rlite.unresolved.entry(from.ip()).or_default();
        let is_new = waiting.is_empty();
        if waiting.len() >= WAITING_MAX || (is_new && count >= UNRESOLVED_MAX) {
            if is_new {
                rlite.unresolved.remove(&from.ip());
            }
            return self.flows.row.add(Value::DropNoBuffer, 1);
        }
        waiting.push((from, packet));
        if is_new {
            self.resolver.reverse(from.ip());
        }
    }

    /// The application that gets a flow from an unknown peer: a registered IPCP, which counts PDUs
    /// that it cannot decode, otherwise any registered application.
    fn guessed_name(&self) -> Option<AppName> {
        let ipcp = self.flows.connectable.first();
        ipcp.or_else(|| self.flows.names.first()).cloned()
    }

    /// Called when an IPCP is registered: closes incoming flows to applications that are not IPCPs,
    /// because their peers may mean the IPCP and will connect to it.
    pub(super) fn close_guessed(&mut self, links: &mut Links) {
        if self.rlite().is_none() {
            return;
        }
        for at in self.flows.indices() {
            let flow = self.flows.get_mut(at);
            let local = flow.filter(|flow| flow.is_passive);
            let local = local.map(|flow| flow.names.local.clone());
            if local.is_some_and(|local| !self.flows.connectable.has(&local)) {
                let text = "the peer may want to reach an IPCP that was registered after the \
                    flow began";
                self.close_flow(at, Close::Graceful(text.to_owned()), links);
            }
        }
    }

    /// Index of the flow that uses this socket. The server of rlite answers from another port than
    /// it was called on, and expects SDUs at the address from which it last sent.
    fn answering(&mut self, socket_id: SocketId, from: SocketAddr) -> Option<usize> {
        let at = self.rlite()?.calls.get(&socket_id).copied()?;
        let peer = &mut self.flows.get_mut(at)?.peer;
        if peer.address?.ip() != from.ip() {
            return None;
        }
        peer.address = Some(from);
        Some(at)
    }

    /// Continues when the resolver knows the name of an address: its first datagrams start flows.
    pub(super) fn named_rlite(&mut self, ip: IpAddr, remote: AppName, links: &mut Links) {
        let now = self.now;
        let Some(waiting) = self.rlite().and_then(|rlite| rlite.unresolved.remove(&ip)) else {
            return;
        };
        for (from, packet) in waiting {
            if let Some(at) = self
                .rlite()
                .and_then(|rlite| rlite.by_peer.get(&from).copied())
            {
                self.flows.deliver(at, packet, links);
                continue;
            }
            let called = self.flows.connecting(&packet).map(|names| names.local);
            let Some(local) = called.or_else(|| self.guessed_name()) else {
                self.flows.row.add(Value::DropUnknownChannel, 1);
                continue;
            };
            let names = Names {
                local,
                remote: remote.clone(),
            };
            let peer = Peer {
                address: Some(from),
                socket_id: SocketId::LISTEN,
                own: 0,
                theirs: None,
                pace: Pace::default(),
            };
            let Some(at) = self.flows.add_incoming(now, names, peer) else {
                continue;
            };
            if let Some(rlite) = self.rlite() {
                rlite.by_peer.insert(from, at);
            }
            self.flows.deliver(at, packet, links);
        }
    }
}

/// Largest number of addresses whose names are resolved at a time, or whose ended flows are
/// remembered.
const UNRESOLVED_MAX: usize = 256;

/// Largest number of datagrams of one address that wait for its name.
const WAITING_MAX: usize = 64;

/// How long datagrams belong to a flow that has ended on this side. The peer detects the end
/// only because nothing arrives any more.
const LATE: Duration = Duration::from_secs(30);
