//! Hosts and guests, end to end: the `carina` program, its nodes, real QEMU.
//!
//! `house` holds the words in which the scenarios are told. Each scenario has its own run
//! directory, node and guests, and leaves nothing. What is needed and missing (QEMU, busybox) is
//! an error that names it.

// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used)]

mod clock;
mod disk;
mod faults;
mod house;
mod journeys;
mod scribbler;
mod terminal;
