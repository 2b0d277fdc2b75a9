//! Counts loss, duplicates and reordering by the sequence numbers that a receiver sees.

use serde::{Deserialize, Serialize};

/// Number of latest sequence numbers within which a late SDU is distinguished from a duplicate.
const WINDOW: u64 = 65_536;

/// Remembers which of the last `WINDOW` sequence numbers have arrived, and counts duplicates and
/// reordering.
#[derive(Debug)]
pub struct SequenceTracker {
    next: u64,
    seen: Vec<u64>,
    tally: Tally,
}

/// What a receiver has counted: distinct, duplicate and reordered SDUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Distinct SDUs that carried a sequence number.
    pub distinct: u64,
    /// SDUs whose number had arrived before, or was too old to know.
    pub duplicates: u64,
    /// SDUs that arrived after an SDU that was sent later.
    pub reordered: u64,
}

impl Default for SequenceTracker {
    fn default() -> Self {
        Self {
            next: 0,
            seen: vec![0; (WINDOW / 64) as usize],
            tally: Tally::default(),
        }
    }
}

impl SequenceTracker {
    /// A tracker that expects sequence number 0 first.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a received SDU by its sequence number. To be called in the order of arrival.
    #[inline]
    pub fn note(&mut self, number: u64) {
        if number >= self.next {
            self.advance(number);
            self.mark(number);
            self.tally.distinct += 1;
        } else if self.next - number > WINDOW || self.is_marked(number) {
            self.tally.duplicates += 1;
        } else {
            self.mark(number);
            self.tally.distinct += 1;
            self.tally.reordered += 1;
        }
    }

    /// The counts of all SDUs that were noted so far.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Moves the window forward to end at `number`, and clears the marks of the numbers that it now
    /// covers.
    fn advance(&mut self, number: u64) {
        let jump = number - self.next;
        if jump >= WINDOW {
            self.seen.fill(0);
        } else {
            for skipped in self.next..=number {
                self.unmark(skipped);
            }
        }
        self.next = number.saturating_add(1);
    }

    fn place(number: u64) -> (usize, u64) {
        let place = number % WINDOW;
        ((place / 64) as usize, 1 << (place % 64))
    }

    fn mark(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] |= bit;
    }

    fn unmark(&mut self, number: u64) {
        let (word, bit) = Self::place(number);
        self.seen[word] &= !bit;
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(numbers: impl IntoIterator<Item = u64>) -> Tally {
        let mut tracker = SequenceTracker::new();
        numbers.into_iter().for_each(|n| tracker.note(n));
        tracker.tally()
    }

    #[test]
    fn an_orderly_stream_has_nothing_to_report() {
        let expected = Tally {
            distinct: 200_000,
            duplicates: 0,
            reordered: 0,
        };
        assert_eq!(tally(0..200_000), expected);
    }

    #[test]
    fn late_and_repeated_sdus_are_distinguished() {
        let expected = Tally {
            distinct: 5,
            duplicates: 2,
            reordered: 1,
        };
        assert_eq!(tally([0, 1, 3, 2, 2, 4, 0]), expected);
    }

    #[test]
    fn a_jump_beyond_the_window_forgets_the_past() {
        let far = 10 * WINDOW;
        assert_eq!(tally([0, far, far - 1]).reordered, 1);
        assert_eq!(tally([0, far, 0]).duplicates, 1);
    }

    #[test]
    fn the_largest_number_does_not_overflow() {
        assert_eq!(tally([u64::MAX - 1, u64::MAX]).distinct, 2);
    }
}
