//! Tests with real nodes: processes of the program that the variable `CARINA_PROGRAM` names.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod cancel;
mod ends;
mod examples;
mod messages;
mod streams;
mod support;
