//! The messages between members. Only their structure is defined here: the IPCP encodes them.

use alloc::string::String;
use alloc::vec::Vec;

/// Address of a member. 0 is not an address.
pub type Address = u64;

/// A flow-state object: one end of a link, as the member at that end reports it.
///
/// The pair (`from`, `to`) is the key of the object. A version with a higher `seq` replaces one
/// with a lower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Address of the member that reports the link.
    pub from: Address,
    /// Name of the reporting member, for people and for the directory.
    pub name: String,
    /// Address of the neighbour at the other end of the link.
    pub to: Address,
    /// Cost of sending from `from` to `to`, 1 or more.
    pub cost: u32,
    /// Version number, 1 or more. Only `from` makes new versions.
    pub seq: u64,
    /// Whether the link is up. Otherwise the object is a tombstone, which prevents older versions
    /// from returning.
    pub is_up: bool,
    /// Time since `from` made this version, in whole milliseconds, rounded up.
    pub age_ms: u32,
}

/// Digest of a set of objects. Equal sets have equal digests; different sets have different ones
/// with high probability. It does not protect against a member that lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Number of objects in the set.
    pub objects: u32,
    /// Sum of the objects' hashes over key, sequence number, cost and state.
    pub hash: u64,
}

/// Digest of the objects that one member (the origin) reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginDigest {
    /// Address of the member that reports the objects.
    pub origin: Address,
    /// Digest of the member's objects.
    pub digest: Digest,
}

/// Digests by origin, for the part of a database from one address to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// First address of the part of the database.
    pub first: Address,
    /// Last address of the part. The sender has objects of the members in `origins`, and of no
    /// other members from `first` to `last`.
    pub last: Address,
    /// Digests of the members in the part, in ascending order.
    pub origins: Vec<OriginDigest>,
}

/// A message of the routing policy between neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Objects that the receiver may lack.
    Objects(Vec<FlowState>),
    /// Digest of the sender's whole database. A receiver with a different digest starts an exchange
    /// of summaries.
    Digest(Digest),
    /// Digests by origin. The receiver answers with the objects of origins on which it disagrees,
    /// and requests the sender's.
    Summary(Summary),
    /// Requests all objects of these origins.
    Want(Vec<Address>),
}
