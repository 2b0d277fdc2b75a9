//! The agent of a PIP's host: carries out operators' requests to nodes, and exchanges nodes with
//! the agents of other hosts.

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
