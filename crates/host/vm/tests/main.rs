//! Tests of real guests under real QEMU.
//!
//! They need QEMU, busybox and, the first time, the distribution's archive. On a machine without
//! these the tests fail with the name of what is missing, because a skipped test proves nothing.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod boot;
mod cards;
mod clones;
mod disks;
mod streams;
mod support;
