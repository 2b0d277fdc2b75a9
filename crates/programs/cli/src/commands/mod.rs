//! The commands, one file each.

pub mod app;
pub mod apply;
#[cfg(feature = "tools")]
pub mod bench;
pub mod bench_peer;
#[cfg(feature = "packet")]
pub mod blast;
pub mod bridge;
pub mod capture;
pub mod cat;
mod command_output;
pub mod connect;
pub mod demo;
pub mod dif;
pub mod dissect;
pub mod expose;
pub mod flow;
#[cfg(feature = "packet")]
pub mod forward;
#[cfg(feature = "packet")]
pub mod graph;
pub mod impair;
#[cfg(feature = "tools")]
pub mod import;
pub mod ipcp;
pub mod key;
pub mod lab;
#[cfg(feature = "packet")]
pub mod lwaftr;
pub mod measured;
#[cfg(feature = "packet")]
pub mod nfv;
pub mod nic;
pub mod node;
pub mod packet_output;
pub mod perf;
pub mod ping;
pub mod policy;
pub mod register;
pub mod rib;
#[cfg(feature = "tools")]
pub mod sim;
mod terminal;
pub mod top;
pub mod trace;
pub mod vlan_translate;
pub mod vm;
#[cfg(feature = "vnet")]
pub mod vnet;
mod wire_bridge;
pub mod wrap;
