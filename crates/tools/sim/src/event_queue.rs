//! The event queue of the simulation and its virtual clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events in order of time; events of the same time in the order in which they were put in.
#[derive(Debug)]
pub struct EventQueue<T> {
    now: u64,
    count: u64,
    heap: BinaryHeap<Reverse<Entry>>,
    /// The events themselves, at the places that the heap names: events are large, and a heap
    /// moves what it holds.
    events: Vec<Option<T>>,
    free: Vec<usize>,
}

/// When an event is due, its number among all, and its place. Numbers are unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: u64,
    number: u64,
    place: usize,
}

impl<T> EventQueue<T> {
    /// An empty queue whose clock stands at `now` ns.
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

    /// The time in ns.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Puts an event in; one in the past happens now.
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

    /// Time of the next event.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }

    /// Takes the next event of a time up to `end` and sets the clock to it. `None` when there is
    /// none: the clock then shows `end`.
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

    /// Number of events that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True when no event waits.
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
