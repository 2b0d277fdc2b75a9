//! Network namespaces of this host, and the processes that run in them.
//!
//! ```text
//!   NamespaceAccess --ip, nsenter--> namespaces --remove_namespaces--> removed
//!         |                              |
//!      hold_namespaces (user)        Process, ChildProcess: started, watched, ended
//! ```
//!
//! Labs, benches and the agent of virtual networks create namespaces with `ip` and start processes
//! in them. Root does so directly. For an ordinary user, a process holds a user namespace open in
//! which that user has the necessary rights ([`hold_namespaces`]).
//!
//! [`Process`] identifies a process by its pid and its start time, so that a record on disk never
//! refers to an unrelated process. [`ChildProcess`] and [`Namespace`] end when their values are
//! dropped.
//!
//! This crate deliberately knows no topologies, nodes or guests. It takes names, and creates what
//! they name.

#![forbid(unsafe_code)]

mod batches;
mod error;
mod namespace;
mod process;
mod removal;
mod user_namespace;

pub use error::{Error, Result};
pub use namespace::{
    Namespace, NamespaceAccess, is_namespace, namespace_file, new_namespace, veth_pair,
};
pub use process::{ChildProcess, GRACE, Process, end_all, run_within};
pub use removal::{end_processes_in, remove_namespaces};
pub use user_namespace::{
    Keeper, can_enter_private, check_user_namespaces, enter_private, hold_namespaces,
};
