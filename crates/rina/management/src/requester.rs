//! The sender of a request that came in a plain management PDU.

use alloc::string::String;

/// The member that sent a request, by name and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requester {
    pub(super) name: String,
    pub(super) address: u64,
}
