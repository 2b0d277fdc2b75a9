//! What a peer can do wrong, and what the producer cannot do.

/// The peer broke the rules of the ring; the ring is of no further use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// The producer's index is not between what was read and what the ring can hold.
    #[error("tail {tail:#x} is outside {from:#x}..={to:#x}")]
    Tail {
        /// What was found.
        tail: u64,
        /// Lowest index that would be right.
        from: u64,
        /// Highest index that would be right.
        to: u64,
    },
    /// The consumer's index is not between what it was and what was published.
    #[error("head {head:#x} is outside {from:#x}..={to:#x}")]
    Head {
        /// What was found.
        head: u64,
        /// Lowest index that would be right.
        from: u64,
        /// Highest index that would be right.
        to: u64,
    },
    /// An index is not a multiple of 8.
    #[error("index {index:#x} is not a multiple of 8")]
    Unaligned {
        /// What was found.
        index: u64,
    },
    /// A record is longer than what was published.
    #[error("record of {len} bytes at {at:#x}, but only {available} bytes follow its header")]
    Length {
        /// The length in the record's header.
        len: u32,
        /// Index of the record.
        at: u64,
        /// Bytes published behind the header.
        available: u64,
    },
    /// A record has undefined flags.
    #[error("record at {at:#x} has flags {flags:#x}, only bit 0 is defined")]
    Flags {
        /// The flags in the record's header.
        flags: u32,
        /// Index of the record.
        at: u64,
    },
    /// A page of the ring could not be had: its file was cut short, or its file system is full.
    #[error("a page of its memory is gone: the file was cut short, or its file system is full")]
    MemoryLost,
}

/// Why the producer did not take a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Not enough room until the consumer releases some.
    #[error("ring is full")]
    Full,
    /// Never enough room.
    #[error("piece of {len} bytes is longer than the {len_max} a ring of this capacity takes")]
    TooLong {
        /// Length asked for.
        len: usize,
        /// Longest piece of this ring.
        len_max: usize,
    },
    /// The consumer broke the rules.
    #[error("consumer broke the ring")]
    Corrupt(#[source] Corrupt),
}
