//! Tests of ports over real interfaces, in network namespaces that the tests make.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

mod af_packet;
mod af_xdp;
mod front_end;
mod guest;
mod kernel_ends;
mod lost_memory;
mod many_guests;
mod migration;
mod page;
mod refusals;
#[path = "../../../io/netdev/tests/room/mod.rs"]
mod room;
mod running;
mod slow_guest;
mod tap;
mod traffic;
mod tunnels;
mod vhost_user;
