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

#[cfg(all(feature = "foreign", any(test, feature = "fuzzing")))]
pub mod fuzz;
#[cfg(feature = "foreign")]
mod interop;
#[cfg(feature = "foreign")]
mod irati;
#[cfg(feature = "foreign")]
mod rlite;

use carina_ipcp::Dialects;

/// The list of all dialects that this program supports: the native one and, with feature
/// `foreign`, rlite and IRATI. A DIF of a dialect that is not in the list is refused.
pub const DIALECTS: Dialects = Dialects::new(&[
    carina_management::DIALECT,
    #[cfg(feature = "foreign")]
    rlite::DIALECT,
    #[cfg(feature = "foreign")]
    irati::DIALECT,
]);
