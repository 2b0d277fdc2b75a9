//! The dialects of other stacks, rlite and IRATI, whose members can share a DIF with Carina; and
//! the list of all dialects.
//!
//! ```text
//!   DIALECTS: native (carina-management), rlite, irati
//!                                      |      |
//!                                      v      v
//!                                     interop: components that both use
//! ```
//!
//! Each dialect implements [`LayerManagement`](carina_ipcp::LayerManagement) as a machine without
//! I/O. The rest of the IPCP, with data transfer, is in `carina-ipcp`.
//!
//! To add a dialect, write a module with a [`DialectProfile`](carina_ipcp::layer::DialectProfile),
//! and add that to [`DIALECTS`].

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod interop;
mod irati;
mod rlite;

use carina_ipcp::Dialects;

/// The list of all dialects that Carina supports: native, rlite, IRATI.
pub const DIALECTS: Dialects =
    Dialects::new(&[carina_management::DIALECT, rlite::DIALECT, irati::DIALECT]);
