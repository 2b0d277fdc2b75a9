//! The core: all state of the node, owned by one thread. Each part of the state has a module of its
//! own.
//!
//! Modules below the core hold state: [`crate::connections`], [`crate::endpoints`],
//! [`crate::ipcps`], [`crate::users`], [`crate::rib_queries`], [`crate::journal`],
//! [`crate::rules`]. They do not use the core. Modules above it hold the handlers as methods of
//! [`Core`], which [`crate::event_loop`] calls. This module imports no handler.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use carina_api::{DifName, IpcpId, PortId};
use carina_dataplane::{DataPlane, Workers};
use carina_gateway::{Services, Setting};
use carina_ip::{IpSettings, Members};
use carina_sys::{Epoll, EventFd, Interest, SocketWatch};

use crate::config::{Limits, Placement};
use crate::connections::{ConnectionId, Connections};
use crate::endpoints::Endpoints;
use crate::ipcps::Ipcps;
use crate::journal::Journal;
use crate::requests::ControlRequest;
use crate::rib_queries::RibQueries;
use crate::rules::Rules;
use crate::run_directory::RunDirLock;
use crate::users::Users;

/// All state of a node.
pub(crate) struct Core {
    pub epoll: Epoll,
    pub run_dir_lock: RunDirLock,
    /// The name of this system that peers see.
    pub name: String,
    pub start: Instant,
    pub journal: Journal,
    pub rules: Rules,
    pub limits: Limits,
    /// DIFs to search before all others, for example for the destination of a flow.
    pub dif_order: Vec<DifName>,
    /// The data-plane threads, as configured.
    pub workers: Workers,
    /// Workers configured for IPCPs and VMs, by their names. Others are placed where there is room.
    pub placement: Placement,
    /// The listening socket `ipc.sock`, on which applications connect.
    pub listener: OwnedFd,
    pub connections: Connections,
    pub users: Users,
    pub ipcps: Ipcps,
    pub endpoints: Endpoints,
    /// Queries to RIBs that have not been answered yet.
    pub rib: RibQueries,
    /// Whether there are flows over sockets that the node handed over. The node must poll to notice
    /// their ends.
    pub has_socket_flows: bool,
    /// Detects when sockets that the node handed over are closed.
    pub socket_watch: SocketWatch,
    pub last_watched: u64,
    /// The services that `[[expose]]` and `[[connect]]` ask for.
    pub configured_services: Vec<Setting>,
    /// The thread that serves these and the doors of VMs; `None` until there is one of them.
    pub services: Option<Services>,
    /// The interfaces that `[[ip]]` asks for.
    pub configured_ips: Vec<IpSettings>,
    /// The threads of these and of the IP links of VMs.
    pub ip_members: Members,
    pub next_socket_poll: Instant,
    /// Before this time the node makes no early check for the end of socket flows.
    pub next_early_poll: Instant,
    pub plane: DataPlane,
    /// Memory barriers of other processes cost this node nothing: the process has registered for
    /// them, and the system has one processor. With several processors, the barrier of a process
    /// that is about to sleep interrupts every processor that runs a node or an application, often
    /// for unrelated flows, which costs several microseconds on virtual processors. There a node
    /// orders its rings with fences instead, since it publishes only once per burst.
    pub barrier_is_free: bool,
    /// Requests from other threads.
    pub requests: Receiver<ControlRequest>,
    /// Signalled for each request, and to stop the node.
    pub doorbell: EventFd,
    pub stop: Arc<AtomicBool>,
    /// Buffer for one message of an application. The node reuses it, so that receiving a message
    /// allocates nothing.
    pub message: Vec<u8>,
}

/// The object that a descriptor in the `epoll` belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token {
    /// `ipc.sock`, the socket on which the node accepts applications.
    Listener,
    /// The doorbell for requests and for stopping.
    Doorbell,
    /// The data plane, which has events.
    Plane,
    /// A connection of an application.
    Connection(ConnectionId),
    /// The control socket of a flow.
    FlowControl(PortId),
    /// The ivshmem socket of a VM.
    Vm(IpcpId),
}

impl Token {
    /// The 64-bit form for `epoll`: the kind in the upper 8 bits, the id in the others.
    pub(crate) fn pack(self) -> u64 {
        let (kind, id) = match self {
            Self::Listener => (0, 0),
            Self::Doorbell => (1, 0),
            Self::Plane => (2, 0),
            Self::Connection(id) => (3, id),
            Self::FlowControl(port) => (4, u64::from(port.0)),
            Self::Vm(ipcp) => (5, u64::from(ipcp.0)),
        };
        kind << 56 | id
    }

    pub(crate) fn unpack(token: u64) -> Self {
        let id = token & (u64::MAX >> 8);
        match token >> 56 {
            0 => Self::Listener,
            1 => Self::Doorbell,
            2 => Self::Plane,
            3 => Self::Connection(id),
            4 => Self::FlowControl(PortId(id as u32)),
            _ => Self::Vm(IpcpId(id as u16)),
        }
    }
}

impl Core {
    /// True when a signal or the owner of the node has stopped it.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Adds the descriptors that exist from the start to the `epoll`.
    ///
    /// # Errors
    /// The error of the kernel.
    pub(crate) fn watch(&self) -> io::Result<()> {
        self.epoll
            .add(&self.listener, Token::Listener.pack(), Interest::Read)?;
        self.epoll
            .add(&self.doorbell, Token::Doorbell.pack(), Interest::Read)?;
        self.epoll
            .add(self.plane.as_fd(), Token::Plane.pack(), Interest::Read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_packing() {
        for token in [
            Token::Listener,
            Token::Doorbell,
            Token::Plane,
            Token::Connection(u64::MAX >> 8),
            Token::FlowControl(PortId(u32::MAX)),
            Token::Vm(IpcpId(u16::MAX)),
        ] {
            assert_eq!(Token::unpack(token.pack()), token);
        }
    }
}
