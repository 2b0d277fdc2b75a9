//! The IPC Manager: a node of Carina as a library.
//!
//! [`Node::run`] is `carina node`; [`Node::spawn`] runs a node beside other code, as tests do. A
//! node is three threads:
//!
//! ```text
//!   core           owns all state; one epoll over ipc.sock, flows, VMs, events, questions
//!   carina-control serves control.sock and asks the core
//!   data-plane     moves SDUs (carina-shims)
//! ```
//!
//! The node is not in the path of flows between two applications of its system that move SDUs
//! the same way. It refuses to run twice in one run directory.
#![forbid(unsafe_code)]

mod answers;
mod apps;
mod captures;
pub mod config;
mod conns;
mod core;
mod ends;
mod flows;
mod glob;
mod http;
mod ipcps;
mod joins;
mod journal;
pub mod key;
mod media;
mod members;
mod offers;
mod queries;
mod rib;
mod rules;
mod rundir;
mod start;
mod teardown;
#[cfg(test)]
mod testing;
mod vms;

pub use config::{Config, ConfigError};
pub use members::{judge_auth, judge_member};
pub use rundir::ClaimError;
pub use start::{Node, NodeError, NodeHandle};
