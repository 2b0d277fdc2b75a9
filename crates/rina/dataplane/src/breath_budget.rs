//! How many bytes the stream sockets of a worker may deliver in one breath of its engine.
//!
//! An engine first lets every app pull, and then every sink take what was pulled. With hundreds of
//! busy sockets, one breath would read hundreds of megabytes before it writes any: more than a
//! cache holds, and more buffers than a pool keeps. With the budget, the bytes that were read last
//! are written while they are still in the cache. Sockets that find the budget spent are read in
//! one of the next breaths; the engine changes the order of its apps with each breath.

use std::cell::Cell;
use std::rc::Rc;

use carina_time::Instant;

use crate::read_size::READ_BYTES_MAX;

/// The bytes that all stream sockets of a worker have delivered in this breath. Clones share the
/// number.
#[derive(Clone, Default)]
pub(crate) struct BreathBudget(Rc<Cell<(Instant, usize)>>);

impl BreathBudget {
    /// Whether another read is allowed in the breath at the time `now`.
    pub(crate) fn has_room(&self, now: Instant) -> bool {
        self.read_at(now) < BREATH_BYTES_MAX
    }

    /// Counts bytes that were read in the breath at the time `now`.
    pub(crate) fn spend(&self, now: Instant, bytes: usize) {
        self.0.set((now, self.read_at(now) + bytes));
    }

    fn read_at(&self, now: Instant) -> usize {
        match self.0.get() {
            (breath, bytes) if breath == now => bytes,
            _ => 0,
        }
    }
}

/// Bytes after which no further read begins in a breath: as many as one socket may deliver in one
/// breath.
const BREATH_BYTES_MAX: usize = 8 * READ_BYTES_MAX;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_share_a_budget_that_each_breath_renews() {
        let (budget, breath) = (BreathBudget::default(), Instant::from_nanos(5));
        let other = budget.clone();
        for _ in 0..8 {
            assert!(budget.has_room(breath));
            other.spend(breath, READ_BYTES_MAX);
        }
        assert!(!budget.has_room(breath) && !other.has_room(breath));
        let next = Instant::from_nanos(6);
        assert!(budget.has_room(next));
        budget.spend(next, 1);
        assert!(other.has_room(next));
    }
}
