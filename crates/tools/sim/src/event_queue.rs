//! The event queue of the simulation and its virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A queue of what happens when, and the virtual clock. It returns events in the order of their
/// times; events of the same time in the order of their insertion.
#[derive(Debug)]
pub struct EventQueue<T> {
    now: u64,
    count: u64,
    heap: BinaryHeap<Reverse<Entry>>,
    /// The events, at the indices that the heap refers to. The heap does not contain them, because
    /// it moves its elements and events are large.
    events: Vec<Option<T>>,
    free: Vec<usize>,
}

/// Key of an event: its time, a unique number in order of insertion, and its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: u64,
    number: u64,
    place: usize,
}

impl<T> EventQueue<T> {
    /// An empty queue whose clock shows `now` ns.
    #[must_use]
    pub fn new(now: u64) -> EventQueue<T> {
        EventQueue {
            now,
            count: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            free: Vec::new(),
        }
    }

    /// The virtual time in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Inserts an event that is due at virtual time `at`, in ns. If `at` has passed, the event is
    /// due now.
    pub fn put(&mut self, at: u64, what: T) {
        let at = at.max(self.now);
        let number = self.count;
        self.count += 1;
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len() - 1
        });
        self.events[place] = Some(what);
        self.heap.push(Reverse(Entry { at, number, place }));
    }

    /// Time of the next event in ns; `None` without events.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Removes and returns the next event if its time is at most `end`, and sets the clock to that
    /// time. Otherwise returns `None` and sets the clock to `end`.
    pub fn take(&mut self, end: u64) -> Option<T> {
        if self.next_at().is_some_and(|at| at <= end) {
            let Reverse(entry) = self.heap.pop()?;
            self.now = entry.at;
            self.free.push(entry.place);
            return self.events[entry.place].take();
        }
        self.now = self.now.max(end);
        None
    }

    /// Number of events in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_are_broken_by_the_order_of_arrival() {
        let mut queue = EventQueue::new(0);
        for (at, what) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b')] {
            queue.put(at, what);
        }
        let order: String = std::iter::from_fn(|| queue.take(10)).collect();
        assert_eq!((order.as_str(), queue.now()), ("abcd", 10));
    }

    #[test]
    fn clock_never_goes_back() {
        let mut queue = EventQueue::new(100);
        queue.put(1, ());
        assert_eq!(queue.next_at(), Some(100));
        assert!(queue.take(50).is_none());
        assert_eq!(queue.now(), 100);
    }
}
