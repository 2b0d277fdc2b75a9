//! What the layer managements of other implementations' dialects have in common, as components
//! without I/O and without a word of any dialect.
//!
//! ```text
//!   a dialect's machine: object names, values, enrollment, neighbours
//!      |            |               |             |
//!      v            v               v             v
//!   flows        links          directory       show
//!   allocator    who reports    who holds       the RIB as
//!   with port-   which link,    which           tools see it
//!   ids          routes         application
//! ```
//!
//! Each component says what its caller has to send or to tell; nothing here writes a message.

pub(crate) mod deallocation;
pub(crate) mod directory;
mod flow;
pub(crate) mod flow_allocator;
pub(crate) mod link_state;
pub(crate) mod names;
pub(crate) mod rib_view;

/// The authentication policy of a toolbox that only IRATI has: a password combined with a challenge
/// by exclusive or.
pub(crate) const XOR_PASSWORD: &str = "xor-password";

/// Milliseconds in nanoseconds.
pub(crate) const MS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
