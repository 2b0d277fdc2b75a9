//! The member that sent a request, when it is not a neighbour on a management channel.

use alloc::string::String;

/// A member by its name and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Requester {
    pub(super) name: String,
    pub(super) address: u64,
}
