//! The pace of datagrams to a peer in the framing of rlite.
//!
//! A receiver there has a socket buffer of 212,992 bytes by default, which holds some 90 datagrams
//! of 1452 bytes with what the kernel counts for each. A window of 512 PDUs that leaves in one
//! burst overflows it before the receiver runs.

/// When the next datagram to a peer may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Time up to which datagrams were paid for, in ns.
    paid: u64,
}

/// Datagrams that may leave at once: a third of such a buffer.
const BURST: u64 = 32;

/// Pause that a datagram costs, in ns: 32 in 500 µs, which is 740 Mbit/s of 1452 bytes each.
const COST_NS: u64 = 500_000 / BURST;

impl Pace {
    /// Whether a datagram may leave now.
    pub fn has_room(self, now: u64) -> bool {
        self.paid <= now + (BURST - 1) * COST_NS
    }

    /// A datagram leaves.
    pub fn spend(&mut self, now: u64) {
        self.paid = self.paid.max(now) + COST_NS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Datagrams that leave at `now` of a queue that does not end.
    fn leaving(pace: &mut Pace, now: u64) -> u64 {
        let mut count = 0;
        while pace.has_room(now) {
            pace.spend(now);
            count += 1;
        }
        count
    }

    #[test]
    fn window_leaves_in_bursts_that_a_buffer_holds() {
        let mut pace = Pace::default();
        let start = 1_000_000_000;
        assert_eq!(leaving(&mut pace, start), BURST);
        assert_eq!(leaving(&mut pace, start), 0);
        // Offered again every 50 µs, as much leaves as in one look after the same time.
        let mut total = BURST;
        for round in 1..=20 {
            total += leaving(&mut pace, start + round * 50_000);
        }
        assert_eq!(total, BURST + 2 * BURST);
        // A long pause is no credit.
        assert_eq!(leaving(&mut pace, 2 * start), BURST);
    }
}
