//! An agent at work for a PIP: it carries out what operators ask of nodes, sends nodes to agents of
//! other hosts and takes theirs.
//!
//! ```text
//!   PIP <--calls, reports-- Service (vnet-roles) --Hosting--> OpenAgent --> Agent (vnet-host)
//!                                                                      |
//!   agent of another host <--TLS: nodes on the move--> Gate ------> Inside: asks of operators
//! ```
//!
//! This crate joins the protocol of the roles with the agent of a host, so that neither of them
//! depends on the other: the process of a PIP has no code for QEMU or the engine.

#![forbid(unsafe_code)]
#![deny(unreachable_pub)]

mod access;
mod copies;
mod error;
mod executions;
mod gate;
mod hosting;
mod open_agent;
mod seeking;
mod sessions;
mod watches;

pub use gate::Gate;
pub use hosting::{Inside, Openness};
pub use open_agent::OpenAgent;
