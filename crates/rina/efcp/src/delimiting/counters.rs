//! Counters of the receiving end.

/// Counters of an assembler since it was created: SDUs handed on or discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerCounters {
    /// Number of SDUs handed on up to their last byte. With partial delivery, this includes the
    /// rest of an SDU whose earlier fragments were lost.
    pub sdus: u64,
    /// Number of SDUs of which the reader got the beginning but not the end, because a fragment
    /// was lost (with partial delivery).
    pub partial: u64,
    /// Number of SDUs discarded because a fragment was missing.
    pub incomplete: u64,
    /// SDUs discarded because they were longer than the assembler may hold.
    pub too_long: u64,
    /// UDFs discarded because their header was invalid, or not allowed at this point.
    pub malformed: u64,
    /// Number of UDFs discarded because no buffer was free.
    pub no_buffer: u64,
}
