//! What was moved and what was discarded.

use carina_wire::dif::PciError;

use crate::security::Reject;

/// Counters of one IPCP's data transfer. They only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// SDUs (or pieces of SDUs) that flows wrote.
    pub sdus_written: u64,
    /// SDUs (or pieces) handed to readers.
    pub sdus_delivered: u64,
    /// PDUs that came from N-1 flows.
    pub pdus_received: u64,
    /// Bytes of them, protection included.
    pub bytes_received: u64,
    /// PDUs handed to N-1 flows.
    pub pdus_sent: u64,
    /// Bytes of them, protection included.
    pub bytes_sent: u64,
    /// PDUs that came from one N-1 flow and were queued for another.
    pub pdus_relayed: u64,
    /// PDUs that began and ended here: two applications of this IPCP.
    pub pdus_looped: u64,
    /// PDUs that got the ECN flag here.
    pub pdus_marked: u64,
    /// PDUs that moved from an N-1 flow that ended to another one.
    pub pdus_moved: u64,
    drops: [u64; DropReason::ALL.len()],
    /// The sum of all drops, which is looked at in every breath.
    drops_total: u64,
}

/// Why something was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// A PDU ends within its header.
    HeaderShort,
    /// The version of its PCI is unknown.
    HeaderVersion,
    /// Its type is unknown.
    HeaderType,
    /// Reserved bits are set.
    HeaderReserved,
    /// Its type is reserved: no implementation sends it.
    HeaderReservedType,
    /// Its length is wrong.
    HeaderLength,
    /// The checksum in its PCI is wrong, or is missing in a DIF that has it.
    HeaderChecksum,
    /// A management PDU between neighbours whose check is wrong or missing.
    NeighbourChecksum,
    /// Shorter than its protection.
    ProtectionShort,
    /// Its checksum is wrong.
    ProtectionChecksum,
    /// It does not decrypt.
    ProtectionForged,
    /// It was here before.
    ProtectionReplayed,
    /// Its lifetime is over.
    ProtectionExpired,
    /// It does not decompress.
    ProtectionInflated,
    /// The key of the N-1 flow is used up.
    ProtectionExhausted,
    /// Its source is this IPCP, address 0, or not the other end of the connection.
    Forged,
    /// The last hop that it was allowed is over.
    HopLimit,
    /// No route to its destination.
    UnknownDestination,
    /// A route, but no N-1 flow to any neighbour on it; or its sender is not a neighbour.
    NoNeighbour,
    /// No connection has its CEP-id.
    UnknownCep,
    /// It came for a connection whose other end is not known yet.
    NotConnected,
    /// Its QoS-id is not one of the DIF.
    UnknownCube,
    /// It came over an N-1 flow that this IPCP does not have.
    UnknownN1,
    /// This IPCP is no member yet, and it is neither management nor for a neighbour.
    NotMember,
    /// Longer than the N-1 flow carries.
    TooLong,
    /// The queue of the N-1 flow was full, or the queueing policy chose it.
    QueueFull,
    /// The queue for management PDUs was full.
    ManagementQueueFull,
    /// There was no buffer.
    NoBuffer,
    /// Its N-1 flow ended and no other leads there.
    N1Gone,
    /// The reader of the flow had no room, and the flow has no flow control.
    NoRoom,
    /// A flow's writer wrote to a flow that does not exist or has ended.
    NoFlow,
    /// An SDU is longer than the flow carries.
    SduTooLong,
    /// A value does not fit its field in the PCI.
    Field,
    /// EFCP discarded it: a duplicate, outside the window, or without order.
    Efcp,
    /// A user-data field is no sequence of SDUs and fragments, or fragments are missing.
    Delimiting,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [DropReason; 35] = [
        DropReason::HeaderShort,
        DropReason::HeaderVersion,
        DropReason::HeaderType,
        DropReason::HeaderReserved,
        DropReason::HeaderReservedType,
        DropReason::HeaderLength,
        DropReason::HeaderChecksum,
        DropReason::NeighbourChecksum,
        DropReason::ProtectionShort,
        DropReason::ProtectionChecksum,
        DropReason::ProtectionForged,
        DropReason::ProtectionReplayed,
        DropReason::ProtectionExpired,
        DropReason::ProtectionInflated,
        DropReason::ProtectionExhausted,
        DropReason::Forged,
        DropReason::HopLimit,
        DropReason::UnknownDestination,
        DropReason::NoNeighbour,
        DropReason::UnknownCep,
        DropReason::NotConnected,
        DropReason::UnknownCube,
        DropReason::UnknownN1,
        DropReason::NotMember,
        DropReason::TooLong,
        DropReason::QueueFull,
        DropReason::ManagementQueueFull,
        DropReason::NoBuffer,
        DropReason::N1Gone,
        DropReason::NoRoom,
        DropReason::NoFlow,
        DropReason::SduTooLong,
        DropReason::Field,
        DropReason::Efcp,
        DropReason::Delimiting,
    ];

    /// A word for counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DropReason::HeaderShort => "header-short",
            DropReason::HeaderVersion => "header-version",
            DropReason::HeaderType => "header-type",
            DropReason::HeaderReserved => "header-reserved",
            DropReason::HeaderReservedType => "header-reserved-type",
            DropReason::HeaderLength => "header-length",
            DropReason::HeaderChecksum => "header-checksum",
            DropReason::NeighbourChecksum => "neighbour-checksum",
            DropReason::ProtectionShort => "protection-short",
            DropReason::ProtectionChecksum => "protection-checksum",
            DropReason::ProtectionForged => "protection-forged",
            DropReason::ProtectionReplayed => "protection-replayed",
            DropReason::ProtectionExpired => "protection-expired",
            DropReason::ProtectionInflated => "protection-inflated",
            DropReason::ProtectionExhausted => "protection-exhausted",
            DropReason::Forged => "forged",
            DropReason::HopLimit => "hop-limit",
            DropReason::UnknownDestination => "unknown-destination",
            DropReason::NoNeighbour => "no-neighbour",
            DropReason::UnknownCep => "unknown-cep",
            DropReason::NotConnected => "not-connected",
            DropReason::UnknownCube => "unknown-cube",
            DropReason::UnknownN1 => "unknown-n1",
            DropReason::NotMember => "not-member",
            DropReason::TooLong => "too-long",
            DropReason::QueueFull => "queue-full",
            DropReason::ManagementQueueFull => "management-queue-full",
            DropReason::NoBuffer => "no-buffer",
            DropReason::N1Gone => "n1-gone",
            DropReason::NoRoom => "no-room",
            DropReason::NoFlow => "no-flow",
            DropReason::SduTooLong => "sdu-too-long",
            DropReason::Field => "field",
            DropReason::Efcp => "efcp",
            DropReason::Delimiting => "delimiting",
        }
    }
}

impl From<PciError> for DropReason {
    fn from(error: PciError) -> DropReason {
        match error {
            PciError::Short => DropReason::HeaderShort,
            PciError::Version => DropReason::HeaderVersion,
            PciError::Type => DropReason::HeaderType,
            PciError::ReservedType(_) => DropReason::HeaderReservedType,
            PciError::Reserved | PciError::Range => DropReason::HeaderReserved,
            _ => DropReason::HeaderLength,
        }
    }
}

impl From<Reject> for DropReason {
    fn from(reject: Reject) -> DropReason {
        match reject {
            Reject::Short => DropReason::ProtectionShort,
            Reject::Checksum => DropReason::ProtectionChecksum,
            Reject::Forged => DropReason::ProtectionForged,
            Reject::Replayed => DropReason::ProtectionReplayed,
            Reject::Expired => DropReason::ProtectionExpired,
            Reject::Inflated => DropReason::ProtectionInflated,
            Reject::Exhausted => DropReason::ProtectionExhausted,
        }
    }
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            sdus_written: 0,
            sdus_delivered: 0,
            pdus_received: 0,
            bytes_received: 0,
            pdus_sent: 0,
            bytes_sent: 0,
            pdus_relayed: 0,
            pdus_looped: 0,
            pdus_marked: 0,
            pdus_moved: 0,
            drops: [0; DropReason::ALL.len()],
            drops_total: 0,
        }
    }
}

impl Counters {
    /// How many were discarded for this reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// How many were discarded for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops_total
    }

    /// The reasons for which anything was discarded.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .into_iter()
            .map(|reason| (reason, self.dropped(reason)))
            .filter(|(_, count)| *count > 0)
    }

    pub(super) fn drop_one(&mut self, reason: DropReason) {
        self.drop_many(reason, 1);
    }

    pub(super) fn drop_many(&mut self, reason: DropReason, count: u64) {
        self.drops[reason as usize] += count;
        self.drops_total += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_numbered_in_order_and_named_differently() {
        let mut names = alloc::collections::BTreeSet::new();
        for (index, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
            assert!(names.insert(reason.name()));
        }
    }
}
