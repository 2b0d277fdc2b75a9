//! The commands, one file each.

pub mod app;
pub mod apply;
pub mod bench;
pub mod bench_peer;
pub mod cat;
pub mod demo;
pub mod dif;
pub mod flow;
pub mod ipcp;
pub mod node;
pub mod perf;
pub mod ping;
pub mod register;
pub mod top;
pub mod vm;
