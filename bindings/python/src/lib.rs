//! The native part of the Python package `carina`: registrations, allocations and flows.
//!
//! The package's Python modules build asyncio, management and virtual networks on it. Three rules
//! hold everywhere:
//!
//! - A call that has its message or its space at once keeps the interpreter's lock. A call that
//!   waits releases it.
//! - A wait is cut into slices ([`wait::SLICE`]). Between two slices Python's signal handlers run,
//!   so that Ctrl-C ends every call, and another thread may close the object.
//! - Memory of a ring is never a Rust reference, because the remote application may write to it.

#![deny(unsafe_code)]

#[expect(unsafe_code, reason = "Python passes addresses of its buffers")]
mod buffer;
mod error;
mod flow;
mod half;
#[expect(unsafe_code, reason = "Python asks for the address of a buffer")]
mod lease;
mod listener;
mod pending;
mod receiving;
mod sending;
mod wait;

use pyo3::prelude::pymodule;

/// Registrations, allocations and flows.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::flow::Flow;
    #[pymodule_export]
    use super::lease::Lease;
    #[pymodule_export]
    use super::listener::Listener;
    #[pymodule_export]
    use super::pending::{Allocation, PendingListener, start_allocate, start_register};
}
