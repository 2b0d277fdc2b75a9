//! The commands, one file each.

pub(crate) mod app;
pub(crate) mod apply;
#[cfg(feature = "tools")]
pub(crate) mod bench;
pub(crate) mod bench_peer;
#[cfg(feature = "packet")]
pub(crate) mod blast;
pub(crate) mod bridge;
pub(crate) mod capture;
pub(crate) mod cat;
mod command_output;
pub(crate) mod connect;
pub(crate) mod demo;
pub(crate) mod dif;
pub(crate) mod dissect;
pub(crate) mod expose;
pub(crate) mod flow;
#[cfg(feature = "packet")]
pub(crate) mod forward;
#[cfg(feature = "packet")]
pub(crate) mod graph;
mod guest_ip;
pub(crate) mod impair;
#[cfg(feature = "tools")]
pub(crate) mod import;
pub(crate) mod ip;
pub(crate) mod ipcp;
pub(crate) mod key;
pub(crate) mod lab;
#[cfg(feature = "packet")]
pub(crate) mod lwaftr;
pub(crate) mod measured;
pub(crate) mod names;
#[cfg(feature = "packet")]
pub(crate) mod nfv;
pub(crate) mod nic;
pub(crate) mod node;
pub(crate) mod packet_output;
pub(crate) mod perf;
pub(crate) mod ping;
pub(crate) mod policy;
pub(crate) mod proxy;
pub(crate) mod register;
pub(crate) mod rib;
mod rules;
#[cfg(feature = "tools")]
pub(crate) mod sim;
pub(crate) mod ssh;
mod terminal;
pub(crate) mod top;
pub(crate) mod trace;
pub(crate) mod vlan_translate;
pub(crate) mod vm;
#[cfg(feature = "vnet")]
pub(crate) mod vnet;
mod wire_bridge;
pub(crate) mod wrap;
