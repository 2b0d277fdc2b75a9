//! The dialects in which a member speaks with members that run rlite or IRATI, and the list of all
//! dialects.
//!
//! ```text
//!   DIALECTS: native (carina-management), rlite, irati
//!                                      |      |
//!                                      v      v
//!                                     interop: what both need, of no dialect
//! ```
//!
//! Each dialect is a machine behind [`LayerManagement`](carina_ipcp::LayerManagement). The IPC
//! process and its data transfer are in `carina-ipcp`.
//!
//! To add a dialect, write a module that has a
//! [`DialectProfile`](carina_ipcp::layer::DialectProfile), and add it to [`DIALECTS`].

#![no_std]
#![forbid(unsafe_code)]
#![deny(unreachable_pub)]

extern crate alloc;

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod interop;
mod irati;
mod rlite;

use carina_ipcp::Dialects;

/// All dialects of Carina: native, rlite, IRATI.
pub const DIALECTS: Dialects =
    Dialects::new(&[carina_management::DIALECT, rlite::DIALECT, irati::DIALECT]);
