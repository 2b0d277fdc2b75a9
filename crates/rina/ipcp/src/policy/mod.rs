//! Policies: the rules that differ from DIF to DIF, while the mechanisms are the same.
//!
//! Every component of an IPCP that makes decisions has a name ([`component`]) and a set of
//! policies. The [`Catalogue`] lists them: their names, their parameters, whether they can be
//! changed while the DIF runs, and how to make one. A program adds its own policies with
//! [`Catalogue::register`]; `crates/rina/policy-example` shows how.

mod catalogue;
mod error;
mod forwarding;
mod params;
mod queueing;
mod scheduling;
mod standard;

pub use crate::config::component;
pub use catalogue::{Catalogue, Descriptor, Param, live, param};
pub use error::{PolicyError, ValidValues};
pub(crate) use forwarding::{Ecmp, Single};
pub use forwarding::{ForwardingPolicy, Spread};
pub use params::Params;
pub use queueing::{Arrival, QueueDecision, QueuePolicy};
pub(crate) use queueing::{EcnMark, Red, TailDrop};
pub use scheduling::{Class, Scheduler};
pub(crate) use scheduling::{Fifo, StrictPriority, WeightedFair};
