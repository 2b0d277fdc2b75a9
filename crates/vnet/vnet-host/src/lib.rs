//! The hands of virtual networks on one host: what a [`HostPart`](carina_vnet::host_part::HostPart)
//! says is made so, watched, and removed.
//!
//! ```text
//!   node r1 (namespace)      namespace of ports           node r2 (VM)
//!   +---------------+      +------------------------+      +-----------+
//!   | eth0 ---veth--|------| l0.0 == engine == l0.1 |-tap--| eth0      |
//!   +---------------+      +------------------------+      +-----------+
//!                            a token bucket each way
//! ```
//!
//! A node is a network namespace or a virtual machine. Each end of a link is a port: a veth or a
//! tap in a namespace that belongs to this network alone, where nothing has an address. The engine
//! joins the two ports of a link and no others, in a graph of its own for each network: there is
//! no bridge, no table of addresses, and no graph in which two networks meet. A link to another
//! host goes into a tunnel over the [`underlay`], an interface of the host.
//!
//! All names are made of the network's uid ([`names`]), so that what is left behind by an agent
//! that was killed is found, and strangers are left alone. [`Agent`] makes and changes networks;
//! [`remains::remove`] removes one, also without the agent that made it.

#![forbid(unsafe_code)]

pub mod access;
pub mod admission;
pub mod agent;
mod alone;
mod bell;
mod carrier;
pub mod client;
pub mod confinement;
mod console;
mod data_plane;
pub mod directory;
mod engine_frames;
mod error;
pub mod export;
mod far_flow;
pub mod flow_port;
mod graph;
pub mod guest_wire;
mod host_dif;
pub mod image_store;
mod impairment;
pub mod judgement;
pub mod link_name;
mod making;
mod member;
pub mod names;
mod namespace;
pub mod nics;
mod node;
pub mod plan;
mod probe;
pub mod progress;
mod random;
pub mod remains;
mod removal;
mod removed;
pub mod saved;
mod saved_error;
mod second_ports;
pub mod server;
mod steps;
mod switched_off;
pub mod underlay;
mod vnet;
mod watch;
pub mod way;
pub mod web;
pub mod whereabouts;

pub use agent::Agent;
pub use directory::{Record, VnetDir, Vnets, Wanted};
pub use error::{Error, Result};
pub use node::{Arrived, Output, Until};
pub use second_ports::port_app_now;
pub use underlay::{HostSettings, Underlay, own_name};
pub use watch::{EchoStream, Echoes};
