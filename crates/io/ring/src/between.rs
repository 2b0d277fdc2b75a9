//! A bounded queue of values between two threads of one process, and a flag for a thread that
//! sleeps.
//!
//! Both ends trust each other, so values move without being copied into records. Each end caches
//! the other's index and reads it again only when the cached one shows nothing to do. One store
//! publishes a whole batch. The cache line of an index thus moves between processors once for each
//! batch, not once for each value.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::primitive::{AtomicU32, AtomicU64, Ordering, UnsafeCell, fence_full};

/// Creates a queue with room for `places` values. Returns its sending and its receiving end.
///
/// # Panics
/// `places` is not a power of two.
#[must_use]
pub fn queue<T: Send>(places: usize) -> (Sender<T>, Receiver<T>) {
    assert!(places.is_power_of_two(), "{places} places");
    let slot = |_| UnsafeCell::new(MaybeUninit::uninit());
    let queue = Arc::new(Queue {
        tail: Line(AtomicU64::new(0)),
        head: Line(AtomicU64::new(0)),
        closed: AtomicU32::new(0),
        slots: (0..places).map(slot).collect(),
    });
    let sender = Sender {
        queue: Arc::clone(&queue),
        tail: 0,
        head_seen: 0,
        is_open: true,
    };
    let receiver = Receiver {
        queue,
        head: 0,
        tail_seen: 0,
        is_open: true,
    };
    (sender, receiver)
}

/// The sending end of a queue between two threads.
#[derive(Debug)]
pub struct Sender<T> {
    queue: Arc<Queue<T>>,
    /// Number of values sent since the queue was created; copied to the shared tail after each
    /// batch.
    tail: u64,
    head_seen: u64,
    is_open: bool,
}

/// The receiving end of a queue between two threads.
#[derive(Debug)]
pub struct Receiver<T> {
    queue: Arc<Queue<T>>,
    /// Number of values received since the queue was created; copied to the shared head after each
    /// batch.
    head: u64,
    tail_seen: u64,
    is_open: bool,
}

#[derive(Debug)]
struct Queue<T> {
    tail: Line,
    head: Line,
    /// Number of ends that are closed.
    closed: AtomicU32,
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
}

/// An index with two cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Line(AtomicU64);

// SAFETY: the places from head to tail are the receiver's, the others the sender's; an index moves
// a place to the other end by a release store that the other end acquires.
unsafe impl<T: Send> Send for Queue<T> {}
// SAFETY: as above: no place is accessed by both ends at a time.
unsafe impl<T: Send> Sync for Queue<T> {}

impl<T> Queue<T> {
    #[inline(always)]
    fn slot(&self, index: u64) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }

    /// Closes one end. The end that closes second drops the values that were sent and not received.
    /// Returns how many values were dropped.
    fn close(&self) -> usize {
        if self.closed.fetch_add(1, Ordering::AcqRel) == 0 {
            return 0;
        }
        let (head, tail) = (
            self.head.0.load(Ordering::Acquire),
            self.tail.0.load(Ordering::Acquire),
        );
        for index in head..tail {
            // SAFETY: both ends are closed, and the places from head to tail hold values.
            self.slot(index)
                .with_mut(|value| unsafe { (*value).assume_init_drop() });
        }
        // The values are dropped; a second call must not drop them again.
        self.head.0.store(tail, Ordering::Release);
        (tail - head) as usize
    }
}

impl<T> Sender<T> {
    /// Returns the number of free places: at least this many values can be sent now.
    #[must_use]
    #[inline]
    pub fn room(&mut self) -> usize {
        let places = self.queue.slots.len() as u64;
        if self.tail - self.head_seen == places {
            self.head_seen = self.queue.head.0.load(Ordering::Acquire);
        }
        (places - (self.tail - self.head_seen)) as usize
    }

    /// Sends the values that `next` returns, until it returns `None` or no place is free. Returns
    /// how many were sent.
    ///
    /// When this call returns, the receiver can see the values; also when `next` panics.
    #[inline]
    pub fn send(&mut self, mut next: impl FnMut() -> Option<T>) -> usize {
        let mut sent = 0;
        loop {
            // The receiver may have freed places in the meantime.
            let room = self.room();
            if room == 0 {
                return sent;
            }
            let mut batch = Sending {
                count: 0,
                sender: self,
            };
            while batch.count < room as u64 {
                let Some(value) = next() else {
                    return sent + batch.count as usize;
                };
                let at = batch.sender.tail + batch.count;
                batch.sender.queue.slot(at).with_mut(|place| {
                    // SAFETY: there is room, so the place is the sender's and free.
                    unsafe { place.write(MaybeUninit::new(value)) };
                });
                batch.count += 1;
            }
            sent += batch.count as usize;
        }
    }

    /// Closes the sending end. If the receiving end is closed already, drops the values that were
    /// sent and not received, and returns their number. Otherwise returns 0, because the receiver
    /// may still receive them.
    pub fn close(mut self) -> usize {
        self.is_open = false;
        self.queue.close()
    }
}

/// A batch that is being sent. Dropping it publishes the batch.
struct Sending<'a, T> {
    sender: &'a mut Sender<T>,
    count: u64,
}

impl<T> Drop for Sending<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.count > 0 {
            self.sender.tail += self.count;
            let tail = &self.sender.queue.tail.0;
            tail.store(self.sender.tail, Ordering::Release);
        }
    }
}

impl<T> Receiver<T> {
    /// Returns the number of values that wait: at least this many can be received now.
    #[must_use]
    #[inline]
    pub fn waiting(&mut self) -> usize {
        if self.tail_seen == self.head {
            self.tail_seen = self.queue.tail.0.load(Ordering::Acquire);
        }
        (self.tail_seen - self.head) as usize
    }

    /// Passes up to `max` waiting values to `take`, oldest first. Returns how many.
    ///
    /// Their places are free when this call returns. If `take` panics, only the value that it had
    /// is lost.
    #[inline]
    pub fn receive(&mut self, max: usize, mut take: impl FnMut(T)) -> usize {
        let max = max.min(self.waiting()) as u64;
        let mut batch = Receiving {
            count: 0,
            receiver: self,
        };
        while batch.count < max {
            let slot = batch.receiver.queue.slot(batch.receiver.head + batch.count);
            // SAFETY: the place lies before the tail, so it holds a value and is the receiver's;
            // it is not read again, for the head moves beyond it.
            let value = slot.with_mut(|value| unsafe { (*value).assume_init_read() });
            batch.count += 1;
            take(value);
        }
        max as usize
    }

    /// Closes the receiving end. If the sending end is closed already, drops the values that were
    /// sent and not received, and returns their number. Otherwise returns 0: the sender drops these
    /// values when it closes.
    pub fn close(mut self) -> usize {
        self.is_open = false;
        self.queue.close()
    }
}

/// A batch that is being received. Dropping it frees the places of the batch.
struct Receiving<'a, T> {
    receiver: &'a mut Receiver<T>,
    count: u64,
}

impl<T> Drop for Receiving<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.count > 0 {
            self.receiver.head += self.count;
            let head = &self.receiver.queue.head.0;
            head.store(self.receiver.head, Ordering::Release);
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.is_open {
            self.queue.close();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if self.is_open {
            self.queue.close();
        }
    }
}

/// Flag of a thread that sleeps. Other threads ring its doorbell only while the flag is set, so
/// they make no system call while the thread is awake.
///
/// The thread calls [`SleepFlag::announce`], looks for work one last time, and sleeps if it finds
/// none. Another thread publishes its work and then calls [`SleepFlag::must_ring`]. On both sides a
/// full fence separates the store from the load, so at least one of the two sees the other's store.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SleepFlag(AtomicU32);

impl SleepFlag {
    /// Makes the flag of a thread that is awake.
    #[must_use]
    pub fn new() -> SleepFlag {
        SleepFlag::default()
    }

    /// Sets the flag: the thread is about to sleep. After this call it must look for work once more
    /// before it sleeps.
    pub fn announce(&self) {
        self.0.store(1, Ordering::Relaxed);
        fence_full();
    }

    /// Clears the flag: the thread is awake again.
    pub fn withdraw(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Returns true if the thread sleeps and no earlier caller got true since it fell asleep; the
    /// caller then rings its doorbell. Call it after publishing work. Two callers at the same time
    /// may both get true.
    #[must_use]
    #[inline]
    pub fn must_ring(&self) -> bool {
        fence_full();
        self.must_ring_unordered()
    }

    /// Like [`SleepFlag::must_ring`], but without the memory fence. It loses wake-ups; it exists to
    /// test that the loom models detect that.
    #[doc(hidden)]
    #[must_use]
    #[inline]
    pub fn must_ring_unordered(&self) -> bool {
        let is_asleep = self.0.load(Ordering::Relaxed) == 1;
        if is_asleep {
            // If the thread announces itself again before this store, the caller's ring wakes it as
            // well.
            self.0.store(0, Ordering::Relaxed);
        }
        is_asleep
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn send_all(sender: &mut Sender<Arc<u32>>, values: impl IntoIterator<Item = u32>) -> usize {
        let mut values = values.into_iter();
        sender.send(|| values.next().map(Arc::new))
    }

    fn receive_all(receiver: &mut Receiver<Arc<u32>>) -> Vec<u32> {
        let mut values = Vec::new();
        receiver.receive(usize::MAX, |value| values.push(*value));
        values
    }

    #[test]
    fn values_arrive_in_order_and_a_full_queue_takes_no_more() {
        let (mut sender, mut receiver) = queue(4);
        for round in 0..5 {
            let first = round * 10;
            assert_eq!(send_all(&mut sender, first..first + 6), 4);
            assert_eq!((sender.room(), receiver.waiting()), (0, 4));
            let expected: Vec<u32> = (first..first + 4).collect();
            assert_eq!(receive_all(&mut receiver), expected);
            assert_eq!(sender.room(), 4);
        }
    }

    #[test]
    fn last_end_to_close_drops_what_is_left() {
        let value = Arc::new(7);
        for sender_first in [true, false] {
            let (mut sender, receiver) = queue(8);
            let mut values = vec![Arc::clone(&value); 3].into_iter();
            assert_eq!(sender.send(|| values.next()), 3);
            let counts = if sender_first {
                [sender.close(), receiver.close()]
            } else {
                [receiver.close(), sender.close()]
            };
            assert_eq!((counts, Arc::strong_count(&value)), ([0, 3], 1));
        }
    }

    #[test]
    fn panic_of_a_closure_loses_no_other_value() {
        let (mut sender, mut receiver) = queue(8);
        let mut next = 0;
        let sending = AssertUnwindSafe(|| {
            sender.send(|| {
                next += 1;
                assert!(next < 4, "the fourth one");
                Some(Arc::new(next))
            })
        });
        assert!(catch_unwind(sending).is_err());
        let receiving = AssertUnwindSafe(|| receiver.receive(9, |value| assert!(*value != 2)));
        assert!(catch_unwind(receiving).is_err());
        assert_eq!(receive_all(&mut receiver), [3]);
    }

    #[test]
    fn sleeper_is_rung_for_once() {
        let flag = SleepFlag::new();
        assert!(!flag.must_ring());
        flag.announce();
        assert!(flag.must_ring() && !flag.must_ring());
        flag.announce();
        flag.withdraw();
        assert!(!flag.must_ring());
    }

    #[test]
    fn a_million_values_cross_between_two_threads() {
        let (mut sender, mut receiver) = queue::<u64>(256);
        let count = 1_000_000;
        let thread = std::thread::spawn(move || {
            let mut values = 0..count;
            let mut sent = 0;
            while sent < count as usize {
                let next = sender.send(|| values.next());
                sent += next;
                if next == 0 {
                    std::thread::yield_now();
                }
                if sender.room() == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let mut expected = 0;
        while expected < count {
            let got = receiver.receive(64, |value| {
                assert_eq!(value, expected);
                expected += 1;
            });
            if got == 0 {
                std::thread::yield_now();
            }
        }
        thread.join().unwrap();
    }
}
