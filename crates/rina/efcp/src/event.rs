//! Events of a connection, and the reasons for its failure.

/// A change of a connection that its owner should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEvent {
    /// The connection has failed, for this reason; it carries no more data.
    Failed(FailReason),
    /// Sequence numbers will run out soon: a new connection should replace this one.
    Rollover,
    /// Everything that was written has been sent and, with retransmission control, acknowledged.
    /// Emitted once after [`finish`](crate::Connection::finish).
    Drained,
    /// No PDU arrived for 2Δt, so the receiver forgot the run. The next PDU must start a new run.
    PeerInactive,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// Retransmissions brought no new acknowledgement for the time R.
    NoProgress,
    /// The peer started a new run while PDUs of the old run were missing.
    RunBroken,
    /// The sender has used all sequence numbers.
    Exhausted,
    /// No buffer was free for a UDF that had already been acknowledged.
    NoBuffer,
    /// The peer used its last sequence number and did not start a new run.
    PeerExhausted,
}

impl FailReason {
    /// Returns why the connection failed, as text for operators and logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            FailReason::NoProgress => "the other side has acknowledged nothing for too long",
            FailReason::RunBroken => "the other side lost its state before all PDUs had arrived",
            FailReason::Exhausted => "sequence numbers are used up",
            FailReason::NoBuffer => "no buffer was free for PDUs that had arrived",
            FailReason::PeerExhausted => {
                "the other side has used up its sequence numbers, and cannot use them again"
            }
        }
    }
}
