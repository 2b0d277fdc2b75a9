//! Counters of one end of a flow.

/// Counters of a flow since it was allocated, as counted at this end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowStats {
    /// Number of SDUs that this end has sent.
    pub sdus_sent: u64,
    /// Total bytes of the SDUs that this end has sent.
    pub bytes_sent: u64,
    /// Number of SDUs that this end has received.
    pub sdus_received: u64,
    /// Bytes of the SDUs received. SDUs that did not fit into their buffer count in full.
    pub bytes_received: u64,
    /// Number of received SDUs that did not fit into the caller's buffer.
    pub sdus_too_large: u64,
    /// Times this end rang a doorbell of the other end. Each takes one system call.
    pub doorbells_rung: u64,
    /// Times that this end slept until a doorbell rang, because it had nothing to receive or no
    /// space to send.
    pub sleeps: u64,
}
