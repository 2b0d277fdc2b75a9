//! Ends of flows: one for each application, or normal IPCP of this system, that has, or is about
//! to have, a flow.
//!
//! ```text
//!            allocate                      incoming flow
//!               |                               |
//!             Asked --denied, late--> (gone)  Offered --denied, late--> (gone)
//!               |                               | accepted
//!               +-------------> Up <------------+
//!                               |  \
//!          application closes   |   \  other end closes: the application is told
//!                               v    v
//!                            (gone) Told --application closes--> (gone)
//! ```

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use carina_api::ipc::Mode;
use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_ipcp::N1Port;
use carina_ring::channel::{ChannelMemory, Side};

use crate::conns::ConnId;

/// One end of a flow.
pub struct End {
    pub ipcp: IpcpId,
    pub owner: Owner,
    pub local: AppName,
    pub remote: AppName,
    pub spec: FlowSpec,
    pub uid: u32,
    pub pid: i32,
    pub mode: Mode,
    /// The application's process has registered for memory barriers.
    pub membarrier: bool,
    /// Bytes of each ring.
    pub ring_bytes: usize,
    /// Bytes of rings for which the user is charged.
    pub charge: u64,
    pub stage: Stage,
}

/// Who has an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An application.
    App,
    /// A normal IPCP, as its N-1 flow of that number.
    Ipcp(IpcpId, N1Port),
}

/// How far an end is.
pub enum Stage {
    /// The owner has asked and waits for the other side. An IPCP has no connection.
    Asked {
        conn: Option<ConnId>,
        until: Instant,
        plug: Option<Plug>,
    },
    /// The application has been asked and has not answered.
    Offered {
        conn: ConnId,
        request: u32,
        until: Instant,
    },
    /// The owner has said yes and waits for the flow; an application for its descriptors.
    Accepted { answer: Option<(ConnId, u32)> },
    /// The owner has the flow; an application has its descriptors.
    Up(Live),
}

/// What an application is given: made before the flow is.
pub enum Plug {
    /// One side of a channel.
    Ring {
        channel: Arc<ChannelMemory>,
        side: Side,
        light: bool,
    },
    /// One end of a socket pair.
    Socket(OwnedFd),
    /// Nothing: an IPCP is linked on the data plane.
    Ipcp,
}

/// What the node keeps of a flow that an application has.
pub struct Live {
    /// The node's end of the flow's control socket; none in socket mode and for an IPCP.
    pub tether: Option<OwnedFd>,
    /// The channel and the application's side of it; none in socket mode and for an IPCP.
    pub channel: Option<(Arc<ChannelMemory>, Side)>,
    pub wiring: Wiring,
    /// The application has been told that the flow is over.
    pub told: bool,
    /// The other end closed its stream before it went.
    pub peer_graceful: bool,
}

/// What is at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wiring {
    /// The data plane.
    Plane,
    /// Another application, over shared memory.
    Direct(PortId),
    /// Another application, over a socket pair; the inode is that of this end's socket.
    Sockets { peer: PortId, inode: u64 },
    /// Another end of this system, through a relay on the data plane known as `relay`.
    Relayed { peer: PortId, relay: PortId },
}

impl End {
    /// When somebody must have answered.
    pub fn until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Asked { until, .. } | Stage::Offered { until, .. } => Some(until),
            _ => None,
        }
    }

    /// The flow that the application has.
    pub fn live(&mut self) -> Option<&mut Live> {
        match &mut self.stage {
            Stage::Up(live) => Some(live),
            _ => None,
        }
    }
}

impl Wiring {
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
