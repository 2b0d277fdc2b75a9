//! Counters of a connection.

use core::fmt;

/// Why a received PDU, or a part of it, was discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Discard {
    /// The PDU was received before, or the receiver had given it up.
    Duplicate,
    /// The sequence number is beyond the window that the receiver advertised.
    BeyondWindow,
    /// The PDU belongs to an earlier run, or to a run whose start is unknown.
    StaleRun,
    /// Too many PDUs arrived before the first PDU of their run.
    TooEarly,
    /// The reader has not fetched the UDFs that were delivered before.
    NoRoom,
    /// No buffer is free.
    NoBuffer,
    /// The PDU lacks a part that its type requires.
    Malformed,
    /// The PDU acknowledges a sequence number that was never sent.
    AckOfUnsent,
    /// A range of a selective acknowledgement contains numbers that were not sent.
    AbsurdSack,
    /// The window edge moved back, or beyond the largest window.
    AbsurdWindow,
    /// The control PDU is older than one that was received, and contains nothing new.
    OldControl,
    /// The sequence number of the control PDU is far above the last control PDU's number, and no
    /// further control PDU has confirmed it yet.
    ControlJump,
    /// The control PDU has contents that this connection does not use.
    UnexpectedControl,
    /// The connection had failed before the PDU arrived.
    Failed,
}

impl Discard {
    /// All reasons, in the order of [`Counters::discards`].
    pub const ALL: [Discard; 14] = [
        Discard::Duplicate,
        Discard::BeyondWindow,
        Discard::StaleRun,
        Discard::TooEarly,
        Discard::NoRoom,
        Discard::NoBuffer,
        Discard::Malformed,
        Discard::AckOfUnsent,
        Discard::AbsurdSack,
        Discard::AbsurdWindow,
        Discard::OldControl,
        Discard::ControlJump,
        Discard::UnexpectedControl,
        Discard::Failed,
    ];

    /// Returns the name of the reason, as counters show it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Discard::Duplicate => "duplicate",
            Discard::BeyondWindow => "beyond-window",
            Discard::StaleRun => "stale-run",
            Discard::TooEarly => "too-early",
            Discard::NoRoom => "no-room",
            Discard::NoBuffer => "no-buffer",
            Discard::Malformed => "malformed",
            Discard::AckOfUnsent => "ack-of-unsent",
            Discard::AbsurdSack => "absurd-sack",
            Discard::AbsurdWindow => "absurd-window",
            Discard::OldControl => "old-control",
            Discard::ControlJump => "control-jump",
            Discard::UnexpectedControl => "unexpected-control",
            Discard::Failed => "failed",
        }
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Counters of one connection, since it was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of data PDUs sent for the first time.
    pub sent: u64,
    /// Number of retransmissions of data PDUs.
    pub retransmitted: u64,
    /// Retransmitted PDUs whose retransmission was unnecessary, because the first copy arrived.
    pub spurious: u64,
    /// Number of PDUs considered lost because later PDUs were acknowledged.
    pub lost: u64,
    /// Number of expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes sent: repeated last PDUs that make the peer reveal a loss.
    pub probes: u64,
    /// Number of control PDUs sent, without rendezvous PDUs.
    pub control_sent: u64,
    /// Rendezvous PDUs sent, including repeated data PDUs that replace them.
    pub rendezvous_sent: u64,
    /// Number of data PDUs received, including discarded PDUs.
    pub received: u64,
    /// Number of UDFs delivered to the reader.
    pub delivered: u64,
    /// UDFs that the receiver gave up; delivery continued without them.
    pub given_up: u64,
    /// Number of control PDUs received, without rendezvous PDUs.
    pub control_received: u64,
    /// Control PDUs of the peer that are missing according to their numbers.
    pub control_lost: u64,
    /// Number of rendezvous PDUs received.
    pub rendezvous_received: u64,
    /// Number of data PDUs received with a congestion mark.
    pub marks_received: u64,
    /// Number of congestion marks that the peer has reported.
    pub marks_echoed: u64,
    /// UDFs dropped before they were sent: at the end of a burst, no buffer was free for a copy of
    /// the waiting UDF that outlives the burst. Always 0 with retransmission control.
    pub unsent: u64,
    /// Runs that this end started as a sender.
    pub runs: u64,
    /// Calls of `write` that returned an error, because the queue was full or no buffer was free.
    pub refused: u64,
    discards: [u64; Discard::ALL.len()],
}

impl Counters {
    /// Returns the number of PDUs, or parts of PDUs, that were discarded for `reason`.
    #[must_use]
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.discards[reason as usize]
    }

    /// Returns all reasons for discarding, each with its count.
    pub fn discards(&self) -> impl Iterator<Item = (Discard, u64)> + '_ {
        Discard::ALL
            .into_iter()
            .map(|reason| (reason, self.discarded(reason)))
    }

    pub(crate) fn discard(&mut self, reason: Discard) {
        self.discards[reason as usize] += 1;
    }
}
