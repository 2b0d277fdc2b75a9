//! The IPC Manager: a node of Carina as a library.
//!
//! [`Node::run`] is the command `carina node`. [`Node::spawn`] runs a node in a thread beside other
//! code, as tests do. A node has these threads:
//!
//! ```text
//!   core           owns all state; one epoll over ipc.sock, flows, VMs, events, queries
//!   carina-control serves control.sock and queries the core
//!   data-plane     moves SDUs (carina-dataplane); one thread for each configured worker
//! ```
//!
//! SDUs of a flow between two applications of this system that use the same mode (shared memory or
//! socket) do not pass through the node. Only one node can use a run directory.
#![forbid(unsafe_code)]

mod allocation;
mod apply;
mod attached_socket;
mod captures;
pub mod config;
mod connections;
mod control_requests;
mod core;
mod deallocation;
mod endpoints;
mod event_loop;
mod flow_channels;
mod http;
mod incoming_flows;
mod ipc_socket;
mod ipcp_handlers;
mod ipcp_kinds;
mod ipcps;
mod journal;
pub mod key;
mod layers;
mod member_spec;
mod members;
mod membership;
mod registrations;
mod requests;
mod rib_queries;
mod rib_requests;
mod rules;
mod run_directory;
mod sdu_capacity;
mod seed;
mod start;
mod stopping;
mod stream_listeners;
#[cfg(test)]
mod testing;
mod users;
mod vm_port;
mod vm_requests;

pub use config::{Config, ConfigError, TextError};
pub use member_spec::{MemberSpecError, check_auth, check_member};
pub use run_directory::RunDirError;
pub use start::{Node, NodeError, NodeHandle};
