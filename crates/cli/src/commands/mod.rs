//! The commands, one file each.

pub mod app;
pub mod apply;
pub mod bench;
pub mod bench_peer;
pub mod bridge;
pub mod capture;
pub mod cat;
pub mod demo;
pub mod dif;
pub mod dissect;
pub mod flow;
pub mod impair;
pub mod import;
pub mod ipcp;
pub mod key;
pub mod lab;
pub mod node;
pub mod perf;
pub mod ping;
pub mod policy;
pub mod register;
pub mod rib;
pub mod sim;
pub mod top;
pub mod vlan_translate;
pub mod vm;
mod wire_bridge;
