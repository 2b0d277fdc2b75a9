//! What the layer managements of other implementations' dialects have in common: components without
//! I/O that know no dialect.
//!
//! ```text
//!   a dialect's machine: object names, values, enrollment, neighbours
//!      |            |               |             |
//!      v            v               v             v
//!   flow_        link_state     directory       rib_view
//!   allocator    which member   which member    the RIB as
//!   with port-   reports which  holds which     management
//!   ids          link, routes   application     applications see it
//! ```
//!
//! Each component returns what its caller has to send or to report; nothing here writes a message.

pub(crate) mod deallocation;
pub(crate) mod directory;
mod flow;
pub(crate) mod flow_allocator;
pub(crate) mod link_state;
pub(crate) mod names;
pub(crate) mod rib_view;

#[cfg(test)]
mod tests;
