//! Data transfer of several members, wired by hand without layer management.

#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod captured;
mod channels;
mod connections;
mod dialects;
mod flows;
mod hostile;
mod net;
mod queues;
mod relaying;
mod scarce;
mod tracing;
