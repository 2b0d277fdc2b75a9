//! Tests of the program `carina`: its commands, labs and the tutorial.

mod bridge;
mod commands;
mod labs;
mod mistakes;
mod processor_time;
#[path = "../../../io/netdev/tests/room/mod.rs"]
mod room;
mod top;
#[path = "../../../packet/ports/tests/traffic.rs"]
mod traffic;
mod tutorial;
