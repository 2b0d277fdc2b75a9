//! Members in network namespaces, over real nodes.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

mod datagrams;
mod headers;
mod hostile;
mod mesh;
mod moves;
mod queues;
#[path = "../../../io/netdev/tests/room/mod.rs"]
mod room;
mod support;
mod traffic;
