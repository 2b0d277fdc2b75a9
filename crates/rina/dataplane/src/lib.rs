//! The data plane: the thread that moves SDUs, and what every kind of IPC process implements.
//!
//! The manager sees an IPCP through [`IpcProcess`]: names are registered, flows are allocated, and
//! a request that cannot be met is refused with a reason. SDUs are moved by the [`DataPlane`]:
//! threads with an engine each that take [`Command`]s and give [`Event`]s. Three kinds of app run
//! on these engines:
//!
//! - the app of an IPCP, which the thread makes from an [`IpcpBuilder`] without knowing its kind:
//!   the shims are in `carina-shims`, the normal IPCP ([`NormalBuilder`]) is here;
//! - a flow app for each end of a flow: over a ring in shared memory, or over a socket;
//! - none for a flow whose user is a normal IPCP on the same thread: the two IPCPs are linked
//!   without a ring, so that DIFs stack to any depth within one breath. Where the user is on
//!   another thread, a flow app on either joins them by a channel.
#![forbid(unsafe_code)]

mod command;
mod command_handle;
mod crossing;
mod data_plane;
mod event;
mod flow;
mod ipc_process;
mod ipcp_app;
mod mailbox;
mod normal;
mod normal_ipcp;
mod plane;
mod port_table;
mod qos;
mod ring_flow;
mod socket_end;
mod socket_flow;
mod stream_flow;
mod stream_socket;
mod trace;

pub use command::{Command, FlowEnd};
pub use command_handle::CommandHandle;
pub use crossing::{Crossed, Crossing};
pub use data_plane::{DataPlane, Workers};
pub use event::Event;
pub use ipc_process::{FlowRequest, IpcProcess, Refusal};
pub use ipcp_app::{
    AppContext, BuildError, FlowLinks, IpcpBuilder, MemberRequest, N1Links, Request, RequestQueue,
};
pub use mailbox::Mailbox;
pub use normal::NormalBuilder;
pub use normal_ipcp::NormalIpcp;
pub use port_table::{CloseRequest, EndElsewhere, FlowOwner, PortEntry, PortTable, WORKERS_MAX};
pub use qos::{QosError, QosOffered};
pub use socket_flow::SOCKET_SDU_MAX;
pub use stream_socket::StreamSocket;
