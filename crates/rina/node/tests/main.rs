//! Tests of nodes: real sockets, real rings, several nodes in one process.

mod below;
mod between;
mod capture;
mod checked;
mod dif;
mod ethernet;
mod faults;
mod flows;
mod homing;
mod internet;
mod local;
mod media;
mod pair;
mod policies;
mod ports;
mod refusals;
mod registrations;
mod relay;
mod rlite_stations;
#[path = "../../../io/netdev/tests/room/mod.rs"]
mod room;
mod services;
mod stations;
mod stopping;
mod streams;
mod support;
mod workers;
