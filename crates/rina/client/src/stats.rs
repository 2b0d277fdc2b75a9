//! Counters of one end of a flow.

/// What a flow has carried since it was made, as counted at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// SDUs sent.
    pub sdus_sent: u64,
    /// Bytes of the SDUs sent.
    pub bytes_sent: u64,
    /// SDUs received.
    pub sdus_received: u64,
    /// Bytes of the SDUs received, those that were too large counted in full.
    pub bytes_received: u64,
    /// SDUs received that were larger than the buffer given for them.
    pub sdus_too_large: u64,
    /// Times this end rang a doorbell of the other, each one system call.
    pub doorbells_rung: u64,
    /// Times this end slept because it had nothing to do.
    pub sleeps: u64,
}
