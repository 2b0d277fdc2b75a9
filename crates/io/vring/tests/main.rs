//! Tests of device and driver halves in one process.

// Helper functions of tests may panic, like tests.
#![allow(clippy::unwrap_used)]

mod faults;
mod model;
mod notification;
mod pair;
mod progress;
mod transfer;
