//! Gateways over real nodes: what passes, what is refused and how it ends.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    reason = "a test may panic and is read by its name"
)]

mod datagrams;
mod internet;
mod proxy;
mod streams;
mod support;
