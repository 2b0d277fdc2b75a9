//! Components that layer management of the dialects of other stacks shares. They do no I/O and do
//! not depend on a dialect.
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
//! Each component returns what its caller must send or report; it does not encode messages itself.

pub(crate) mod deallocation;
pub(crate) mod directory;
mod flow;
pub(crate) mod flow_allocator;
pub(crate) mod link_state;
pub(crate) mod names;
pub(crate) mod rib_view;

#[cfg(test)]
mod tests;
