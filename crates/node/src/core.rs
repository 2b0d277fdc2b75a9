//! The core: one thread that owns all state of the node and waits for everything at once.
//!
//! Applications, flows' control sockets, the sockets of VMs, events of the data plane and
//! questions from `control.sock` arrive here through one `epoll`; nothing else locks or shares
//! anything.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use carina_api::{ErrorBody, ErrorCode, IpcpId, PortId};
use carina_dataplane::DataPlane;
use carina_sys::{Epoll, EventFd, Interest, Ready};

use crate::config::Limits;
use crate::conns::{Conn, ConnId};
use crate::ends::End;
use crate::ipcps::Ipcp;
use crate::journal::Journal;
use crate::queries::Order;
use crate::rib::RibDesk;
use crate::rules::Rules;
use crate::rundir::Claim;

/// All state of a node.
pub struct Core {
    pub epoll: Epoll,
    pub claim: Claim,
    pub name: String,
    pub start: Instant,
    pub journal: Journal,
    pub rules: Rules,
    pub limits: Limits,
    pub dif_order: Vec<carina_api::DifName>,
    /// `ipc.sock`.
    pub listener: OwnedFd,
    pub conns: BTreeMap<ConnId, Conn>,
    pub next_conn: ConnId,
    /// Connections to close at the end of the turn.
    pub doomed: Vec<ConnId>,
    pub usage: BTreeMap<u32, Usage>,
    pub ipcps: BTreeMap<IpcpId, Ipcp>,
    /// IPCPs in the order in which they were made.
    pub made: Vec<IpcpId>,
    pub next_ipcp: u16,
    pub ends: BTreeMap<PortId, End>,
    /// Flows that the data plane relays within this system: their IPCP and both ends, by the port
    /// of the end that asked.
    pub relays: BTreeMap<PortId, (IpcpId, [PortId; 2])>,
    /// Questions to RIBs that are not answered yet.
    pub rib: RibDesk,
    pub next_port: u32,
    pub deadlines: BTreeSet<(Instant, PortId)>,
    /// There are flows whose end must be looked for.
    pub socket_flows: bool,
    pub next_sweep: Instant,
    pub plane: DataPlane,
    /// This process has registered for memory barriers, and there is one processor only. With
    /// more, the barrier of a sleeper interrupts each that runs a node or an application, often on
    /// behalf of flows that have nothing to do with it: several microseconds each where processors
    /// are virtual. A node publishes once per burst, so its rings are ordered by fences there.
    pub barrier_is_free: bool,
    pub orders: Receiver<Order>,
    pub doorbell: EventFd,
    pub stop: Arc<AtomicBool>,
    /// Room for one message, kept from turn to turn.
    pub message: Vec<u8>,
}

/// What one user has.
#[derive(Debug, Default)]
pub struct Usage {
    pub connections: u32,
    pub flows: u32,
    pub ring_bytes: u64,
}

/// What a descriptor in the `epoll` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// `ipc.sock`.
    Listener,
    /// The doorbell of orders and of the stop.
    Doorbell,
    /// Events of the data plane.
    Plane,
    /// A connection.
    Conn(ConnId),
    /// The control socket of a flow.
    Tether(PortId),
    /// The ivshmem socket of a VM.
    Vm(IpcpId),
}

impl Token {
    /// The token as `epoll` keeps it: the kind in the upper 8 bits.
    pub fn pack(self) -> u64 {
        let (kind, id) = match self {
            Self::Listener => (0, 0),
            Self::Doorbell => (1, 0),
            Self::Plane => (2, 0),
            Self::Conn(id) => (3, id),
            Self::Tether(port) => (4, u64::from(port.0)),
            Self::Vm(ipcp) => (5, u64::from(ipcp.0)),
        };
        kind << 56 | id
    }

    fn unpack(token: u64) -> Self {
        let id = token & (u64::MAX >> 8);
        match token >> 56 {
            0 => Self::Listener,
            1 => Self::Doorbell,
            2 => Self::Plane,
            3 => Self::Conn(id),
            4 => Self::Tether(PortId(id as u32)),
            _ => Self::Vm(IpcpId(id as u16)),
        }
    }
}

impl Core {
    /// Watches what is there from the start.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn watch(&self) -> io::Result<()> {
        self.epoll
            .add(&self.listener, Token::Listener.pack(), Interest::Read)?;
        self.epoll
            .add(&self.doorbell, Token::Doorbell.pack(), Interest::Read)?;
        self.epoll
            .add(self.plane.as_fd(), Token::Plane.pack(), Interest::Read)
    }

    /// Runs until it is told to stop.
    pub fn run(mut self) {
        let mut ready = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let wait = self.wait_ns();
            if let Err(error) = self.epoll.wait(&mut ready, wait) {
                // Without epoll nothing can be served; the descriptors close with the core.
                tracing::error!(%error, "the node cannot wait and ends");
                break;
            }
            for ready in &ready {
                self.turn(*ready);
            }
            let now = Instant::now();
            self.expire(now);
            self.tend_members(now);
            self.tell_n1_difs();
            self.rib.expire(now);
            self.visit_vms();
            if self.socket_flows && now >= self.next_sweep {
                self.next_sweep = now + SWEEP;
                self.sweep_sockets();
            }
            for id in std::mem::take(&mut self.doomed) {
                self.close_conn(id);
            }
        }
        self.shut_down();
    }

    fn turn(&mut self, ready: Ready) {
        match Token::unpack(ready.token) {
            Token::Listener => self.accept_all(),
            Token::Doorbell => {
                self.doorbell.drain();
                while let Ok(order) = self.orders.try_recv() {
                    self.obey(order);
                }
            }
            Token::Plane => self.hear_plane(),
            Token::Conn(id) => self.read_conn(id),
            Token::Tether(port) => self.read_tether(port),
            Token::Vm(ipcp) => self.read_vm(ipcp),
        }
    }

    /// An application says nothing on a flow's control socket; it only closes it.
    fn read_tether(&mut self, port: PortId) {
        let Some(tether) = self
            .ends
            .get_mut(&port)
            .and_then(|e| e.live()?.tether.as_ref())
        else {
            return;
        };
        match carina_sys::recv_with_fds(tether.as_fd(), &mut [0; 64]) {
            Ok(datagram) if datagram.bytes > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
            _ => self.end_is_gone(port),
        }
    }

    fn wait_ns(&self) -> Option<u64> {
        let sweep = self.socket_flows.then_some(self.next_sweep);
        let deadline = self.deadlines.first().map(|(until, _)| *until);
        let members = self.member_deadline();
        let rib = self.rib.deadline();
        let next = [sweep, deadline, self.vm_deadline(), members, rib]
            .into_iter()
            .flatten()
            .min()?;
        // One millisecond more, so that what is due at `next` is due after the wait.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        Some(wait.as_nanos() as u64)
    }

    /// Takes a free port of the node's own half.
    pub fn free_port(&mut self) -> PortId {
        loop {
            let port = PortId(self.next_port);
            self.next_port = if self.next_port >= PORT_MAX {
                1
            } else {
                self.next_port + 1
            };
            if !self.ends.contains_key(&port) {
                return port;
            }
        }
    }

    /// Charges a user for a flow and its rings.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn charge(&mut self, uid: u32, ring_bytes: u64) -> Result<(), ErrorBody> {
        let flows = self.usage.entry(uid).or_default().flows;
        if flows >= self.limits.flows_per_uid {
            let what = format!("user {uid} has {flows} flows; that is the limit");
            return Err(ErrorBody::new(ErrorCode::LimitReached, what));
        }
        self.charge_bytes(uid, ring_bytes)?;
        self.usage.entry(uid).or_default().flows += 1;
        Ok(())
    }

    /// Charges a user for rings of a flow that is counted already.
    ///
    /// # Errors
    /// The limit that is reached.
    pub fn charge_bytes(&mut self, uid: u32, ring_bytes: u64) -> Result<(), ErrorBody> {
        let limit = self.limits.ring_bytes_per_uid;
        let usage = self.usage.entry(uid).or_default();
        let sum = usage.ring_bytes.saturating_add(ring_bytes);
        if sum > limit {
            let what =
                format!("the rings of user {uid} would have {sum} bytes; {limit} is the limit");
            return Err(ErrorBody::new(ErrorCode::LimitReached, what));
        }
        usage.ring_bytes = sum;
        Ok(())
    }

    /// Takes a charge for a flow back.
    pub fn discharge(&mut self, uid: u32, ring_bytes: u64) {
        if let Some(usage) = self.usage.get_mut(&uid) {
            usage.flows = usage.flows.saturating_sub(1);
            usage.ring_bytes = usage.ring_bytes.saturating_sub(ring_bytes);
            if usage.connections == 0 && usage.flows == 0 {
                self.usage.remove(&uid);
            }
        }
    }

    /// Ends in order: applications read "the node stops", peers read a deallocation.
    fn shut_down(&mut self) {
        let ports: Vec<PortId> = self.ends.keys().copied().collect();
        for port in ports {
            self.stop_end(port);
        }
        // Those above go first, so that what they say at their end still finds a way.
        let ids: Vec<IpcpId> = self.made.iter().rev().copied().collect();
        for id in ids {
            if let Some((name, vm)) = self.take_ipcp(id, "the node stops") {
                self.remove_vm(&name, vm, true);
            }
        }
    }
}

const PORT_MAX: u32 = 0x7fff_ffff;

/// How often the node looks for the end of flows that it holds no descriptor of.
const SWEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for token in [
            Token::Listener,
            Token::Doorbell,
            Token::Plane,
            Token::Conn(u64::MAX >> 8),
            Token::Tether(PortId(u32::MAX)),
            Token::Vm(IpcpId(u16::MAX)),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
