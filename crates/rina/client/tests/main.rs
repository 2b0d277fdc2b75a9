//! Tests of the application library and its C ABI.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod c_api;
mod examples;
mod node;
mod support;
