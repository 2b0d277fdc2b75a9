//! Routing of a DIF as a machine without I/O: link-state database, incremental SPF, equal-cost
//! multipath and loop-free alternates; and static routes.
//!
//! [`policy::make`] gives a [`Routing`] by name. It hears of links to neighbours and of messages of
//! neighbours, and gives messages for neighbours and a [`table`](Routing::table). The IPCP encodes
//! [`Message`] as it likes; docs/explanation/routing.md describes each of them.
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
