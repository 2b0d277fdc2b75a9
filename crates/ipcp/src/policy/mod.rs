//! Policies: what differs from DIF to DIF while the mechanisms stay the same.
//!
//! Every component of an IPCP that decides something has a name ([`component`]) and a choice of
//! policies. The [`Catalogue`] knows them all: what they are called, which parameters they take,
//! whether they can be changed while the DIF runs, and how to make one. A program adds policies of
//! its own with [`Catalogue::register`]; `crates/policy-example` shows how.

mod catalogue;
mod forwarding;
mod params;
mod queueing;
mod scheduling;
mod standard;

pub use catalogue::{Catalogue, Descriptor, Param};
pub use forwarding::{Ecmp, ForwardingPolicy, Single, Spread};
pub use params::Params;
pub use queueing::{Arrival, EcnMark, QueueDecision, QueuePolicy, Red, TailDrop};
pub use scheduling::{Class, Fifo, Scheduler, StrictPriority, WeightedFair};

/// Names of the components that have policies.
pub mod component {
    /// How much a sender keeps in flight.
    pub const CONGESTION_CONTROL: &str = "congestion-control";
    /// What a sender believes of the round-trip time.
    pub const RTT_ESTIMATION: &str = "rtt-estimation";
    /// Which PDU an N-1 flow carries next.
    pub const RMT_SCHEDULING: &str = "rmt-scheduling";
    /// What happens to a PDU that meets a long queue.
    pub const RMT_QUEUE: &str = "rmt-queue";
    /// Which of several next hops a PDU takes.
    pub const FORWARDING: &str = "forwarding";
    /// How forwarding tables come about.
    pub const ROUTING: &str = "routing";
    /// Who gets which address.
    pub const ADDRESS_ASSIGNMENT: &str = "address-assignment";
    /// Where an application is.
    pub const DIRECTORY: &str = "directory";
    /// Which cube serves a flow specification.
    pub const QOS_SELECTION: &str = "qos-selection";
    /// Who a neighbour proves to be.
    pub const AUTHENTICATION: &str = "authentication";
    /// Who may join and who may allocate flows.
    pub const ACCESS_CONTROL: &str = "access-control";
    /// What protects PDUs on an N-1 flow.
    pub const SDU_PROTECTION: &str = "sdu-protection";
    /// A checksum in the PCI of each PDU, where the dialect has room for one.
    pub const PCI_CHECKSUM: &str = "pci-checksum";
    /// How SDUs become user-data fields.
    pub const DELIMITING: &str = "delimiting";
    /// How an IPCP joins.
    pub const ENROLLMENT: &str = "enrollment";
}
