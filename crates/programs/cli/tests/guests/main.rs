//! End-to-end tests of hosts and guests, with the `carina` program, its nodes, and real QEMU.
//!
//! `house` has the steps of the scenarios. Each scenario has its own run directory, node and
//! guests, and leaves nothing behind. A missing program (QEMU, busybox) is an error that names it.

// Helper functions of tests may panic, as tests may.
#![allow(clippy::unwrap_used)]

mod bench_hv;
mod benches;
mod clock;
mod disk;
mod faults;
mod grants;
mod house;
mod internet;
mod interrupted;
mod ip;
mod ivshmem_plain;
mod journeys;
mod nfv_demo;
mod nic;
#[path = "../processor_time.rs"]
mod processor_time;
mod scribbler;
mod ssh;
mod stock;
mod system_calls;
mod terminal;
mod vhost_user;
mod virtqueue;
mod vsock;
mod wrapped;
mod xen;
