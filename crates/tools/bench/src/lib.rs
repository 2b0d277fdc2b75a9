//! Benchmarks: measure Carina and other systems in turns on one machine.
//!
//! | module | what is measured |
//! |---|---|
//! | [`hv`] | an application in a VM and one on its host |
//! | [`xen`] | the same for a domain of Xen and Dom0 |
//! | [`local`] | two processes of one system |
//! | [`flows`] | many flows open at once |
//! | [`instantiate`] | virtual networks of machines, made from a request |
//! | [`embed`] | virtual networks placed on a substrate, compared with published embedders |
//! | [`engine`] | frames through graphs of apps, compared with DPDK |
//! | [`lwaftr`] | an AFTR, both directions on one core, compared with DPDK |
//! | [`lwaftr_demo`] | a customer, an AFTR and a host of the Internet on one machine |
//! | [`vhost`] | frames through the rings of a vhost-user port, compared with DPDK |
//! | [`guest`] | a guest's network card over Carina's back end, compared with a tap of QEMU |
//! | [`drivers`] | drivers of cards in a guest's user space, compared with those of its kernel |
//! | [`nfv_demo`] | two VMs behind ports of `carina nfv`, and what hops cost |
//! | [`forward`] | flows over virtual links, compared with bridges and tunnels of the kernel |
//! | [`rates`] | one TCP stream over links with a rate; comparison: token bucket of the kernel |
//! | [`scale`] | networks of many namespaces, compared with a shell loop of `ip` and Mininet |
//! | [`ip`] | one TCP connection over `carina ip`, compared with a bare loop and a veth pair |
//! | [`bindings`] | flows in Python and Go; comparison: sockets, event loops and messaging there |
//! | [`wrap`] | unmodified programs over flows, compared with TCP and relays |
//! | [`restart`] | a guest's card while the guest, or its back end, goes and comes |
//! | [`paper`] | the experiments of publications on RINA |
//!
//! Nodes, guests attached to nodes, and processors come from `carina_lab`; other guests from
//! `carina_vm`, namespaces from `carina_namespaces`; traffic, measurements and statistics from
//! `carina_measure`. All systems of a benchmark are measured one right after the other, and
//! everything is repeated, so that a disturbance of the machine affects all of them alike.

#![forbid(unsafe_code)]
// A build with only some benchmarks leaves some of the shared code unused.
#![cfg_attr(not(feature = "all"), allow(dead_code))]

#[cfg(feature = "all")]
pub mod bindings;
mod booted;
mod cards;
pub mod client;
pub mod comparison;
#[cfg(feature = "all")]
mod cpu_time;
pub mod crowd;
#[cfg(feature = "all")]
pub mod drivers;
#[cfg(feature = "all")]
pub mod embed;
#[cfg(feature = "all")]
pub mod engine;
mod error;
mod failures;
#[cfg(feature = "all")]
pub mod flows;
#[cfg(feature = "all")]
pub mod forward;
#[cfg(feature = "all")]
pub mod guest;
pub mod hv;
#[cfg(feature = "all")]
mod in_namespace;
mod installed;
#[cfg(feature = "all")]
pub mod instantiate;
#[cfg(feature = "all")]
pub mod ip;
#[cfg(feature = "all")]
pub mod local;
#[cfg(feature = "all")]
pub mod lwaftr;
#[cfg(feature = "all")]
pub mod lwaftr_demo;
#[cfg(feature = "all")]
pub mod nfv_demo;
#[cfg(feature = "all")]
mod one_core;
#[cfg(feature = "all")]
mod options;
#[cfg(feature = "all")]
pub mod paper;
mod peer;
#[cfg(feature = "all")]
mod process_memory;
mod program;
mod rate;
#[cfg(feature = "all")]
pub mod rates;
#[cfg(feature = "all")]
mod replay;
#[cfg(feature = "all")]
pub mod restart;
#[cfg(feature = "all")]
pub mod scale;
#[cfg(feature = "all")]
mod testpmd;
#[cfg(feature = "all")]
mod two_nodes;
mod vchan;
#[cfg(feature = "all")]
pub mod vhost;
pub mod vm_and_host;
mod vsock_peer;
#[cfg(feature = "all")]
pub mod wrap;
pub mod xen;

pub use error::{Error, Result};
pub use failures::FAILURES_MAX;
#[cfg(feature = "all")]
pub use options::Options;

/// A function that the caller provides to show progress; it is called with a line of text at each
/// step.
#[derive(Debug, Clone, Copy)]
pub struct Progress(pub fn(&str));

impl Progress {
    fn step(self, text: impl std::fmt::Display) {
        (self.0)(&text.to_string());
    }
}
