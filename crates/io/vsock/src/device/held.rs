//! Packets of the guest that the device has handled and not returned to the guest yet.
//!
//! A return interrupts the guest, and an interrupt costs the guest more than a packet. The guest
//! waits for a return only when its ring is full, so the device returns several packets at once.

use std::time::{Duration, Instant};

/// The packets that are held.
#[derive(Debug, Default)]
pub(super) struct Held {
    packets: usize,
    until: Option<Instant>,
}

impl Held {
    /// Adds `packets` packets. Returns whether all packets are to be returned now; then none is
    /// held any more.
    pub(super) fn is_due(&mut self, packets: usize, now: Instant) -> bool {
        self.packets += packets;
        let is_due = self.packets >= PACKETS_MAX || self.until.is_some_and(|until| now >= until);
        if is_due {
            *self = Held::default();
        } else if self.packets > 0 {
            self.until.get_or_insert(now + TIME);
        }
        is_due
    }

    /// How long the packets may still be held, in nanoseconds; `u64::MAX` without packets.
    pub(super) fn left_ns(&self, now: Instant) -> u64 {
        self.until.map_or(u64::MAX, |until| {
            until.saturating_duration_since(now).as_nanos() as u64
        })
    }
}

/// Largest number of packets that are held, and for how long. The guest's ring has 128 entries.
const PACKETS_MAX: usize = 32;
const TIME: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_returned_in_bulk_or_after_a_time() {
        let (mut held, start) = (Held::default(), Instant::now());
        assert!(!held.is_due(0, start));
        assert_eq!(held.left_ns(start), u64::MAX);
        assert!(!held.is_due(PACKETS_MAX - 1, start));
        assert!(held.is_due(1, start));
        assert!(!held.is_due(1, start));
        assert_eq!(held.left_ns(start), TIME.as_nanos() as u64);
        // Further packets do not defer the return of the first.
        assert!(!held.is_due(1, start + TIME / 2));
        assert_eq!(held.left_ns(start + TIME), 0);
        assert!(held.is_due(0, start + TIME));
        assert!(!held.is_due(0, start + 2 * TIME));
    }
}
