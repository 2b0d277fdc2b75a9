//! What the manager tells the data plane and what it hears back.

use std::os::fd::OwnedFd;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_ring::channel::Endpoint;
use carina_vmpi::hl::Side;
use carina_vmpi::ll::VmpiImpl;

/// The data plane's end of an application's flow.
pub enum FlowEnd {
    /// One end of a channel; the application holds the other.
    Ring(Box<Endpoint>),
    /// One end of a SOCK_SEQPACKET pair; the application holds the other. One message is one SDU
    /// of at most [`SOCKET_SDU_MAX`](crate::SOCKET_SDU_MAX) bytes.
    Socket(OwnedFd),
}

/// An order of the manager to the data plane. Orders are carried out in the order given.
pub enum Command {
    /// Starts a hypervisor shim over `device`. Answer: [`Event::LinkUp`] when the peer is there.
    AddHv {
        /// The id that later orders and events carry; must be new.
        ipcp: IpcpId,
        /// The VMPI device.
        device: Box<dyn VmpiImpl>,
        /// Which side of the device this system is.
        side: Side,
        /// The name of this system, told to the peer in its hello.
        name: String,
    },
    /// Ends an IPCP: its flows fail, its device is dropped.
    RemoveIpcp {
        /// Which one.
        ipcp: IpcpId,
    },
    /// Tells the peer that `name` can be reached here.
    Register {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
    },
    /// Tells the peer that `name` cannot be reached here any more.
    Unregister {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
    },
    /// Asks the peer for a flow. Answer: [`Event::AllocateResult`]; when that is an error the end
    /// has been closed.
    Allocate {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The port of the new flow: chosen by the manager, bit 31 clear.
        port: PortId,
        /// The calling application.
        local: AppName,
        /// The called application.
        remote: AppName,
        /// What is asked of the flow.
        spec: FlowSpec,
        /// The data plane's end of the flow.
        end: FlowEnd,
    },
    /// Answers [`Event::IncomingFlow`] with the end of the accepting application, or a reason.
    Respond {
        /// The port that the event carried.
        port: PortId,
        /// The end of the flow, or why there is none.
        answer: Result<FlowEnd, String>,
    },
    /// Joins two ends of this system that differ in kind; both are known as `port`.
    Relay {
        /// One end.
        a: FlowEnd,
        /// The other end.
        b: FlowEnd,
        /// The port that events carry; bit 31 clear.
        port: PortId,
    },
    /// Ends a flow: what the application has already sent is delivered first. Unknown ports are
    /// ignored, for the flow may just have ended by itself.
    Deallocate {
        /// Which flow.
        port: PortId,
        /// Why, told to the peer.
        reason: String,
    },
}

/// What happened on the data plane. Ports with bit 31 set are the data plane's choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer of an IPCP is there and has said hello.
    LinkUp {
        /// Which IPCP.
        ipcp: IpcpId,
        /// The peer's name as it calls itself.
        peer: String,
    },
    /// The peer is gone; every flow of the IPCP has failed.
    LinkDown {
        /// Which IPCP.
        ipcp: IpcpId,
        /// What went wrong.
        reason: String,
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
    /// The peer asks for a flow; the manager must answer with [`Command::Respond`].
    IncomingFlow {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The port of the flow in this system.
        port: PortId,
        /// The application of this system.
        local: AppName,
        /// The application of the peer.
        remote: AppName,
        /// What is asked of the flow.
        spec: FlowSpec,
    },
    /// The peer has answered an allocation.
    AllocateResult {
        /// The port of the request.
        port: PortId,
        /// The flow is there, or why not.
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
}
