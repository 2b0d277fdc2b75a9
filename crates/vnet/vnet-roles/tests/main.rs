//! Tests roles on loopback, and stores with the conformance suite.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod conversations;
#[path = "../../vnet-host/tests/driver.rs"]
#[allow(
    dead_code,
    reason = "the page of an agent is used in more ways than an operator's"
)]
mod driver;
mod etcd;
mod grants;
mod inside;
mod page;
mod played;
mod rights;
mod sqlite;
