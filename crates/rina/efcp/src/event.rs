//! What happens to a connection, and why it fails.

/// What happened to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnEvent {
    /// It is over, and not in order.
    Failed(FailReason),
    /// Sequence numbers run out: a new connection should take over.
    Rollover,
    /// All that was written was acknowledged, or sent where nothing is acknowledged; see
    /// [`finish`](crate::Connection::finish).
    Drained,
    /// Nothing came for 2Δt: the next PDU must begin a run.
    PeerInactive,
}

/// Why a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// No progress for R although PDUs were sent again.
    NoProgress,
    /// The other side began a new run although the old one has holes.
    RunBroken,
    /// No sequence number is left.
    Exhausted,
    /// There was no buffer for what had been acknowledged.
    NoBuffer,
    /// The other side has used its last sequence number, and does not begin a new run.
    PeerExhausted,
}

impl FailReason {
    /// In words for people.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            FailReason::NoProgress => "the other side has acknowledged nothing for too long",
            FailReason::RunBroken => "the other side lost its state before all had arrived",
            FailReason::Exhausted => "sequence numbers are used up",
            FailReason::NoBuffer => "no buffer for what had arrived",
            FailReason::PeerExhausted => {
                "the other side has used up its sequence numbers, and cannot use them again"
            }
        }
    }
}
