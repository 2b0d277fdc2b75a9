//! The events of the data plane for the manager.

use carina_api::{AppName, FlowSpec, IpcpId, PortId};

/// What happened on the data plane. Ports with bit 31 set are the data plane's choice.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The peer of an IPCP is there and has said hello.
    LinkUp {
        /// Which IPCP.
        ipcp: IpcpId,
        /// The peer's name as it calls itself; for a shim over a network the interface, or the
        /// address at which it listens.
        peer: String,
    },
    /// The peer is gone; every flow of the IPCP has failed.
    LinkDown {
        /// Which IPCP.
        ipcp: IpcpId,
        /// What went wrong.
        reason: String,
    },
    /// The longest SDU of a shim over a network has changed. Flows that were opened with a larger
    /// value have failed.
    SduMaxChanged {
        /// Which IPCP.
        ipcp: IpcpId,
        /// In bytes.
        sdu_bytes_max: usize,
    },
    /// A shim over a network serves a name: requests for it are not refused from here on.
    Registered {
        /// Which IPCP.
        ipcp: IpcpId,
        /// The application of this system.
        name: AppName,
    },
    /// An application can be reached at the peer.
    PeerRegistered {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
    },
    /// An application can no longer be reached at the peer.
    PeerUnregistered {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
    },
    /// The peer requests a flow; the manager must answer with
    /// [`Command::Respond`](crate::Command::Respond).
    IncomingFlow {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The port of the flow in this system.
        port: PortId,
        /// The application of this system.
        local: AppName,
        /// The application of the peer.
        remote: AppName,
        /// The requested quality.
        spec: FlowSpec,
    },
    /// The peer has answered an allocation.
    AllocateResult {
        /// The port of the request.
        port: PortId,
        /// The flow is open, or why it is not.
        result: Result<(), String>,
    },
    /// A flow (or a request for one that the manager has not answered) has ended; the port is
    /// free again. Comes once.
    FlowClosed {
        /// Which flow.
        port: PortId,
        /// Why.
        reason: String,
    },
    /// An event of a normal IPCP about its membership, neighbours or RIB. Its events about names
    /// and flows come as the variants above, as from any other IPCP.
    Member {
        /// Which IPCP.
        ipcp: IpcpId,
        /// The event.
        event: carina_ipcp::Event,
    },
}
