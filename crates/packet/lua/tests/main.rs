//! Tests of the crate.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "../../apps/tests/notation.rs"]
mod notation;
#[path = "../../apps/tests/probes.rs"]
mod probes;

mod examples;
mod limits;
mod page;
mod reload;
mod rig;
mod sandbox;
mod script;
mod workers;
