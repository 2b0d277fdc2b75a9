//! Labs: a topology of systems on one machine, from one file.
//!
//! ```text
//!   file --parse--> Draft --arrange--> Topology --up--> Running --drop, down--> nothing left
//!                                         \--plan--> what would be done
//! ```
//!
//! A system is a network namespace with a node in it, or a virtual machine attached to such a node.
//! Links are pairs of virtual interfaces, or a bridge in a namespace of its own where there are
//! more than two systems. What exists is written down in a directory, so that any other process can
//! take it down, also after a crash.
//!
//! Other parts of this program make systems with [`Topology::parse`] and [`up`]; what
//! [`running::Running`] gives them is `exec`, `command` and `control`, and all is gone
//! when it is dropped.

mod address;
mod below;
pub mod config;
mod down;
mod guest;
mod judge;
mod namespace;
mod netem;
mod order;
mod parse;
mod picture;
mod plan;
mod process;
mod running;
mod state;
mod status;
mod topology;
pub mod words;

#[cfg(test)]
mod tests;

pub use down::{remove_strays, take_down};
pub use guest::Guest;
pub use picture::svg;
pub use plan::Plan;
pub use running::{Options, enter, shell_words, up};
pub use state::{LabDir, Labs, Record};
pub use status::status;
pub use topology::{Topology, Wrong};
