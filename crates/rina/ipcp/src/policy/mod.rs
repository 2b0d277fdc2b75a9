//! Policies: what differs from DIF to DIF while the mechanisms stay the same.
//!
//! Every component of an IPCP that decides something has a name ([`component`]) and a choice of
//! policies. The [`Catalogue`] knows them all: what they are called, which parameters they take,
//! whether they can be changed while the DIF runs, and how to make one. A program adds policies of
//! its own with [`Catalogue::register`]; `crates/rina/policy-example` shows how.

mod catalogue;
mod error;
mod forwarding;
mod params;
mod queueing;
mod scheduling;
mod standard;

pub use crate::config::component;
pub use catalogue::{Catalogue, Descriptor, Param, live, param};
pub use error::{PolicyError, Wanted};
pub(crate) use forwarding::{Ecmp, Single};
pub use forwarding::{ForwardingPolicy, Spread};
pub use params::Params;
pub use queueing::{Arrival, QueueDecision, QueuePolicy};
pub(crate) use queueing::{EcnMark, Red, TailDrop};
pub use scheduling::{Class, Scheduler};
pub(crate) use scheduling::{Fifo, StrictPriority, WeightedFair};
