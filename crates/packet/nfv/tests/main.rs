//! Tests of the crate: files of ports, and traffic in simulated time.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod carina_file;
mod checked;
mod packets;
mod simulated;
mod snabb_file;
mod traffic;
mod tunnels;
