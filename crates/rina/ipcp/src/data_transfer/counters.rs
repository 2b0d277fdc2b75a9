//! Counters of data transfer, and the reasons for which it drops PDUs and SDUs.

use carina_wire::dif::PciError;

use crate::security::Reject;

/// Counters of one IPCP's data transfer since the IPCP was made; they only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counters {
    /// Number of SDUs, or pieces of SDUs, that flows wrote.
    pub sdus_written: u64,
    /// Number of SDUs, or pieces of SDUs, handed to readers.
    pub sdus_delivered: u64,
    /// Number of PDUs that came from N-1 flows.
    pub pdus_received: u64,
    /// Bytes of the PDUs that came from N-1 flows, protection included.
    pub bytes_received: u64,
    /// Number of PDUs handed to N-1 flows.
    pub pdus_sent: u64,
    /// Total bytes of the PDUs handed to N-1 flows, protection included.
    pub bytes_sent: u64,
    /// Number of PDUs that came from one N-1 flow and were queued for another.
    pub pdus_relayed: u64,
    /// PDUs whose source and destination are this IPCP: both applications are at this member.
    pub pdus_looped: u64,
    /// Number of PDUs whose ECN flag this IPCP set.
    pub pdus_marked: u64,
    /// Number of PDUs that were moved to another N-1 flow because the first ended.
    pub pdus_moved: u64,
    drops: [u64; DropReason::ALL.len()],
    /// The sum of `drops`, kept because every breath of the engine reads it.
    drops_total: u64,
}

/// Why a PDU or an SDU was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// The PDU ends within its header.
    HeaderShort,
    /// The version in the PCI is unknown.
    HeaderVersion,
    /// The PDU type is unknown.
    HeaderType,
    /// Reserved bits of the PCI are set.
    HeaderReserved,
    /// The PDU type is reserved: no implementation sends it.
    HeaderReservedType,
    /// The length in the PCI is wrong.
    HeaderLength,
    /// The checksum in the PCI is wrong, or is missing in a DIF that has one.
    HeaderChecksum,
    /// A management PDU between neighbours has a wrong or missing checksum.
    NeighbourChecksum,
    /// The PDU is shorter than its SDU protection.
    ProtectionShort,
    /// The checksum of SDU protection is wrong.
    ProtectionChecksum,
    /// The PDU does not decrypt: it is forged, damaged, or encrypted with another key.
    ProtectionForged,
    /// The PDU was received before (replay).
    ProtectionReplayed,
    /// The lifetime of the PDU has expired.
    ProtectionExpired,
    /// The PDU does not decompress.
    ProtectionInflated,
    /// The key of the N-1 flow is used up.
    ProtectionExhausted,
    /// The source address is this IPCP's own or 0, or is not the other end of the connection.
    Forged,
    /// The PDU has reached its hop limit.
    HopLimit,
    /// There is no route to the destination.
    UnknownDestination,
    /// No neighbour on the route has an N-1 flow, or the PDU's sender is not a neighbour.
    NoNeighbour,
    /// No connection has the PDU's CEP-id.
    UnknownCep,
    /// The PDU is for a connection whose other end is not known yet.
    NotConnected,
    /// No cube of the DIF has the PDU's QoS-id.
    UnknownCube,
    /// The PDU came from an N-1 flow that this IPCP does not have.
    UnknownN1,
    /// This IPCP is not a member yet, and the PDU is neither management nor for a neighbour.
    NotMember,
    /// The PDU is longer than the N-1 flow carries.
    TooLong,
    /// The queue of the N-1 flow was full, or the queueing policy dropped the PDU.
    QueueFull,
    /// The queue of management PDUs to the N-1 flow was full.
    ManagementQueueFull,
    /// No buffer was free to hold a PDU, an SDU or a part of one.
    NoBuffer,
    /// The N-1 flow of the PDU ended, and no other leads to the destination.
    N1Gone,
    /// The reader of a flow without flow control had no room.
    NoRoom,
    /// The SDU was written to a flow that does not exist or has ended.
    NoFlow,
    /// The SDU is longer than `DataPath::sdu_max` of its flow.
    SduTooLong,
    /// A value does not fit in its field of the PCI.
    Field,
    /// EFCP discarded the PDU: a duplicate, out of the window, or out of order.
    Efcp,
    /// A user-data field is not a valid sequence of SDUs and fragments, or fragments are missing.
    Delimiting,
}

impl DropReason {
    /// All reasons, in the order of their discriminants.
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

    /// Returns the name under which the reason is counted.
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
    /// Returns the number of PDUs and SDUs that were dropped for `reason`.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Returns the number of PDUs and SDUs that were dropped for any reason.
    #[must_use]
    pub fn dropped_total(&self) -> u64 {
        self.drops_total
    }

    /// The reasons for which anything was dropped, each with its count.
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
