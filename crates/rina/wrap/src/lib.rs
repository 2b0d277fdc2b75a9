//! Runs unmodified programs over flows: carries out their socket calls for `carina wrap`.
//!
//! ```text
//!  program --connect, bind, accept--> carina-preload --> Wrap --ipc.sock--> node --> DIF
//!     |                                (this crate's calls)                  |
//!     +------- read, write, poll: the kernel's, on an AF_UNIX socket --------+
//! ```
//!
//! - [`rule`] decides which sockets become flows; [`name_table`] maps addresses to host names.
//! - [`calls`] carries out the calls. The kernel keeps all state of a socket: the two addresses in
//!   the [`label`], a few bits in the [`mark`]. The state stays with the socket through `fork`,
//!   `exec` and `SCM_RIGHTS`, and nothing in the program's memory can contradict it.
//! - [`socket_address`] and [`options`] convert the arguments of these calls between Rust types and
//!   the form that they have in the memory of a program.
//! - [`relay`] gives a datagram socket many peers, each with a flow of its own.
//! - [`drops`] counts the datagrams that relays have dropped.
//! - [`supervisor`] carries out the calls of programs that load no library, such as static ones.
//! - [`library`] finds the library that is loaded into dynamic programs.
//! - [`settings`] encodes the settings that `carina wrap` passes on in the environment.
//! - [`watched`] remembers which sockets a program has put into an epoll.
//! - [`zones`] says which host names are names of registered applications, for [`dns`].

#![forbid(unsafe_code)]

pub mod addresses;
pub mod calls;
pub mod datagram_header;
pub mod dns;
pub mod drops;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod hosts_file;
pub mod label;
pub mod library;
pub mod mark;
pub mod name_table;
mod node;
pub mod options;
pub mod program;
pub mod relay;
mod relay_connect;
mod relay_start;
pub mod rule;
pub mod settings;
pub mod socket_address;
mod sockets;
pub mod supervisor;
mod unix_name;
pub mod watched;
pub mod zones;
