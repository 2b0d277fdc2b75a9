//! Counters of the receiving end.

/// Counters of an assembler since it was created: SDUs handed on or discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AssemblerCounters {
    /// Number of SDUs handed on completely.
    pub sdus: u64,
    /// Number of SDUs handed on in part (with partial delivery).
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
