//! The agent of a PIP's host: carries out operators' requests to nodes, and exchanges nodes with
//! the agents of other hosts.
//!
//! ```text
//!   PIP <--calls, reports-- Service (vnet-roles) --Hosting--> OpenAgent --> Agent (vnet-host)
//!                                                                      |
//!   agent of another host <--TLS: nodes on the move--> Gate ------> Inside: requests to nodes
//! ```
//!
//! This crate joins the protocol of the roles with the agent of a host, so that neither of them
//! depends on the other: the process of a PIP contains no code for QEMU or the engine.

#![forbid(unsafe_code)]

mod access;
mod copies;
mod error;
mod executions;
mod gate;
mod halves;
mod hosting;
mod open_agent;
mod safe_errors;
mod seeking;
mod sessions;
mod streams;
mod watches;

pub use gate::Gate;
pub use hosting::{Inside, Openness};
pub use open_agent::OpenAgent;
