//! Counters of one end of a flow.

/// Counters of a flow since it was allocated, as counted at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// SDUs sent.
    pub sdus_sent: u64,
    /// Bytes of the SDUs sent.
    pub bytes_sent: u64,
    /// SDUs received.
    pub sdus_received: u64,
    /// Bytes of the SDUs received. SDUs that did not fit into their buffer count in full.
    pub bytes_received: u64,
    /// SDUs received that did not fit into their buffer.
    pub sdus_too_large: u64,
    /// Times this end rang a doorbell of the other end. Each takes one system call.
    pub doorbells_rung: u64,
    /// Times that this end slept until a doorbell rang, because it had nothing to receive or no
    /// space to send.
    pub sleeps: u64,
}
