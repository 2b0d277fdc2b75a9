//! Real guests under real QEMU: what the builder promises is what happens.
//!
//! Needs QEMU, busybox and, the first time, the distribution's archive; a machine without them
//! fails these tests with the name of what is missing, because a skipped test proves nothing.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod boot;
mod cards;
mod clones;
mod support;
