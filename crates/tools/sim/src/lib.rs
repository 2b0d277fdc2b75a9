//! Simulates networks of real IPCPs on a virtual clock.
//!
//! Everything in a simulation comes from its seed: the topology, the faults, what applications
//! write. The same seed gives the same run, byte for byte. [`trace::Trace`] proves it by a hash of
//! all events.
//!
//! ```text
//!   scenario   what is built, what goes wrong, what must hold afterwards
//!      |
//!   world      systems, cables, slots with IPCPs, applications; the loop
//!      |          n1_flows: over cables and over IPCPs    traffic: flows, checked content
//!      |          faults: crash, cut, leave               check: what must hold
//!   session    a flow between two applications, and how far its ends have come
//!   event_queue, link, stream, trace: no knowledge of IPCPs
//! ```

#![forbid(unsafe_code)]

pub mod bottleneck;
mod check;
pub mod churn;
pub mod dialect;
pub mod event_queue;
mod events;
mod faults;
#[cfg(test)]
mod flood;
mod ipcp_member;
pub mod layout;
pub mod link;
pub mod member;
pub mod model;
mod n1_flows;
pub mod name_conflict;
mod pdus;
mod rib;
mod run_error;
pub mod scale;
pub mod scenario;
pub mod session;
pub mod shared_name;
mod stacking;
pub mod stream;
pub mod topology;
pub mod trace;
mod traffic;
mod view;
pub mod vnets;
pub mod world;

pub use carina_random::Random;
pub use ipcp_member::member_factory;
pub use link::Profile;
pub use model::{Attachment, Below, CableId, SlotId, SystemId, Tallies};
pub use rib::RibError;
pub use run_error::RunError;
pub use view::{Burden, View};
pub use world::World;
