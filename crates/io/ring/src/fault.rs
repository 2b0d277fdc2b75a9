//! Faults of the peer of a ring, and reasons for which a producer refuses a piece.

/// How the peer broke the rules of the ring. The ring is no longer usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The producer's index is below the index up to which records were read, or more than the
    /// ring's capacity above it.
    #[error("tail {tail:#x} is outside {from:#x}..={to:#x}")]
    Tail {
        /// The producer's index as found in shared memory.
        tail: u64,
        /// Lowest index that a correct producer could have.
        from: u64,
        /// Highest index that a correct producer could have.
        to: u64,
    },
    /// The consumer's index is below its previous value, or above the index up to which records
    /// were published.
    #[error("head {head:#x} is outside {from:#x}..={to:#x}")]
    Head {
        /// The consumer's index as found in shared memory.
        head: u64,
        /// Lowest index that a correct consumer could have.
        from: u64,
        /// Highest index that a correct consumer could have.
        to: u64,
    },
    /// An index is not a multiple of 8.
    #[error("index {index:#x} is not a multiple of 8")]
    Unaligned {
        /// The index as found in shared memory.
        index: u64,
    },
    /// A record is longer than the bytes that were published.
    #[error("record of {len} bytes at {at:#x}, but only {available} bytes follow its header")]
    Length {
        /// Length in the record's header, in bytes.
        len: u32,
        /// Index in the ring at which the record begins.
        at: u64,
        /// Number of bytes published behind the header.
        available: u64,
    },
    /// A record has undefined flags.
    #[error("record at {at:#x} has flags {flags:#x}, only bit 0 is defined")]
    Flags {
        /// The flags in the record's header.
        flags: u32,
        /// Index in the ring at which the record begins.
        at: u64,
    },
    /// A page of the ring is lost: the file was truncated, or its file system is full.
    #[error(
        "a page of the ring's memory is gone: the file was cut short, or its file system is \
        full"
    )]
    MemoryLost,
}

/// Why a producer refused a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The ring has too little free room now; a later attempt may succeed, when the consumer has
    /// released some.
    #[error("ring is full")]
    Full,
    /// The piece is too long for this ring even when the ring is empty.
    #[error("piece of {len} bytes is longer than the {len_max} a ring of this capacity takes")]
    TooLong {
        /// Length of the piece in bytes.
        len: usize,
        /// Longest piece that this ring takes, in bytes.
        len_max: usize,
    },
    /// The consumer broke the rules of the ring.
    #[error("consumer broke the ring")]
    Corrupt(#[source] Corrupt),
}
