//! The data plane: the threads that move SDUs, and the interface that every kind of IPC process
//! implements.
//!
//! The manager uses an IPCP through [`IpcProcess`]: it registers names and allocates flows, and
//! gets a reason when a request is refused. The [`DataPlane`] moves SDUs. It consists of threads
//! with an engine each, which accept [`Command`]s and report [`Event`]s. Two kinds of app run on
//! these engines:
//!
//! - the app of an IPCP, which the thread creates from an [`IpcpBuilder`] without knowing its kind:
//!   the shims are in `carina-shims`, the normal IPCP ([`NormalBuilder`]) is here;
//! - a flow app for each end of a flow, over a ring in shared memory or over a socket.
//!
//! A flow whose user is a normal IPCP on the same thread has no flow app. The two IPCPs are linked
//! without a ring, so that SDUs pass through any number of stacked DIFs within one breath. If the
//! user is on another thread, a flow app on each thread connects the IPCPs by a channel.
#![forbid(unsafe_code)]

mod breath_budget;
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
mod read_size;
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
