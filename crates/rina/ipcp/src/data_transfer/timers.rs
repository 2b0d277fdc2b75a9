//! Deadlines of connections and N-1 flows, in a heap.

use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use carina_time::Instant;

/// The owner of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// A connection, by CEP-id.
    Connection(u32),
    /// An N-1 flow that is blocked, by its number.
    Port(u32),
}

/// Deadlines in order. A deadline that moves later keeps its place in the heap; when it comes up,
/// its owner arms it again for the real time. So a timer that is postponed with every PDU costs
/// nothing per PDU.
#[derive(Debug, Default)]
pub(super) struct TimerQueue {
    heap: BinaryHeap<Reverse<(Instant, Timer)>>,
}

impl TimerQueue {
    /// Arms `timer` for `at`. `armed` is the earliest deadline of `timer` in the heap, 0 for none;
    /// the owner stores it.
    #[inline]
    pub(super) fn arm(&mut self, timer: Timer, at: Option<Instant>, armed: &mut Instant) {
        if let Some(at) = at
            && (*armed == Instant::ZERO || at < *armed)
        {
            let at = at.max(Instant::from_nanos(1));
            *armed = at;
            self.heap.push(Reverse((at, timer)));
        }
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// Takes a deadline that has passed, with the time for which it was armed.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Timer)> {
        let Reverse((at, _)) = self.heap.peek()?;
        if *at > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_is_rearmed_for_earlier_deadlines_only() {
        let at = Instant::from_nanos;
        let mut deadlines = TimerQueue::default();
        let mut armed = Instant::ZERO;
        deadlines.arm(Timer::Connection(1), Some(at(50)), &mut armed);
        deadlines.arm(Timer::Connection(1), Some(at(90)), &mut armed);
        deadlines.arm(Timer::Connection(1), None, &mut armed);
        assert_eq!((deadlines.next(), armed), (Some(at(50)), at(50)));
        deadlines.arm(Timer::Connection(1), Some(at(20)), &mut armed);
        assert_eq!((deadlines.next(), armed), (Some(at(20)), at(20)));
        assert_eq!(deadlines.pop(at(19)), None);
        assert_eq!(deadlines.pop(at(60)), Some((at(20), Timer::Connection(1))));
        assert_eq!(deadlines.pop(at(60)), Some((at(50), Timer::Connection(1))));
        assert_eq!(deadlines.pop(at(60)), None);
    }
}
