//! Device and driver halves in one process.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

mod faults;
mod model;
mod notification;
mod pair;
mod progress;
mod transfer;
