//! Tests of the whole AFTR: captures in, captures out, examined with `etherparse`.

// Clippy's exceptions for tests do not cover helpers of tests.
#![allow(clippy::unwrap_used)]

mod app;
mod binding;
mod checked;
mod extensions;
mod fragments;
mod harness;
mod hostile;
mod icmp;
mod metadata;
mod neighbours;
mod random;
mod reference;
mod rules;
mod snabb;
mod workers;
