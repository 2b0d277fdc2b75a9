//! Detects replayed PDUs by their counters.

/// A window over the last [`WINDOW`] counters. Each counter is accepted once, in any order.
#[derive(Clone, Debug)]
pub(super) struct Replay {
    /// One above the highest accepted counter.
    end: u64,
    /// Bit `c % 64` of word `c / 64 % WORDS` is set if `c` was accepted.
    seen: [u64; WORDS],
}

impl Default for Replay {
    fn default() -> Replay {
        Replay {
            end: 0,
            seen: [0; WORDS],
        }
    }
}

impl Replay {
    /// Whether this counter was not accepted yet and is recent enough. The PDU itself may still be
    /// forged.
    pub(super) fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        let is_recent = self.end - counter <= WINDOW;
        is_recent && self.seen[word(counter)] & bit(counter) == 0
    }

    /// One above the highest accepted counter.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Marks a counter as accepted. Call it only for a PDU whose authenticity was checked;
    /// otherwise a forger could move the window.
    pub(super) fn accept(&mut self, counter: u64) {
        if counter >= self.end {
            let fresh = counter / 64 - self.end.saturating_sub(1) / 64;
            for step in 0..fresh.min(WORDS as u64) {
                self.seen[word(counter - 64 * step)] = 0;
            }
            self.end = counter.saturating_add(1);
        }
        self.seen[word(counter)] |= bit(counter);
    }
}

fn word(counter: u64) -> usize {
    (counter / 64 % WORDS as u64) as usize
}

fn bit(counter: u64) -> u64 {
    1 << (counter % 64)
}

/// Largest distance by which the counter of a PDU may lag behind the highest counter received.
pub const WINDOW: u64 = 1024;

/// One word more than the window, because the newest word is only partly used.
const WORDS: usize = WINDOW as usize / 64 + 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compares the window with a set of all accepted counters.
        #[test]
        fn each_counter_once(steps in prop::collection::vec((0..6u8, 0..3000u64), 1..400)) {
            let (mut replay, mut model) = (Replay::default(), BTreeSet::new());
            let mut at = 0u64;
            for (kind, size) in steps {
                let counter = match kind {
                    0 => at + size,
                    1 => at + size % 70,
                    2 => at.saturating_sub(size % 1100),
                    _ => at + 1,
                };
                let end = model.last().map_or(0, |last| last + 1);
                let right = counter >= end
                    || (end - counter <= WINDOW && !model.contains(&counter));
                prop_assert_eq!(replay.is_new(counter), right, "{} of {}", counter, end);
                if right {
                    replay.accept(counter);
                    model.insert(counter);
                    at = at.max(counter);
                }
            }
        }
    }
}
