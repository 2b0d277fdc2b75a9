//! The commands of the manager to the data plane.

use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use carina_api::{AppName, FlowSpec, IpcpId, PortId};
use carina_engine::tap::Tap;
use carina_ipcp::{ConnectReader, N1Port, N1Properties};
use carina_ring::channel::Endpoint;

use crate::crossing::{Crossed, Crossing};
use crate::ipcp_app::IpcpBuilder;
use crate::mailbox::Mailbox;
use crate::stream_socket::StreamSocket;

/// The end of a flow as the data plane sees it.
pub enum FlowEnd {
    /// One end of a channel; the application holds the other.
    Ring(Box<Endpoint>),
    /// One end of a SOCK_SEQPACKET pair; the application holds the other. One message is one SDU
    /// of at most [`SOCKET_SDU_MAX`](crate::SOCKET_SDU_MAX) bytes.
    Socket(OwnedFd),
    /// A stream socket; the application holds its other end. SDUs toward the DIF have at most so
    /// many bytes.
    Stream(StreamSocket, usize),
    /// A normal IPCP of this system, whose N-1 flow this becomes: no ring is between the two.
    /// [`Command::N1Up`] puts it into use.
    Ipcp {
        /// The IPCP above.
        ipcp: IpcpId,
        /// Its number for the flow, not in use.
        n1: N1Port,
    },
    /// A normal IPCP on another worker, which has been given the other end with
    /// [`Command::Cross`].
    Elsewhere {
        /// One end of the channel between the two.
        end: Box<Endpoint>,
        /// What the ends tell each other besides.
        with: Crossing,
        /// The mailbox of the other worker.
        user: Mailbox<Command>,
    },
}

/// A command of the manager to the data plane. Commands are carried out in the order given.
pub enum Command {
    /// Adds an IPCP of any kind. Answers: [`Event::LinkUp`](crate::Event::LinkUp) when a shim's
    /// medium or peer is there, [`Event::LinkDown`](crate::Event::LinkDown) when the app cannot be
    /// made. A normal IPCP is no member of its DIF yet.
    AddIpcp {
        /// The id that later commands and events carry; must be new.
        ipcp: IpcpId,
        /// Makes its app.
        builder: Box<dyn IpcpBuilder>,
    },
    /// A command to a normal IPCP: everything but N-1 flows and flows.
    Member {
        /// Which one.
        ipcp: IpcpId,
        /// The command.
        command: carina_ipcp::Command,
    },
    /// An N-1 flow of a normal IPCP is allocated: it may be used.
    N1Up {
        /// Which IPCP.
        ipcp: IpcpId,
        /// The number given with [`FlowEnd::Ipcp`].
        n1: N1Port,
        /// What is known of it. `sdu_max` is lowered to what the flow carries in one piece.
        props: N1Properties,
    },
    /// Copies what an IPCP sends and receives into a capture, until that is dropped. An unknown
    /// IPCP drops the capture's end.
    Tap {
        /// Which one.
        ipcp: IpcpId,
        /// The data plane's end of the capture.
        tap: Tap,
    },
    /// Ends an IPCP: its flows fail, its device is dropped.
    RemoveIpcp {
        /// Which one.
        ipcp: IpcpId,
    },
    /// Registers `name` with the peer or the DIF.
    Register {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
        /// Reads the first PDU of a flow to `name`, where that is an IPCP. See
        /// [`IpcProcess::register_ipcp`](crate::IpcProcess::register_ipcp).
        reader: Option<ConnectReader>,
    },
    /// Withdraws the registration of `name`.
    Unregister {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The application.
        name: AppName,
    },
    /// Requests a flow of the peer. Answer:
    /// [`Event::AllocateResult`](crate::Event::AllocateResult); when that is an error the end has
    /// been closed.
    Allocate {
        /// Through which IPCP.
        ipcp: IpcpId,
        /// The port of the new flow: chosen by the manager, bit 31 clear.
        port: PortId,
        /// The calling application.
        local: AppName,
        /// The called application.
        remote: AppName,
        /// The requested quality.
        spec: FlowSpec,
        /// The data plane's end of the flow.
        end: FlowEnd,
    },
    /// Answers [`Event::IncomingFlow`](crate::Event::IncomingFlow) with the end of the accepting
    /// application, or a reason.
    Respond {
        /// The port that the event carried.
        port: PortId,
        /// The end of the flow, or why the flow is refused.
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
    /// Gives a normal IPCP its half of an N-1 flow that another worker provides.
    /// [`Command::N1Up`] puts it into use.
    Cross(Crossed),
    /// Ends a flow: what the application has already sent is delivered first. Unknown ports are
    /// ignored, for the flow may just have ended by itself.
    Deallocate {
        /// Which flow.
        port: PortId,
        /// The reason for the peer.
        reason: String,
    },
    /// Signals `settled` once the commands before it are carried out and nothing moves any more.
    Settle {
        /// Where the answer goes.
        settled: Sender<()>,
    },
}
