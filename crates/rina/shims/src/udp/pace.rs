//! Limits the pace of datagrams to a peer in the framing of rlite.
//!
//! A receiver there has a socket buffer of 212,992 bytes by default. With the kernel's overhead,
//! the buffer holds some 90 datagrams of 1452 bytes. A window of 512 PDUs that is sent in one burst
//! would overflow it before the receiver runs.

use carina_time::{Duration, Instant};

/// When the next datagram to a peer may be sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pace {
    /// Time up to which the sent datagrams have used up the pace.
    paid: Instant,
}

/// Datagrams that may be sent at once: a third of such a buffer.
const BURST: u64 = 32;

/// Time per datagram: 32 datagrams in 500 µs, or 740 Mbit/s with 1452 bytes each.
const COST: Duration = Duration::from_nanos(500_000 / BURST);

impl Pace {
    /// Whether a datagram may be sent now.
    pub(super) fn has_room(self, now: Instant) -> bool {
        self.paid <= now + COST * (BURST - 1)
    }

    /// Notes that a datagram was sent.
    pub(super) fn spend(&mut self, now: Instant) {
        self.paid = self.paid.max(now) + COST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of datagrams sent at `now` from an endless queue.
    fn leaving(pace: &mut Pace, now: Instant) -> u64 {
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
        let start = Instant::from_secs(1);
        assert_eq!(leaving(&mut pace, start), BURST);
        assert_eq!(leaving(&mut pace, start), 0);
        // With attempts every 50 µs, as many datagrams are sent as with one attempt after the same
        // time.
        let mut total = BURST;
        for round in 1..=20 {
            total += leaving(&mut pace, start + Duration::from_micros(50) * round);
        }
        assert_eq!(total, BURST + 2 * BURST);
        // A long pause does not allow a longer burst.
        assert_eq!(leaving(&mut pace, Instant::from_secs(2)), BURST);
    }
}
