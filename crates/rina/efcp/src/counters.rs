//! What a connection counts.

use core::fmt;

/// Why a received PDU, or a part of it, was not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(usize)]
pub enum Discard {
    /// Received before, or given up before it came.
    Duplicate,
    /// Beyond the window that was advertised.
    BeyondWindow,
    /// Of a run that is over, or whose start is unknown.
    StaleRun,
    /// Too many PDUs came before the first of their run.
    TooEarly,
    /// The reader has not taken what was delivered before.
    NoRoom,
    /// There is no buffer.
    NoBuffer,
    /// It has not what its kind needs.
    Malformed,
    /// It acknowledges what was never sent.
    AckOfUnsent,
    /// A range of a selective acknowledgement that is not within what was sent.
    AbsurdSack,
    /// A window edge that moved back, or beyond what the window may be.
    AbsurdWindow,
    /// A control PDU that is older than one that was received, and says nothing new.
    OldControl,
    /// A control PDU whose number is far ahead of the last.
    ControlJump,
    /// Control of a kind that this connection does not use.
    UnexpectedControl,
    /// The connection has failed.
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

    /// The reason as counters are labelled with it.
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

/// Counters of one connection, since its birth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data PDUs sent for the first time.
    pub sent: u64,
    /// Data PDUs sent again.
    pub retransmitted: u64,
    /// Of these, those that were not necessary: the first copy arrived.
    pub spurious: u64,
    /// PDUs declared lost by what arrived after them.
    pub lost: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Tail loss probes.
    pub probes: u64,
    /// Control PDUs sent, rendezvous not included.
    pub control_sent: u64,
    /// Rendezvous PDUs sent, or repetitions that stand for them.
    pub rendezvous_sent: u64,
    /// Data PDUs received, discarded ones included.
    pub received: u64,
    /// UDFs handed to the reader.
    pub delivered: u64,
    /// UDFs given up by the receiver: delivery went on without them.
    pub given_up: u64,
    /// Control PDUs received, rendezvous not included.
    pub control_received: u64,
    /// Control PDUs of the other side that never came, going by their numbers.
    pub control_lost: u64,
    /// Rendezvous PDUs received.
    pub rendezvous_received: u64,
    /// Data PDUs received with a congestion mark.
    pub marks_received: u64,
    /// Congestion marks that the other side reported.
    pub marks_echoed: u64,
    /// UDFs dropped from the closed-window queue because there was no buffer to keep them.
    pub unsent: u64,
    /// Runs begun as a sender.
    pub runs: u64,
    /// Times a writer was turned away because the closed-window queue was full.
    pub refused: u64,
    discards: [u64; Discard::ALL.len()],
}

impl Counters {
    /// PDUs, or parts of them, that were discarded for a reason.
    #[must_use]
    pub fn discarded(&self, reason: Discard) -> u64 {
        self.discards[reason as usize]
    }

    /// All reasons with their counts.
    pub fn discards(&self) -> impl Iterator<Item = (Discard, u64)> + '_ {
        Discard::ALL
            .into_iter()
            .map(|reason| (reason, self.discarded(reason)))
    }

    pub(crate) fn discard(&mut self, reason: Discard) {
        self.discards[reason as usize] += 1;
    }
}
