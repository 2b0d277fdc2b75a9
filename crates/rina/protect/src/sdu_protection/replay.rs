//! Which counters have been seen.

/// A window over the last [`WINDOW`] counters: each is accepted once, in any order.
#[derive(Clone, Debug)]
pub struct Replay {
    /// One more than the highest counter accepted.
    end: u64,
    /// Bit `c % 64` of word `c / 64 % WORDS` says that `c` was seen.
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
    /// Whether a PDU with this counter may be accepted. Says nothing about whether it is genuine.
    pub fn is_new(&self, counter: u64) -> bool {
        if counter >= self.end {
            return true;
        }
        let is_recent = self.end - counter <= WINDOW;
        is_recent && self.seen[word(counter)] & bit(counter) == 0
    }

    /// One more than the highest counter accepted.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Notes a counter. Only of a PDU that has proved genuine: else a forger could move the window.
    pub fn accept(&mut self, counter: u64) {
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

/// Counters that may come out of order.
pub const WINDOW: u64 = 1024;

/// One word more than the window, because the newest is only partly in use.
const WORDS: usize = WINDOW as usize / 64 + 1;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a set of everything ever accepted.
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
