//! Events that the data plane reports to the manager.

use carina_api::{AppName, FlowSpec, IpcpId, PortId};

/// An event that the data plane reports to the manager. The data plane has chosen the port-ids in
/// events with bit 31 set; the manager has chosen the others.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The peer of an IPCP is connected and has sent its hello, or the medium of a shim is up.
    LinkUp {
        /// Id of the IPCP that the event is about.
        ipcp: IpcpId,
        /// Name by which the peer introduces itself. For a shim over a network: the interface, or
        /// the address on which the shim listens.
        peer: String,
    },
    /// The peer of an IPCP has disconnected, or the medium is down. Every flow of the IPCP has
    /// failed.
    LinkDown {
        /// Id of the IPCP that the event is about.
        ipcp: IpcpId,
        /// Why the link is down or the flow ended, as text for people.
        reason: String,
    },
    /// The longest SDU of a shim over a network has changed. If it has become shorter, all flows of
    /// the shim have failed.
    SduMaxChanged {
        /// Id of the IPCP that the event is about.
        ipcp: IpcpId,
        /// The new longest SDU, in bytes.
        sdu_bytes_max: usize,
    },
    /// A shim over a network has registered a name. From now on it does not refuse requests for the
    /// name.
    Registered {
        /// Id of the IPCP that the event is about.
        ipcp: IpcpId,
        /// Name of the application on this system.
        name: AppName,
    },
    /// An application has become reachable at the peer of an IPCP, so that flows to it can be
    /// requested.
    PeerRegistered {
        /// The IPCP through which the application is reached.
        ipcp: IpcpId,
        /// Name of the application to which flows can now be requested.
        name: AppName,
    },
    /// An application is no longer reachable at the peer of an IPCP.
    PeerUnregistered {
        /// The IPCP through which the application was reached.
        ipcp: IpcpId,
        /// Name of the application that is no longer reachable.
        name: AppName,
    },
    /// The peer of an IPCP requests a flow; the manager must answer with
    /// [`Command::Respond`](crate::Command::Respond).
    IncomingFlow {
        /// The IPCP through which the request came.
        ipcp: IpcpId,
        /// Port-id of the flow on this system.
        port: PortId,
        /// Name of the called application, on this system.
        local: AppName,
        /// Name of the calling application, at the peer.
        remote: AppName,
        /// The requested flow specification.
        spec: FlowSpec,
    },
    /// Result of [`Command::Allocate`](crate::Command::Allocate): the flow is allocated, or the
    /// allocation failed.
    AllocateResult {
        /// Port-id of the request.
        port: PortId,
        /// `Ok` if the flow is open, otherwise the reason.
        result: Result<(), String>,
    },
    /// A flow has ended, or a request that the manager has not answered was cancelled. The port-id
    /// is free again. Reported once.
    FlowClosed {
        /// Port-id of the flow.
        port: PortId,
        /// Why the link is down or the flow ended, as text for people.
        reason: String,
    },
    /// An event of a normal IPCP about its membership, neighbours or RIB. Its events about names
    /// and flows are reported by the variants above, as for any IPCP.
    Member {
        /// Id of the IPCP that the event is about.
        ipcp: IpcpId,
        /// The event that the IPCP's state machine emitted.
        event: carina_ipcp::Event,
    },
}
