//! Benches: Carina beside other systems, measured in turns on one machine.
//!
//! | module | what is measured |
//! |---|---|
//! | [`hv`] | an application in a VM and one on its host |
//! | [`local`] | two processes of one system |
//! | [`flows`] | many flows open at once |
//! | [`instantiate`] | virtual networks of machines, made from a request |
//! | [`embed`] | virtual networks placed on a substrate, beside published embedders |
//! | [`engine`] | frames through graphs of apps, beside DPDK |
//! | [`lwaftr`] | an AFTR, both directions on one core, beside DPDK |
//! | [`lwaftr_demo`] | a customer, an AFTR and a host of the Internet on one machine |
//! | [`vhost`] | frames through the rings of a vhost-user port, beside DPDK |
//! | [`guest`] | a guest's network card over Carina's back end, beside a tap of QEMU |
//! | [`drivers`] | drivers of cards in a guest's user space, beside those of its kernel |
//! | [`nfv_demo`] | two VMs behind ports of `carina nfv`, and what hops cost |
//! | [`forward`] | flows over virtual links, beside bridges and tunnels of the kernel |
//! | [`restart`] | a guest's card while the guest, or its back end, goes and comes |
//! | [`paper`] | the experiments of publications on RINA |
//!
//! Nodes, guests, namespaces and processors are those of `carina_lab`; traffic, measurements and
//! statistics those of `carina_measure`. All systems of a bench are measured one right after the
//! other, and everything is repeated, so that what disturbs the machine disturbs all of them alike.

#![forbid(unsafe_code)]

mod cards;
pub mod client;
pub mod comparison;
mod cpu_time;
pub mod drivers;
pub mod embed;
pub mod engine;
mod error;
mod failures;
pub mod flows;
pub mod forward;
pub mod guest;
pub mod hv;
mod in_namespace;
pub mod instantiate;
pub mod local;
pub mod lwaftr;
pub mod lwaftr_demo;
pub mod nfv_demo;
mod one_core;
mod options;
pub mod paper;
mod peer;
mod program;
mod rate;
mod replay;
pub mod restart;
mod testpmd;
pub mod vhost;
pub mod vm_and_host;

pub use error::{Error, Result};
pub use failures::FAILURES_MAX;
pub use options::Options;

/// Called with a line of text at each step.
#[derive(Debug, Clone, Copy)]
pub struct Progress(pub fn(&str));

impl Progress {
    fn step(self, text: impl std::fmt::Display) {
        (self.0)(&text.to_string());
    }
}
