//! Unmodified programs over flows: what `carina wrap` makes of their socket calls.
//!
//! ```text
//!  program --connect, bind, accept--> carina-preload --> Wrap --ipc.sock--> node --> DIF
//!     |                                (this crate's calls)                  |
//!     +------- read, write, poll: the kernel's, on an AF_UNIX socket --------+
//! ```
//!
//! - [`rule`] decides which sockets become flows, [`name_table`] which name an address stands for.
//! - [`calls`] carries the calls out. The kernel keeps all state of a socket: its two addresses in
//!   its [`label`], a few bits in its [`mark`]. It goes with the descriptor through `fork`,
//!   `exec` and `SCM_RIGHTS`, and nothing in the program's memory can contradict it.
//! - [`socket_address`] and [`options`] are the structures and numbers of these calls, as a program
//!   has them in its memory.
//! - [`supervisor`] carries them out for programs that load no library: static ones.
//! - [`zones`] says which names of hosts are registered applications, for [`dns`].
//! - [`settings`] is what `carina wrap` passes on in the environment.

#![forbid(unsafe_code)]

mod addresses;
pub mod calls;
pub mod dns;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod hosts_file;
pub mod label;
pub mod mark;
pub mod name_table;
mod node;
pub mod options;
pub mod program;
pub mod rule;
pub mod settings;
pub mod socket_address;
mod sockets;
pub mod supervisor;
mod unix_name;
pub mod zones;
