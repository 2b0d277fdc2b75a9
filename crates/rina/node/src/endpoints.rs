//! Endpoints of flows: one for each application, or normal IPCP of this system, that has, or is
//! about to have, a flow. An endpoint is what the Flow Allocator knows under a port-id.
//!
//! ```text
//!            allocate                           incoming flow
//!               |                                    |
//!           Requested --denied, late--> (gone)   Incoming --denied, late--> (gone)
//!               |                                    | accepted
//!               |                                 Accepted
//!               +------------> Allocated <-----------+
//!                               |     \
//!          application closes   |      \  other end closes: the closure is reported
//!                               v       v
//!                            (gone)  Allocated --application closes--> (gone)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use carina_api::ipc::Mode;
use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_dataplane::StreamSocket;
use carina_ipcp::N1Port;
use carina_ring::channel::{ChannelMemory, Side};

use crate::connections::ConnectionId;

/// One end of a flow.
pub struct Endpoint {
    pub ipcp: IpcpId,
    pub owner: FlowOwner,
    pub local: AppName,
    pub remote: AppName,
    pub spec: FlowSpec,
    pub uid: u32,
    pub pid: i32,
    pub mode: Mode,
    /// The socket that the application attached, until the flow is made of it.
    pub attached: Option<StreamSocket>,
    /// The application's process has registered for memory barriers.
    pub membarrier: bool,
    /// Bytes of each ring.
    pub ring_bytes: usize,
    /// Bytes of rings for which the user is charged.
    pub charge: u64,
    pub stage: Stage,
}

/// The user of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowOwner {
    /// An application.
    App,
    /// A normal IPCP, as its N-1 flow of that number.
    Ipcp(IpcpId, N1Port),
}

/// The stage of an endpoint's flow.
pub enum Stage {
    /// The owner has asked and waits for the other side. An IPCP has no connection.
    Requested {
        conn: Option<ConnectionId>,
        until: Instant,
        channel_end: Option<ChannelEnd>,
    },
    /// The application has been asked and has not answered.
    Incoming {
        conn: ConnectionId,
        request: u32,
        until: Instant,
    },
    /// The owner has accepted and waits for the flow; an application for its descriptors.
    Accepted { answer: Option<(ConnectionId, u32)> },
    /// The owner has the flow; an application has its descriptors.
    Allocated(AllocatedFlow),
}

/// What an application is given: made before the flow is.
pub enum ChannelEnd {
    /// One side of a channel.
    Ring {
        channel: Arc<ChannelMemory>,
        side: Side,
        light: bool,
    },
    /// A socket whose other end the data plane or the other application has.
    Socket(OwnedFd),
    /// Nothing: the application attached its end.
    Attached,
    /// Nothing: an IPCP is linked on the data plane.
    Ipcp,
}

/// What the node keeps of a flow that an application has.
pub struct AllocatedFlow {
    /// The node's end of the flow's control socket; none but in ring mode.
    pub control_socket: Option<OwnedFd>,
    /// The channel and the application's side of it; none but in ring mode.
    pub channel: Option<(Arc<ChannelMemory>, Side)>,
    pub data_path: DataPath,
    /// The end of the flow was reported to the application.
    pub close_reported: bool,
    /// The other end closed its stream before it went.
    pub peer_graceful: bool,
}

/// What is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataPath {
    /// The data plane.
    Plane,
    /// Another application, over shared memory.
    Direct(PortId),
    /// Another application, over sockets; one of them is watched under that token, and the flow
    /// ends when all descriptors of it are closed.
    Sockets { peer: PortId, watched: u64 },
    /// Another end of this system, through a relay on the data plane known as `relay`.
    Relayed { peer: PortId, relay: PortId },
}

impl Endpoint {
    /// When the answer is due, where one is awaited.
    pub fn until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Requested { until, .. } | Stage::Incoming { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The flow that the application has.
    pub fn allocated(&mut self) -> Option<&mut AllocatedFlow> {
        match &mut self.stage {
            Stage::Allocated(allocated) => Some(allocated),
            _ => None,
        }
    }
}

impl DataPath {
    /// The other end, when it is an application of this system.
    pub fn peer(self) -> Option<PortId> {
        match self {
            Self::Plane => None,
            Self::Direct(peer) | Self::Sockets { peer, .. } | Self::Relayed { peer, .. } => {
                Some(peer)
            }
        }
    }
}

/// All endpoints, the relays between two of them, and when their answers are due.
pub struct Endpoints {
    table: BTreeMap<PortId, Endpoint>,
    /// Flows that the data plane relays within this system, by the port of the end that asked.
    relays: BTreeMap<PortId, Relay>,
    deadlines: BTreeSet<(Instant, PortId)>,
    next_port: u32,
}

/// A flow that the data plane relays between two endpoints of this system.
pub struct Relay {
    pub ipcp: IpcpId,
    pub ends: [PortId; 2],
}

impl Default for Endpoints {
    fn default() -> Endpoints {
        Endpoints {
            table: BTreeMap::new(),
            relays: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            next_port: 1,
        }
    }
}

impl Endpoints {
    /// A free port-id of the node's own half.
    pub fn unused_port(&mut self) -> PortId {
        loop {
            let port = PortId(self.next_port);
            self.next_port = if self.next_port >= PORT_MAX {
                1
            } else {
                self.next_port + 1
            };
            if !self.table.contains_key(&port) {
                return port;
            }
        }
    }

    /// Adds an endpoint and, where an answer is awaited, the time until which it must come.
    pub fn insert(&mut self, port: PortId, endpoint: Endpoint) {
        if let Some(until) = endpoint.until() {
            self.deadlines.insert((until, port));
        }
        self.table.insert(port, endpoint);
    }

    pub fn get(&self, port: PortId) -> Option<&Endpoint> {
        self.table.get(&port)
    }

    pub fn get_mut(&mut self, port: PortId) -> Option<&mut Endpoint> {
        self.table.get_mut(&port)
    }

    /// The flow at a port, where it is allocated.
    pub fn allocated_mut(&mut self, port: PortId) -> Option<&mut AllocatedFlow> {
        self.table.get_mut(&port)?.allocated()
    }

    pub fn contains(&self, port: PortId) -> bool {
        self.table.contains_key(&port)
    }

    pub fn iter(&self) -> impl Iterator<Item = (PortId, &Endpoint)> {
        self.table.iter().map(|(port, endpoint)| (*port, endpoint))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Endpoint)> {
        let table = self.table.iter_mut();
        table.map(|(port, endpoint)| (*port, endpoint))
    }

    pub fn ports(&self) -> Vec<PortId> {
        self.table.keys().copied().collect()
    }

    /// The ports over one IPCP.
    pub fn ports_over(&self, ipcp: IpcpId) -> Vec<PortId> {
        let over = self.iter().filter(|(_, endpoint)| endpoint.ipcp == ipcp);
        over.map(|(port, _)| port).collect()
    }

    /// Number of allocated flows over one IPCP.
    pub fn flows_over(&self, ipcp: IpcpId) -> u32 {
        let is_flow =
            |end: &&Endpoint| end.ipcp == ipcp && matches!(end.stage, Stage::Allocated(_));
        self.table.values().filter(is_flow).count() as u32
    }

    pub fn remove(&mut self, port: PortId) -> Option<Endpoint> {
        let endpoint = self.table.remove(&port)?;
        if let Some(until) = endpoint.until() {
            self.deadlines.remove(&(until, port));
        }
        Some(endpoint)
    }

    /// The flow of an endpoint is allocated.
    pub fn allocate(&mut self, port: PortId, flow: AllocatedFlow) -> Option<&mut Endpoint> {
        let endpoint = self.table.get_mut(&port)?;
        if let Some(until) = endpoint.until() {
            self.deadlines.remove(&(until, port));
        }
        endpoint.stage = Stage::Allocated(flow);
        Some(endpoint)
    }

    /// When the next answer is due.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Takes the deadline of an endpoint whose answer is overdue at `now`.
    pub fn take_overdue(&mut self, now: Instant) -> Option<PortId> {
        while let Some(&(until, port)) = self.deadlines.first()
            && until <= now
        {
            self.deadlines.pop_first();
            if self.get(port).is_some_and(|end| end.until() == Some(until)) {
                return Some(port);
            }
        }
        None
    }

    /// Notes that the data plane relays between two endpoints.
    pub fn add_relay(&mut self, port: PortId, relay: Relay) {
        self.relays.insert(port, relay);
    }

    /// Forgets a relay that has ended.
    pub fn take_relay(&mut self, port: PortId) -> Option<Relay> {
        self.relays.remove(&port)
    }
}

impl std::ops::Index<PortId> for Endpoints {
    type Output = Endpoint;

    fn index(&self, port: PortId) -> &Endpoint {
        &self.table[&port]
    }
}

/// The largest port-id of the node's own half.
const PORT_MAX: u32 = 0x7fff_ffff;
