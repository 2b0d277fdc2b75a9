//! Stores under the suite of all stores, and what only stores outside of a process go through.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod etcd;
mod sqlite;
