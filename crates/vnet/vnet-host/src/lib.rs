//! Makes, watches and removes one host's part of a virtual network, as a
//! [`HostPart`](carina_vnet::host_part::HostPart) describes it.
//!
//! ```text
//!   node r1 (namespace)      namespace of ports           node r2 (VM)
//!   +---------------+      +------------------------+      +-----------+
//!   | eth0 ---veth--|------| l0.0 == engine == l0.1 |-tap--| eth0      |
//!   +---------------+      +------------------------+      +-----------+
//!                            a shaper each way
//! ```
//!
//! A node is a network namespace or a virtual machine. Each end of a link is a port: a veth or a
//! tap in a namespace that belongs to this network alone, and in which no interface has an address.
//! Each network has an engine graph of its own, which connects the two ports of each link and
//! nothing else: there is no bridge, no forwarding table, and no graph that two networks share.
//! Fast links between namespaces use the kernel's own path instead: filters move their frames. A
//! link to another host leaves through a tunnel over the [`underlay`], an interface of the host.
//!
//! All names contain the network's uid ([`names`]), so that what a killed agent has left behind is
//! found, and nothing else is touched. [`Agent`] makes and changes networks; [`leftovers::remove`]
//! removes one, even without the agent that made it.

#![forbid(unsafe_code)]

pub mod access;
pub mod admission;
pub mod admission_check;
pub mod agent;
mod alone;
mod carrier;
mod change_counter;
pub mod client;
pub mod confinement;
mod console;
mod data_plane;
pub mod directory;
pub mod document_files;
mod engine_frames;
mod error;
pub mod export;
mod far_flow;
mod filesystem;
pub mod flow_port;
mod graph;
pub mod guest_wire;
mod host_dif;
mod impairment;
mod interface_counts;
mod kernel_path;
pub mod leftovers;
mod link_hold;
pub mod link_name;
mod making;
mod member;
pub mod names;
mod namespace;
pub mod nics;
mod node;
mod paths;
pub mod plan;
mod port_selection;
mod probe;
pub mod progress;
mod random;
mod removal;
mod removed;
mod rtnetlink;
pub mod saved;
mod saved_error;
pub mod server;
mod state_file;
mod steps;
mod switched_off;
mod threads;
mod timetables;
pub mod trace;
pub mod underlay;
mod vnet;
mod watch;
pub mod web;
pub mod whereabouts;

pub use agent::Agent;
pub use directory::{Record, Requester, VnetDir, Vnets};
pub use error::{Error, Result};
pub use link_hold::LinkHold;
pub use node::{Arrived, Collector, CommandLimits, Output, Sink, Stream};
pub use paths::Hold;
pub use port_selection::port_app_now;
pub use underlay::{HostSettings, Underlay, own_name};
pub use watch::{EchoStream, Echoes};
