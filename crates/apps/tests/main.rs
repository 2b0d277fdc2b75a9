//! Tests of this crate.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod judged;
mod notation;
mod only;
mod page;
mod scripts;
