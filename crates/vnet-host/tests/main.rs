//! Networks on this machine, and what is left of them.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod hosts;
mod machines;
mod namespaces;
mod segment;
mod socket;
mod waiting;
