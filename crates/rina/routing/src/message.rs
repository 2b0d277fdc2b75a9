//! Messages between members. Only their structure: the IPCP encodes them.

use alloc::string::String;
use alloc::vec::Vec;

/// Address of a member, the node of the graph. 0 is no address.
pub type Address = u64;

/// A flow-state object: one end of a link as the member at that end reports it.
///
/// The pair (`from`, `to`) is its key. A higher `seq` replaces a lower one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// The member that reports.
    pub from: Address,
    /// Its name, carried along for people and for the directory.
    pub name: String,
    /// The neighbour at the other end.
    pub to: Address,
    /// Cost of sending from `from` to `to`, 1 or more.
    pub cost: u32,
    /// Version, 1 or more; only `from` makes new ones.
    pub seq: u64,
    /// The link is there; otherwise this is a tombstone that keeps older versions from coming back.
    pub is_up: bool,
    /// Milliseconds since `from` made this version, in whole ones, rounded up.
    pub age_ms: u32,
}

/// What a set of objects amounts to. Equal sets have equal digests; different ones do not, but for
/// accidents (it is no defence against a member that lies).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many objects.
    pub objects: u32,
    /// Sum of their hashes: key, sequence number, cost and whether the link is up.
    pub hash: u64,
}

/// The digest of what one member reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OriginDigest {
    /// The member.
    pub origin: Address,
    /// Digest of its objects.
    pub digest: Digest,
}

/// Digests by origin of a part of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// First address that it speaks about.
    pub first: Address,
    /// Last address that it speaks about: of the origins from `first` to `last`, the sender knows
    /// those in `origins` and no others.
    pub last: Address,
    /// In ascending order.
    pub origins: Vec<OriginDigest>,
}

/// A message between neighbours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Objects that the sender believes the receiver lacks.
    Objects(Vec<FlowState>),
    /// Digest of the sender's whole database. A receiver that disagrees answers with summaries.
    Digest(Digest),
    /// Digests by origin. The receiver answers with the objects in which it is ahead and asks for
    /// the others.
    Summary(Summary),
    /// Asks for all objects of these origins.
    Want(Vec<Address>),
}
