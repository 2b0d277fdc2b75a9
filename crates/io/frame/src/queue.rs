//! A bounded queue of frames, for use by one thread.

use std::fmt;
use std::mem::MaybeUninit;

use crate::frame::Frame;

/// A ring of frames with a fixed number of places.
///
/// An empty queue begins at its first place again. If each burst is drained, only the places of one
/// burst are used, and they stay in the nearest cache.
pub struct FrameQueue {
    slots: Box<[MaybeUninit<Frame>]>,
    /// Number of frames taken since the queue was last empty. `tail` counts the frames put. Both
    /// wrap.
    head: usize,
    tail: usize,
}

/// Number of frames that [`FrameQueue::transfer`] or [`FrameQueue::fill`] put into a queue, and
/// number of frames that it dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Number of frames that were put into the queue.
    pub packets: usize,
    /// Sum of the lengths of the frames that were put into the queue, in bytes.
    pub bytes: usize,
    /// Number of frames that were dropped because the queue was full.
    pub overflowed: usize,
}

impl FrameQueue {
    /// Creates an empty queue.
    ///
    /// # Panics
    /// `places` is not a power of two.
    #[must_use]
    pub fn new(places: usize) -> FrameQueue {
        assert!(places.is_power_of_two(), "{places} places");
        FrameQueue {
            slots: Box::new_uninit_slice(places),
            head: 0,
            tail: 0,
        }
    }

    /// Returns the number of frames in the queue.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether the queue has no frame.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tail == self.head
    }

    /// Returns the number of free places in the queue.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        self.slots.len() - self.len()
    }

    #[inline]
    fn slot(&self, at: usize) -> *mut Frame {
        let index = at & (self.slots.len() - 1);
        // SAFETY: the number of places is a power of two, so that the index is inside.
        unsafe { self.slots.as_ptr().cast_mut().add(index).cast::<Frame>() }
    }

    /// Puts a frame at the end.
    ///
    /// # Errors
    /// Returns the frame if the queue is full.
    #[inline]
    pub fn push(&mut self, frame: Frame) -> Result<(), Frame> {
        if self.room() == 0 {
            return Err(frame);
        }
        // SAFETY: the place at `tail` is free, and `self` is borrowed exclusively.
        unsafe { self.slot(self.tail).write(frame) };
        self.tail = self.tail.wrapping_add(1);
        Ok(())
    }

    /// Takes the oldest frame; `None` if the queue is empty.
    #[inline]
    pub fn pop(&mut self) -> Option<Frame> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the places from `head` to `tail` hold frames; this one is left.
        let frame = unsafe { self.slot(self.head).read() };
        self.head = self.head.wrapping_add(1);
        self.restart();
        Some(frame)
    }

    /// Returns the frames in the queue, oldest first, without taking them.
    pub fn iter(&self) -> impl Iterator<Item = &Frame> {
        // SAFETY: the places from `head` to `tail` hold frames, which live as long as the borrow.
        (0..self.len()).map(|at| unsafe { &*self.slot(self.head.wrapping_add(at)) })
    }

    /// Returns the frames in the queue, oldest first, so that the caller can change them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Frame> {
        let (head, count) = (self.head, self.len());
        // SAFETY: as in `iter`; each place is met once, and the borrow is exclusive.
        (0..count).map(move |at| unsafe { &mut *self.slot(head.wrapping_add(at)) })
    }

    #[inline]
    fn restart(&mut self) {
        if self.is_empty() {
            (self.head, self.tail) = (0, 0);
        }
    }

    /// Passes all frames that are now in the queue to `take`, oldest first. Returns how many.
    #[inline]
    pub fn drain(&mut self, mut take: impl FnMut(Frame)) -> usize {
        let count = self.len();
        let mut taken = Taken::of(self);
        while taken.count < count {
            // SAFETY: fewer than `count` frames were taken, so this place holds one.
            let frame = unsafe {
                taken
                    .queue
                    .slot(taken.from.wrapping_add(taken.count))
                    .read()
            };
            taken.count += 1;
            take(frame);
        }
        count
    }

    /// Puts frames that `make` returns into the queue, until `make` returns `None`, `max` frames
    /// were put or the queue is full.
    #[inline]
    pub fn fill(&mut self, max: usize, mut make: impl FnMut() -> Option<Frame>) -> Moved {
        let max = max.min(self.room());
        let mut put = Put::of(self);
        let mut bytes = 0;
        while put.count < max {
            let Some(frame) = make() else { break };
            bytes += frame.len();
            // SAFETY: fewer frames than there was room for were put, so the place is free.
            unsafe {
                put.queue
                    .slot(put.from.wrapping_add(put.count))
                    .write(frame)
            };
            put.count += 1;
        }
        Moved {
            packets: put.count,
            bytes,
            overflowed: 0,
        }
    }

    /// Moves the oldest `max` frames of this queue to the end of another. `edit` is called with
    /// each frame; a frame for which it returns false is dropped.
    #[inline]
    pub fn transfer(
        &mut self,
        max: usize,
        to: &mut FrameQueue,
        mut edit: impl FnMut(&mut Frame) -> bool,
    ) -> Moved {
        let (count, room) = (self.len().min(max), to.room());
        let (mut taken, mut put) = (Taken::of(self), Put::of(to));
        let mut moved = Moved::default();
        while taken.count < count {
            // SAFETY: fewer than `count` frames were taken, so this place holds one.
            let mut frame = unsafe {
                taken
                    .queue
                    .slot(taken.from.wrapping_add(taken.count))
                    .read()
            };
            taken.count += 1;
            if !edit(&mut frame) {
                continue;
            }
            if put.count == room {
                moved.overflowed += 1;
                continue;
            }
            moved.bytes += frame.len();
            // SAFETY: fewer frames than there was room for were put, so the place is free.
            unsafe {
                put.queue
                    .slot(put.from.wrapping_add(put.count))
                    .write(frame)
            };
            put.count += 1;
        }
        moved.packets = put.count;
        moved
    }
}

/// A batch of frames that is being taken. Dropping it updates the queue, also when a closure of the
/// caller panics.
struct Taken<'a> {
    queue: &'a mut FrameQueue,
    from: usize,
    count: usize,
}

impl<'a> Taken<'a> {
    #[inline]
    fn of(queue: &'a mut FrameQueue) -> Taken<'a> {
        Taken {
            from: queue.head,
            queue,
            count: 0,
        }
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.head = self.from.wrapping_add(self.count);
        self.queue.restart();
    }
}

/// A batch of frames that is being put. Dropping it updates the queue, like [`Taken`].
struct Put<'a> {
    queue: &'a mut FrameQueue,
    from: usize,
    count: usize,
}

impl<'a> Put<'a> {
    #[inline]
    fn of(queue: &'a mut FrameQueue) -> Put<'a> {
        Put {
            from: queue.tail,
            queue,
            count: 0,
        }
    }
}

impl Drop for Put<'_> {
    #[inline]
    fn drop(&mut self) {
        self.queue.tail = self.from.wrapping_add(self.count);
    }
}

impl Drop for FrameQueue {
    fn drop(&mut self) {
        self.drain(drop);
    }
}

impl fmt::Debug for FrameQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::pool::{Pool, PoolConfig};

    fn pool(frames: usize) -> Pool {
        Pool::new(PoolConfig {
            frames,
            frame_bytes: 64,
        })
        .unwrap()
    }

    fn contents(queue: &FrameQueue) -> Vec<u8> {
        queue.iter().map(|frame| frame.bytes()[0]).collect()
    }

    #[test]
    fn frames_leave_in_order_across_the_end_of_the_ring() {
        let (pool, mut queue) = (pool(8), FrameQueue::new(4));
        let mut next = 0;
        let mut expected = 0;
        for _ in 0..10 {
            while queue.push(pool.frame_of(&[next]).unwrap()).is_ok() {
                next += 1;
            }
            assert_eq!((queue.len(), queue.room()), (4, 0));
            for _ in 0..3 {
                assert_eq!(queue.pop().unwrap().bytes(), [expected]);
                expected += 1;
            }
        }
        drop(queue);
        assert_eq!(pool.spare(), 8);
    }

    #[test]
    fn transfer_edits_refuses_and_overflows() {
        let (pool, mut from, mut to) = (pool(16), FrameQueue::new(8), FrameQueue::new(4));
        let mut number = 0;
        let filled = from.fill(100, || {
            number += 1;
            pool.frame_of(&[number, 0])
        });
        assert_eq!((filled.packets, filled.bytes), (8, 16));
        let moved = from.transfer(usize::MAX, &mut to, |frame| {
            frame.bytes_mut()[0] *= 2;
            frame.bytes()[0] != 4
        });
        assert_eq!(contents(&to), [2, 6, 8, 10]);
        assert_eq!((moved.packets, moved.bytes, moved.overflowed), (4, 8, 3));
        assert!(from.is_empty());
        drop(to);
        assert_eq!(pool.spare(), 16);
    }

    #[test]
    fn waiting_frames_are_changed_where_they_are() {
        let (pool, mut queue) = (pool(16), FrameQueue::new(4));
        for number in 0..9 {
            let _ = queue.push(pool.frame_of(&[number]).unwrap());
            if number % 3 == 2 {
                queue.pop();
            }
        }
        let before = contents(&queue);
        for frame in queue.iter_mut().take(2) {
            frame.bytes_mut()[0] += 100;
        }
        let after = contents(&queue);
        assert_eq!(after[..2], [before[0] + 100, before[1] + 100]);
        assert_eq!(after[2..], before[2..]);
        assert!(before.len() > 2);
    }

    #[test]
    fn transfer_leaves_what_is_beyond_its_limit() {
        let (pool, mut from, mut to) = (pool(16), FrameQueue::new(8), FrameQueue::new(8));
        let mut number = 0;
        from.fill(5, || {
            number += 1;
            pool.frame_of(&[number])
        });
        let moved = from.transfer(3, &mut to, |frame| frame.bytes()[0] != 2);
        assert_eq!((moved.packets, moved.overflowed), (2, 0));
        assert_eq!((contents(&to), contents(&from)), (vec![1, 3], vec![4, 5]));
    }

    #[test]
    fn panic_in_a_closure_loses_only_its_frame() {
        let (pool, mut from, mut to) = (pool(16), FrameQueue::new(8), FrameQueue::new(8));
        let mut number = 0;
        from.fill(5, || {
            number += 1;
            pool.frame_of(&[number])
        });
        let transfer = AssertUnwindSafe(|| {
            from.transfer(usize::MAX, &mut to, |frame| {
                assert!(frame.bytes()[0] != 3, "the third one");
                true
            });
        });
        assert!(catch_unwind(transfer).is_err());
        assert_eq!((contents(&to), contents(&from)), (vec![1, 2], vec![4, 5]));
        drop((from, to));
        assert_eq!(pool.spare(), 16);
    }
}
