//! Hosts and guests, end to end: the `carina` program, its nodes, real QEMU.
//!
//! `house` holds the steps of the scenarios. Each scenario has its own run directory, node and
//! guests, and leaves nothing. A missing program (QEMU, busybox) is an error that names it.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

mod bench_hv;
mod benches;
mod clock;
mod disk;
mod faults;
mod house;
mod interrupted;
mod journeys;
mod nfv_demo;
mod nic;
#[path = "../processor_time.rs"]
mod processor_time;
mod scribbler;
mod system_calls;
mod terminal;
mod vhost_user;
mod virtqueue;
