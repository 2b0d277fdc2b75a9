//! Labs: topologies of systems on one machine, each described by one file.
//!
//! ```text
//!   file --Topology::parse--> Topology --up--> Running --drop, take_down--> removed
//!                                  \--DryRun::new--> the commands that would do the same
//! ```
//!
//! A system is a network namespace with a node in it, or a virtual machine attached to such a node.
//! A link is a veth pair, or, between more than two systems, a bridge in a namespace of its own. A
//! record on disk names everything that exists, so that any other process can take the lab down,
//! also after a crash.
//!
//! Benchmarks and tests that do not need a whole topology, or need more, use the parts:
//! [`TestNode`] and [`TestGuest`]. Each of these parts ends when its value is dropped. What needs
//! no node uses the crates that this one uses: `carina-namespaces`, `carina-scratch`, `carina-vm`.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use carina_lab::{CarinaNode, Options, up};
//! use carina_topology::Topology;
//!
//! let text = "eth ab 0Mbps a b\ndif net a ab\ndif net b ab\n";
//! let topology = Topology::parse(text, &CarinaNode)?;
//! let lab = up(&topology, Options::new("pair", "pair.lab", text.to_owned())?)?;
//! let output = lab.exec("a", &["carina", "dif", "list"])?;
//! println!("{}", String::from_utf8_lossy(&output.stdout));
//! # Ok(()) }
//! ```

#![forbid(unsafe_code)]

mod cpus;
mod down;
mod dry_run;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod guests;
mod links;
mod node;
mod node_checks;
mod picture;
mod record;
mod running;
mod status;
mod test_guest;

pub use cpus::{CpuHalves, GuestCpu, Host};
pub use down::{remove_strays, take_down};
pub use dry_run::DryRun;
pub use error::{Error, Result};
pub use guests::reach_guest;
pub use node::{Network, TestNode};
pub use node_checks::CarinaNode;
pub use picture::svg;
pub use record::{AppRecord, LabDir, Labs, Record};
pub use running::{Options, Running, command_in, up};
pub use status::{AppStatus, Status, SystemStatus, status};
pub use test_guest::{GuestSpec, TestGuest};
