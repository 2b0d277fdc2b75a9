//! Endpoints of flows: the state of one end of a flow, or of a request for one. Its user is an
//! application or a normal IPCP of this system. The Flow Allocator knows an endpoint by its
//! port-id.
//!
//! ```text
//!            allocate                           incoming flow
//!               |                                    |
//!           Requested --denied, timeout--> (gone)  Incoming --denied, timeout--> (gone)
//!               |                                    | accepted
//!               |                                 Accepted
//!               +------------> Allocated <-----------+
//!                               |     \
//!          application closes   |      \  other end closes: the application is notified
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
pub(crate) struct Endpoint {
    pub ipcp: IpcpId,
    pub owner: FlowOwner,
    pub local: AppName,
    pub remote: AppName,
    pub spec: FlowSpec,
    pub uid: u32,
    pub pid: i32,
    pub mode: Mode,
    /// The socket that the application attached; `None` if it attached no socket, and after the
    /// flow is made.
    pub attached: Option<StreamSocket>,
    /// Whether the request and the flow continue when the connection that made the request closes.
    pub is_detached: bool,
    /// Whether the application's process has registered for memory barriers.
    pub membarrier: bool,
    /// Size of each ring in bytes.
    pub ring_bytes: usize,
    /// Bytes of rings that the endpoint counts toward the user's limit.
    pub charge: u64,
    pub stage: Stage,
}

/// The user of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FlowOwner {
    /// An application.
    App,
    /// A normal IPCP, with the number of the flow among its N-1 flows.
    Ipcp(IpcpId, N1Port),
}

/// The stage of an endpoint's flow.
pub(crate) enum Stage {
    /// The owner has requested the flow and waits for the other side. `conn` is `None` if the owner
    /// is an IPCP.
    Requested {
        conn: Option<ConnectionId>,
        until: Instant,
        channel_end: Option<ChannelEnd>,
    },
    /// The called application has been asked and has not answered yet.
    Incoming {
        conn: ConnectionId,
        request: u32,
        until: Instant,
    },
    /// The owner has accepted the flow and waits for it. `answer` is the connection and request of
    /// an application, which waits for descriptors.
    Accepted { answer: Option<(ConnectionId, u32)> },
    /// The owner has the flow; an application has its descriptors.
    Allocated(AllocatedFlow),
}

/// The owner's end of a flow, made before the flow exists.
pub(crate) enum ChannelEnd {
    /// One side of a channel in shared memory.
    Ring {
        channel: Arc<ChannelMemory>,
        side: Side,
        light: bool,
    },
    /// A socket for the owner. The data plane or the other application has its other end.
    Socket(OwnedFd),
    /// Nothing to hand over: the application attached one end of its own socket and uses the other.
    Attached,
    /// An IPCP uses the flow: it is linked on the data plane, and no descriptor is handed over.
    Ipcp,
}

/// What the node holds of an allocated flow.
pub(crate) struct AllocatedFlow {
    /// The node's end of the flow's control socket; `None` except in ring mode.
    pub control_socket: Option<OwnedFd>,
    /// The channel and the application's side of it; `None` except in ring mode.
    pub channel: Option<(Arc<ChannelMemory>, Side)>,
    pub data_path: DataPath,
    /// Whether the end of the flow has been reported to the application.
    pub close_reported: bool,
    /// Whether the other end closed its stream normally, not by a failure.
    pub peer_graceful: bool,
}

/// What connects the owner to the other end of the flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DataPath {
    /// The data plane moves the SDUs.
    Plane,
    /// Shared memory, directly to another application at this port.
    Direct(PortId),
    /// A socket connection, directly to another application. The node watches one of its sockets
    /// under the token `watched`; the flow ends when all descriptors of that socket are closed.
    Sockets { peer: PortId, watched: u64 },
    /// A relay on the data plane, to another endpoint of this system. `relay` is the relay's
    /// port-id.
    Relayed { peer: PortId, relay: PortId },
}

impl Endpoint {
    /// When the answer is due, if one is awaited.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Requested { until, .. } | Stage::Incoming { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The allocated flow of the endpoint; `None` in other stages.
    pub(crate) fn allocated(&mut self) -> Option<&mut AllocatedFlow> {
        match &mut self.stage {
            Stage::Allocated(allocated) => Some(allocated),
            _ => None,
        }
    }
}

impl DataPath {
    /// The other end, if it is in this system.
    pub(crate) fn peer(self) -> Option<PortId> {
        match self {
            Self::Plane => None,
            Self::Direct(peer) | Self::Sockets { peer, .. } | Self::Relayed { peer, .. } => {
                Some(peer)
            }
        }
    }
}

/// All endpoints, the relays between two of them, and the deadlines of awaited answers.
pub(crate) struct Endpoints {
    table: BTreeMap<PortId, Endpoint>,
    /// Relays by the port of the end that requested the flow.
    relays: BTreeMap<PortId, Relay>,
    deadlines: BTreeSet<(Instant, PortId)>,
    next_port: u32,
}

/// A flow that the data plane relays between two endpoints of this system.
pub(crate) struct Relay {
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
    /// Returns a free port-id from the range that the node assigns.
    pub(crate) fn unused_port(&mut self) -> PortId {
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

    /// Adds an endpoint, with its deadline if an answer is awaited.
    pub(crate) fn insert(&mut self, port: PortId, endpoint: Endpoint) {
        if let Some(until) = endpoint.until() {
            self.deadlines.insert((until, port));
        }
        self.table.insert(port, endpoint);
    }

    pub(crate) fn get(&self, port: PortId) -> Option<&Endpoint> {
        self.table.get(&port)
    }

    pub(crate) fn get_mut(&mut self, port: PortId) -> Option<&mut Endpoint> {
        self.table.get_mut(&port)
    }

    /// The allocated flow at a port; `None` if no endpoint or no allocated flow is there.
    pub(crate) fn allocated_mut(&mut self, port: PortId) -> Option<&mut AllocatedFlow> {
        self.table.get_mut(&port)?.allocated()
    }

    pub(crate) fn contains(&self, port: PortId) -> bool {
        self.table.contains_key(&port)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PortId, &Endpoint)> {
        self.table.iter().map(|(port, endpoint)| (*port, endpoint))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PortId, &mut Endpoint)> {
        let table = self.table.iter_mut();
        table.map(|(port, endpoint)| (*port, endpoint))
    }

    pub(crate) fn ports(&self) -> Vec<PortId> {
        self.table.keys().copied().collect()
    }

    /// The ports of all endpoints over one IPCP.
    pub(crate) fn ports_over(&self, ipcp: IpcpId) -> Vec<PortId> {
        let over = self.iter().filter(|(_, endpoint)| endpoint.ipcp == ipcp);
        over.map(|(port, _)| port).collect()
    }

    /// Number of allocated flows over one IPCP.
    pub(crate) fn flows_over(&self, ipcp: IpcpId) -> u32 {
        let is_flow =
            |end: &&Endpoint| end.ipcp == ipcp && matches!(end.stage, Stage::Allocated(_));
        self.table.values().filter(is_flow).count() as u32
    }

    pub(crate) fn remove(&mut self, port: PortId) -> Option<Endpoint> {
        let endpoint = self.table.remove(&port)?;
        if let Some(until) = endpoint.until() {
            self.deadlines.remove(&(until, port));
        }
        Some(endpoint)
    }

    /// Marks the flow of an endpoint as allocated.
    pub(crate) fn allocate(&mut self, port: PortId, flow: AllocatedFlow) -> Option<&mut Endpoint> {
        let endpoint = self.table.get_mut(&port)?;
        if let Some(until) = endpoint.until() {
            self.deadlines.remove(&(until, port));
        }
        endpoint.stage = Stage::Allocated(flow);
        Some(endpoint)
    }

    /// Time at which the next answer of an application is due; `None` if none is awaited.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Takes the deadline of one endpoint whose answer is overdue at `now`, and returns its port.
    pub(crate) fn take_overdue(&mut self, now: Instant) -> Option<PortId> {
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

    /// Records that the data plane relays between two endpoints.
    pub(crate) fn add_relay(&mut self, port: PortId, relay: Relay) {
        self.relays.insert(port, relay);
    }

    /// Removes the record of a relay that has ended, and returns it.
    pub(crate) fn take_relay(&mut self, port: PortId) -> Option<Relay> {
        self.relays.remove(&port)
    }
}

impl std::ops::Index<PortId> for Endpoints {
    type Output = Endpoint;

    fn index(&self, port: PortId) -> &Endpoint {
        &self.table[&port]
    }
}

/// Largest port-id that the node assigns.
const PORT_MAX: u32 = 0x7fff_ffff;
