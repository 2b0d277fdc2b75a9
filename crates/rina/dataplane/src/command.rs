//! The commands that the manager (IPC Manager) sends to the data plane.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_frame_engine::tap::Tap;
use carina_ipcp::{ConnectReader, N1Port, N1Properties};
use carina_ring::channel::Endpoint;

use crate::crossing::{Crossed, Crossing};
use crate::ipcp_app::IpcpBuilder;
use crate::mailbox::Mailbox;
use crate::stream_socket::StreamSocket;

/// The data plane's end of a flow toward the flow's user: where the user's SDUs come from and go
/// to.
pub enum FlowEnd {
    /// The data plane's end of a channel in shared memory. The application holds the other end.
    Ring(Box<Endpoint>),
    /// The data plane's end of a SOCK_SEQPACKET socket pair. The application holds the other end.
    /// One message is one SDU of at most [`SOCKET_SDU_MAX`](crate::SOCKET_SDU_MAX) bytes.
    Socket(OwnedFd),
    /// A stream socket; the application holds its other end. The number is the longest SDU that
    /// this end may send toward the DIF, in bytes.
    Stream(StreamSocket, usize),
    /// A normal IPCP of this system, for which the flow is an N-1 flow. There is no ring between
    /// the two IPCPs. The flow is used only after [`Command::N1Up`].
    Ipcp {
        /// The IPCP that uses the flow.
        ipcp: IpcpId,
        /// Number by which the IPCP knows the N-1 flow; it must not be in use.
        n1: N1Port,
    },
    /// A normal IPCP on another worker, which gets the other end of the channel with
    /// [`Command::Cross`].
    Elsewhere {
        /// This worker's end of the channel between the two workers.
        end: Box<Endpoint>,
        /// What the two ends exchange in addition to SDUs.
        with: Crossing,
        /// The mailbox of the worker that uses the flow.
        user: Mailbox<Command>,
    },
}

/// A command that the manager sends to the data plane. The data plane executes commands in the
/// order in which they are sent.
pub enum Command {
    /// Adds an IPCP of any kind. The data plane reports [`Event::LinkUp`](crate::Event::LinkUp)
    /// when a shim's medium or peer is available, and [`Event::LinkDown`](crate::Event::LinkDown)
    /// when the app cannot be created. A normal IPCP is not yet a member of its DIF.
    AddIpcp {
        /// Id of the IPCP in later commands and events; must be new.
        ipcp: IpcpId,
        /// Creates the app of the IPCP.
        builder: Box<dyn IpcpBuilder>,
    },
    /// Passes a command to the state machine of a normal IPCP. There are separate commands for N-1
    /// flows and flows.
    Member {
        /// Id of the IPCP that the command is about.
        ipcp: IpcpId,
        /// The command for the state machine of the IPCP.
        command: carina_ipcp::Command,
    },
    /// Declares that an N-1 flow of a normal IPCP is allocated and may be used.
    N1Up {
        /// The IPCP that uses the flow.
        ipcp: IpcpId,
        /// The number given with [`FlowEnd::Ipcp`].
        n1: N1Port,
        /// Properties of the flow. The data plane lowers `sdu_max` to what the flow carries in one
        /// piece.
        props: N1Properties,
    },
    /// Starts a capture: copies the packets of an IPCP into `tap`, until the capture's reader is
    /// dropped. If the IPCP is unknown, the data plane drops `tap`.
    Tap {
        /// The IPCP whose packets are captured.
        ipcp: IpcpId,
        /// The data plane's end of the capture.
        tap: Tap,
    },
    /// Removes an IPCP from the data plane: its flows fail and its device is dropped.
    RemoveIpcp {
        /// Id of the IPCP that the command is about.
        ipcp: IpcpId,
    },
    /// Registers `name` at the peer or in the DIF.
    Register {
        /// The IPCP that registers the name.
        ipcp: IpcpId,
        /// Name of the application to register.
        name: AppName,
        /// Set if `name` is the name of an IPCP: decodes the first PDU of a flow to the IPCP. See
        /// [`IpcProcess::register_ipcp`](crate::IpcProcess::register_ipcp).
        reader: Option<ConnectReader>,
    },
    /// Withdraws the registration of `name`.
    Unregister {
        /// The IPCP at which the name is registered.
        ipcp: IpcpId,
        /// Name of the application to unregister.
        name: AppName,
    },
    /// Requests a flow. The data plane reports
    /// [`Event::AllocateResult`](crate::Event::AllocateResult). If that is an error, it has closed
    /// `end`.
    Allocate {
        /// The IPCP that allocates the flow.
        ipcp: IpcpId,
        /// Port-id of the new flow, chosen by the manager; bit 31 must be 0.
        port: PortId,
        /// Name of the calling application.
        local: AppName,
        /// Name of the called application.
        remote: AppName,
        /// The QoS that the application requests for the flow.
        spec: FlowSpec,
        /// The end of the flow at the calling application.
        end: FlowEnd,
    },
    /// Answers [`Event::IncomingFlow`](crate::Event::IncomingFlow).
    Respond {
        /// Port-id from the event.
        port: PortId,
        /// The end of the flow at the accepting application, or the reason of a refusal.
        answer: Result<FlowEnd, String>,
    },
    /// Connects two ends of flows on this system, such as a ring and a socket, so that SDUs move
    /// between them. Both ends have the port-id `port`.
    Relay {
        /// The end of one of the two users.
        a: FlowEnd,
        /// The end of the other user.
        b: FlowEnd,
        /// Port-id in events; bit 31 must be 0.
        port: PortId,
    },
    /// Gives a normal IPCP its end of an N-1 flow that another worker provides. The flow is used
    /// only after [`Command::N1Up`].
    Cross(Crossed),
    /// Ends a flow after everything that the application has sent was delivered. Unknown port-ids
    /// are ignored, because the flow may just have ended.
    Deallocate {
        /// Port-id of the flow.
        port: PortId,
        /// Reason for the peer.
        reason: String,
    },
    /// Asks for a message to `idle` when all earlier commands are executed and no packets move
    /// any more.
    NotifyWhenIdle {
        /// Channel on which the data plane answers.
        idle: Sender<()>,
    },
}
