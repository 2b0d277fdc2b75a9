//! What a peer did that no correct peer does.

/// A violation by the peer. The ring is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The driver's index runs further ahead than the ring is long.
    #[error("available index {index} is more than {size} ahead of {next}")]
    AvailableIndex {
        /// What the driver wrote.
        index: u16,
        /// The next chain that the device takes.
        next: u16,
        /// Descriptors of the ring.
        size: u16,
    },
    /// A descriptor index is beyond the table.
    #[error("descriptor {index} of a table of {size}")]
    DescriptorIndex {
        /// What the peer wrote.
        index: u16,
        /// Descriptors of the table.
        size: u16,
    },
    /// A chain has more descriptors than the ring, as one does that bites its tail.
    #[error("chain of more than {size} descriptors")]
    ChainLength {
        /// Descriptors of the ring.
        size: u16,
    },
    /// A chain's buffers have more than 2^32 - 1 bytes in one direction.
    #[error("chain of more than 2^32 - 1 bytes")]
    ChainBytes,
    /// A buffer for the device to read comes behind one to write.
    #[error("readable buffer behind a writable one")]
    ReadableBehindWritable,
    /// A buffer, or a table of descriptors, lies outside of the memory that the peer shares.
    #[error("{len} bytes at {address:#x} are not in the memory of the guest")]
    OutsideMemory {
        /// Where it begins.
        address: u64,
        /// Its bytes.
        len: u32,
    },
    /// The length of an indirect table is 0 or no multiple of 16, or the table has a flag for
    /// another table, or the descriptor that leads to it has a successor.
    #[error("indirect table of {len} bytes with flags {flags:#x}")]
    IndirectTable {
        /// Its bytes.
        len: u32,
        /// Flags of the descriptor at which it failed.
        flags: u16,
    },
    /// Indirect tables were not negotiated.
    #[error("indirect table without VIRTIO_F_INDIRECT_DESC")]
    IndirectNotNegotiated,
    /// The device's index runs further ahead than there are chains.
    #[error("used index {index} is more than {outstanding} ahead of {next}")]
    UsedIndex {
        /// What the device wrote.
        index: u16,
        /// The next that the driver looks at.
        next: u16,
        /// Chains that the device has.
        outstanding: u16,
    },
    /// The device returned a chain that it does not have.
    #[error("used chain {id}, which the device does not have")]
    UsedId {
        /// What the device wrote.
        id: u32,
    },
    /// A page of the memory that the peer shares could not be had.
    #[error(
        "a page of the shared memory is gone: its file was cut short, or its file system is full"
    )]
    MemoryLost,
}

impl Fault {
    /// A short word for counters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fault::AvailableIndex { .. } => "available_index",
            Fault::DescriptorIndex { .. } => "descriptor_index",
            Fault::ChainLength { .. } => "chain_length",
            Fault::ChainBytes => "chain_bytes",
            Fault::ReadableBehindWritable => "readable_behind_writable",
            Fault::OutsideMemory { .. } => "outside_memory",
            Fault::IndirectTable { .. } => "indirect_table",
            Fault::IndirectNotNegotiated => "indirect_not_negotiated",
            Fault::UsedIndex { .. } => "used_index",
            Fault::UsedId { .. } => "used_id",
            Fault::MemoryLost => "memory_lost",
        }
    }
}
