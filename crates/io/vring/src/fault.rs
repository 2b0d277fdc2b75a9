//! Faults of a peer: actions that a correct peer never takes.

/// How the peer broke the rules of a virtqueue. The ring must be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The driver's index is further ahead than the ring has descriptors.
    #[error("available index {index} is more than {size} ahead of {next}")]
    AvailableIndex {
        /// The index that the driver wrote.
        index: u16,
        /// The index of the next chain that the device takes.
        next: u16,
        /// Number of descriptors of the ring.
        size: u16,
    },
    /// The index of a descriptor is beyond the end of the table.
    #[error("descriptor {index} is outside a table of {size}")]
    DescriptorIndex {
        /// The index that the peer wrote.
        index: u16,
        /// Number of descriptors of the table.
        size: u16,
    },
    /// A chain has more descriptors than the ring, for instance because it is circular.
    #[error("chain of more than {size} descriptors")]
    ChainLength {
        /// Number of descriptors of the ring.
        size: u16,
    },
    /// A chain's buffers have more than 2^32 - 1 bytes in one direction.
    #[error("chain of more than 2^32 - 1 bytes")]
    ChainBytes,
    /// A readable buffer follows a writable one.
    #[error("a readable buffer follows a writable one in a chain")]
    ReadableBehindWritable,
    /// A buffer, or an indirect table, is outside the memory that the peer shares.
    #[error("{len} bytes at {address:#x} are not in the memory of the guest")]
    OutsideMemory {
        /// Guest physical address of the first byte of the buffer or table.
        address: u64,
        /// The length in bytes.
        len: u32,
    },
    /// An invalid indirect table: its length is 0 or not a multiple of 16, an entry refers to
    /// another table, or the descriptor that refers to it has a successor.
    #[error("indirect table of {len} bytes with flags {flags:#x}")]
    IndirectTable {
        /// Length of the table in bytes.
        len: u32,
        /// Flags of the invalid descriptor.
        flags: u16,
    },
    /// An indirect table, although `VIRTIO_F_INDIRECT_DESC` was not negotiated.
    #[error("indirect table without VIRTIO_F_INDIRECT_DESC")]
    IndirectNotNegotiated,
    /// The device's index is further ahead than the number of chains that it has.
    #[error("used index {index} is more than {outstanding} ahead of {next}")]
    UsedIndex {
        /// The index that the device wrote.
        index: u16,
        /// The index that the driver looks at next.
        next: u16,
        /// Number of chains that the device has.
        outstanding: u16,
    },
    /// The device returned a chain that it did not have.
    #[error("the device returned chain {id}, which it did not have")]
    UsedId {
        /// The id that the device wrote.
        id: u32,
    },
    /// A page of the memory that the peer shares is lost.
    #[error(
        "a page of the shared memory is gone: its file was cut short, or its file system is full"
    )]
    MemoryLost,
}

impl Fault {
    /// Returns a short name of the fault, for counters.
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
