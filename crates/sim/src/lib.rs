//! Networks of whole IPCPs on a virtual clock.
//!
//! Everything of a simulation comes from its seed: the topology, the faults, what applications
//! write. The same seed gives the same run, byte for byte, which [`trace::Trace`] proves by a
//! number over everything that happened.
//!
//! ```text
//!   scenario   what is built, what goes wrong, what must hold afterwards
//!      |
//!   world      systems, cables, seats with IPCPs, applications; the loop
//!      |          wires: N-1 flows over cables and over IPCPs    traffic: flows, checked content
//!      |          faults: crash, cut, leave                      check: what must hold
//!   agenda, random, link, stream, trace: no knowledge of IPCPs
//! ```

#![forbid(unsafe_code)]

pub mod agenda;
pub mod arrange;
mod bind;
mod carry;
mod check;
pub mod churn;
pub mod dialect;
mod faults;
#[cfg(test)]
mod flood;
pub mod link;
pub mod member;
pub mod namesakes;
pub mod parts;
pub mod scale;
pub mod scenario;
mod stacking;
pub mod stream;
mod told;
pub mod topology;
pub mod trace;
pub mod traffic;
mod view;
mod wires;
pub mod world;

pub use bind::birth;
pub use carina_random::Random;
pub use link::Profile;
pub use parts::{Attachment, Below, CableId, SeatId, SystemId, Tallies};
pub use view::{Burden, View};
pub use world::World;
