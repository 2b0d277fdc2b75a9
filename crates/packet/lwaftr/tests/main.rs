//! Tests of the whole function: captures in, captures out, judged by `etherparse`.

// Helpers of tests may panic as tests may.
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
