//! Tests of the crate.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod checked;
mod esp_peers;
mod flows;
mod judged;
mod notation;
mod only;
mod page;
mod probes;
mod scripts;
mod traffic_class;
