//! The application library: names, flows and SDUs for programs.
//!
//! A [`Node`] gives access to the IPC Manager of this system. With it an application registers a
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
//! # How SDUs travel
//!
//! A flow is two rings in memory shared with the other end. The other end is the remote application
//! if it runs on the same system; the node then moves no SDUs. Otherwise it is the node. Sending
//! copies into the ring and advances an index; receiving copies out of it. A call makes a system
//! call only to sleep, or to wake the other side if it sleeps.
//!
//! # Blocking, non-blocking, polling
//!
//! - [`Flow::send`] and [`Flow::recv`] wait. They first spin, for a time that adapts to how often
//!   spinning has helped. Then they sleep until the flow's doorbell rings or the flow ends, so that
//!   the death of either end or of the node ends the call.
//! - [`Flow::try_send`] and [`Flow::try_recv`] never wait.
//! - For an event loop, [`FlowReceiver::arm`] requests a wake-up through the descriptor that
//!   [`FlowReceiver::poll_fd`] returns. [`FlowSender::arm`] and [`FlowSender::space_fd`] do the
//!   same for space.
//!
//! The two directions are independent: [`Flow::split`] allows a thread for each.
//!
//! # Limits of this library
//!
//! It has no executor, no global state and no threads, except one per control descriptor in the C
//! library. It trusts neither the node nor the remote application: it checks lengths and indices in
//! the shared memory before it uses them, and a flow whose memory is inconsistent fails.
//!
//! # Examples
//!
//! `examples/server.rs` and `examples/client.rs` are an echo server and its client;
//! `examples/nonblocking.rs` is the same server in one thread over epoll.
//!
//! # C
//!
//! `include/rina/api.h` declares a C library with the same functions in the POSIX style, where a
//! flow is a file descriptor; see `docs/reference/c-api.md`.

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
pub use carina_api::{AppName, DifName, ErrorBody, ErrorCode, FlowSpec, PortId};
pub use error::Error;
pub use flow::{Flow, SocketFlow, StreamFlow};
pub use link::FlowInfo;
pub use node::{Allocation, Node, SocketAllocation, StreamAllocation};
pub use recv::{FlowReceiver, Fragment, Leased, Passing, SduLease, ToFile};
pub use registration::{FlowRequest, PendingRegistration, Registration, RegistrationEvent};
pub use send::{FlowSender, FromFile, HEAD_BYTES, SendSlot};
pub use stats::FlowStats;

/// Checks a string and makes it an application name.
///
/// # Errors
///
/// [`Error::Refused`], whose message names the rule that the string violates.
pub fn name(text: &str) -> Result<AppName, Error> {
    text.parse().map_err(|error| node::bad_name(text, &error))
}
