//! Roles on loopback, and the stores under the suite of all stores.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod conversations;
mod etcd;
mod played;
mod rights;
mod sqlite;
