//! The application library: names, flows and SDUs for programs.
//!
//! A [`Node`] is the way to the IPC Manager of this system. With it an application registers a
//! name ([`Registration`]) and accepts flows, or allocates a flow to a name. A [`Flow`] carries
//! SDUs: every [`Flow::send`] at one end is one [`Flow::recv`] at the other, whatever the size.
//!
//! ```no_run
//! # fn main() -> Result<(), carina_client::Error> {
//! use carina_client::{FlowSpec, Node, name};
//!
//! let node = Node::connect()?;
//! let mut flow = node.allocate(&name("client")?, &name("echo")?, None, &FlowSpec::reliable())?;
//! flow.send(b"hello")?;
//! let mut answer = [0; 64];
//! let length = flow.recv(&mut answer)?;
//! assert_eq!(&answer[..length], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Where the SDUs go
//!
//! A flow is two rings in memory shared with the other end: the other application
//! when both are on one system (the node has then left the path), else the node. Sending copies
//! into the ring and moves an index; receiving copies out of it. A call makes a system call only
//! when it has nothing to do and sleeps, or when the other side sleeps and must be woken.
//!
//! # Blocking, not blocking, polling
//!
//! - [`Flow::send`] and [`Flow::recv`] wait: they spin for a while that adapts to how often that
//!   helped, and then sleep on the flow's doorbell and on the node, so that the death of either end
//!   or of the node ends the call.
//! - [`Flow::try_send`] and [`Flow::try_recv`] never wait.
//! - For an event loop, [`FlowReceiver::arm`] asks to be woken through the descriptor that
//!   [`FlowReceiver::poll_fd`] gives; [`FlowSender::arm`] and [`FlowSender::space_fd`] do the same
//!   for space.
//!
//! The two directions are independent: [`Flow::split`] gives each to its own thread.
//!
//! # What this library refuses to do
//!
//! It has no threads (the C library has one per control descriptor), no executor and no global
//! state. It trusts neither the node nor the remote application: lengths and indices in the shared
//! memory are checked before they are used, and a flow whose memory makes no sense fails.
//!
//! # Examples
//!
//! `examples/server.rs` and `examples/client.rs` are an echo server and its client;
//! `examples/nonblocking.rs` is the same server in one thread over epoll.
//!
//! # C
//!
//! `include/rina/api.h` gives the same as a C library in the POSIX style, where a flow is a file
//! descriptor; see `docs/reference/c-api.md`.

#![deny(unsafe_code)]

mod batch;
mod doorbell_wait;
mod error;
#[expect(unsafe_code, reason = "C passes pointers and descriptors")]
pub mod ffi;
mod flow;
mod ipc;
mod link;
mod node;
mod recv;
mod registration;
mod send;
mod spin_then_sleep;
mod stats;

pub use batch::SduBatch;
pub use carina_api::{AppName, DifName, ErrorBody, FlowSpec, PortId};
pub use error::Error;
pub use flow::{Flow, SocketFlow, StreamFlow};
pub use link::FlowInfo;
pub use node::{Allocation, Node, StreamAllocation};
pub use recv::{FlowReceiver, Fragment};
pub use registration::{FlowRequest, Registration};
pub use send::{FlowSender, SendSlot};
pub use stats::FlowStats;

/// Makes an application name of a string.
///
/// # Errors
///
/// [`Error::Refused`] with the rule that the string breaks.
pub fn name(text: &str) -> Result<AppName, Error> {
    text.parse().map_err(|error| node::bad_name(text, &error))
}
