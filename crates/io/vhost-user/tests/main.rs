//! Tests of the back end against front ends in one process.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]
