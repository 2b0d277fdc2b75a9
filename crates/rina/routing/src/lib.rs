//! Routing of a DIF, as a machine without I/O. It has a link-state database, incremental
//! computation of shortest paths, equal-cost multipath and loop-free alternates; and static routes.
//!
//! [`policy::make`] creates a [`Routing`] policy by name. Its inputs are the links to neighbours
//! and the messages of neighbours. Its outputs are messages for neighbours and a
//! [`table`](Routing::table). The IPCP chooses the encoding of a [`Message`].
//! docs/explanation/routing.md describes each message.
//!
//! ```text
//!   handle_link_up, handle_link_down        handle_message     handle_timeout
//!                 |                               |                 |
//!                 v                               v                 v
//!   +---------------------------------------------------------------------+
//!   |  Database: links as reported        ->  graph: links that both ends |
//!   |  flood: what each neighbour lacks       report -> tree(s) -> table  |
//!   +---------------------------------------------------------------------+
//!                 |                               |                 |
//!                 v                               v                 v
//!           poll_message                     poll_routes, table   poll_timeout
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod alternates;
mod api;
pub mod compute;
pub mod database;
mod error;
mod flood;
mod former;
mod graph;
mod link_state;
pub mod message;
mod parameters;
pub mod policy;
mod static_routes;
mod tree;

#[cfg(test)]
mod tests;

pub use api::{Delta, Route, Routing, State};
pub use error::RoutingError;
pub use message::{Address, Digest, FlowState, Message, OriginDigest, Summary};
