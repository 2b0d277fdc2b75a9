//! The reading end of a ring.

use std::sync::Arc;

use crate::fault::Corrupt;
use crate::lease::{Lease, PieceRef};
use crate::map::{RingMap, State};
use crate::primitive::Ordering;
use crate::producer::MORE;
use crate::sdus::Sdus;
use crate::stretch::Run;
use crate::{RECORD_HEADER_BYTES, WakeMode, record_cost};

/// The reading end of a ring. Exactly one may exist per ring.
///
/// ```text
///   released        read            tail
///      |  held leases |  to be read   |   free
/// ```
#[derive(Debug)]
pub struct Consumer {
    map: Arc<RingMap>,
    mode: WakeMode,
    /// The shared head: the producer may reuse everything before this index.
    released: u64,
    /// Index of the next record to read.
    read: u64,
    /// The producer's index when this end last read it.
    tail: u64,
    /// The record at `read`, if its header was read and is valid.
    front: Option<Front>,
    /// The state that [`Consumer::state`] last returned.
    state: State,
    /// Whether this end's armed word may be set.
    armed: bool,
    /// Whether the published bytes may end within a record.
    is_stream: bool,
}

/// A record header: a local copy that was read once.
#[derive(Clone, Copy, Debug)]
struct Front {
    len: u32,
    more: bool,
}

impl Consumer {
    /// Opens the reading end at the indices that the memory holds.
    ///
    /// # Errors
    /// [`Corrupt`] if the indices are not valid.
    pub fn new(map: Arc<RingMap>, mode: WakeMode) -> Result<Self, Corrupt> {
        let head = map.lines().consumer.head.load(Ordering::Relaxed);
        if !head.is_multiple_of(8) {
            return Err(Corrupt::Unaligned { index: head });
        }
        let mut consumer = Self::at(map, mode, head);
        consumer.armed = true;
        consumer.look_at_tail()?;
        Ok(consumer)
    }

    /// Opens the reading end at index 0, whatever the memory holds, and zeroes the consumer's own
    /// words.
    #[must_use]
    pub fn fresh(map: Arc<RingMap>, mode: WakeMode) -> Self {
        map.lines().consumer_wait.armed.store(0, Ordering::Relaxed);
        map.lines().consumer.head.store(0, Ordering::Release);
        Self::at(map, mode, 0)
    }

    fn at(map: Arc<RingMap>, mode: WakeMode, index: u64) -> Self {
        Self {
            map,
            mode,
            released: index,
            read: index,
            tail: index,
            front: None,
            state: State::Open,
            armed: false,
            is_stream: false,
        }
    }

    /// Like [`Consumer::fresh`], for a ring whose producer publishes parts of records
    /// ([`Producer::stretch`](crate::Producer::stretch)). An incomplete record counts as absent. A
    /// record that is too long to ever fit into the ring is [`Corrupt`].
    #[must_use]
    pub fn of_stream(map: Arc<RingMap>, mode: WakeMode) -> Self {
        Self {
            is_stream: true,
            ..Self::fresh(map, mode)
        }
    }

    /// Returns the size of the ring's data area in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// Returns the mapped memory of the ring.
    #[must_use]
    pub fn map(&self) -> &Arc<RingMap> {
        &self.map
    }

    /// Reads the next piece and steps over it; `None` if the ring is empty. The call does not wait.
    /// The piece keeps its room in the ring until it is released. Any number of pieces may be held.
    ///
    /// # Errors
    /// [`Corrupt`]; the ring is then no longer usable.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator cannot fail and go on"
    )]
    pub fn next(&mut self) -> Result<Option<Lease>, Corrupt> {
        let Some(front) = self.look_at_front()? else {
            return Ok(None);
        };
        let lease = Lease::new(Arc::clone(&self.map), self.read, front.len, front.more);
        self.step_over(front);
        Ok(Some(lease))
    }

    /// Reads the SDUs that come next and steps over them, as long as each is a single piece of at
    /// most `len_max` bytes, and all together take at most `bytes_max` bytes of ring. Returns one
    /// lease of all of them with their headers. `None` if there are fewer than two.
    ///
    /// # Errors
    /// As for [`Consumer::next`].
    pub fn next_sdus(
        &mut self,
        bytes_max: usize,
        len_max: usize,
    ) -> Result<Option<(Lease, Sdus)>, Corrupt> {
        if self.look_at_front()?.is_none() {
            return Ok(None);
        }
        let pending = self.tail.wrapping_sub(self.read).min(bytes_max as u64);
        let sdus = Sdus::at(&self.map, self.read, pending as usize, len_max);
        if sdus.count < 2 {
            return Ok(None);
        }
        let start = self.read;
        self.front = None;
        self.read = start.wrapping_add(u64::from(sdus.cost));
        let lease = Lease::of_records(Arc::clone(&self.map), start, sdus.cost);
        Ok(Some((lease, sdus)))
    }

    /// Copies the next piece to the start of `to`, steps over it and returns its length. It does so
    /// only if the piece is already known to be published, is a whole SDU, and fits into `to`. On
    /// `None` the caller must use [`Consumer::peek`].
    #[inline]
    pub fn take_sdu(&mut self, to: &mut [u8]) -> Option<usize> {
        let available = self.tail.wrapping_sub(self.read);
        if available == 0 || self.front.is_some() {
            return None;
        }
        let (len, flags) = self.map.record_header(self.read);
        let (len, cost) = (len as usize, record_cost(len as usize));
        if flags != 0 || cost as u64 > available || len > to.len() {
            return None;
        }
        let piece = PieceRef::new(&self.map, self.read, len as u32, false);
        piece.copy_to(&mut to[..len]);
        self.read = self.read.wrapping_add(cost as u64);
        Some(len)
    }

    /// Returns the next piece without stepping over it; [`Consumer::skip`] steps over it. Unlike
    /// [`Consumer::next`], it does not change a reference count.
    ///
    /// # Errors
    /// As for [`Consumer::next`].
    #[inline]
    pub fn peek(&mut self) -> Result<Option<PieceRef<'_>>, Corrupt> {
        let Some(front) = self.look_at_front()? else {
            return Ok(None);
        };
        Ok(Some(PieceRef::new(
            &self.map, self.read, front.len, front.more,
        )))
    }

    /// The bytes that were published and not read, at most `bytes_max` of them: records with their
    /// headers, of which the last may be cut off. It serves to move records to another ring without
    /// parsing them. A piece that [`Consumer::peek`] returned and [`Consumer::skip`] did not step
    /// over is included.
    ///
    /// # Errors
    /// As for [`Consumer::next`].
    pub fn run(&mut self, bytes_max: usize) -> Result<Option<Run<'_>>, Corrupt> {
        self.look_at_tail()?;
        let pending = self.tail.wrapping_sub(self.read);
        let bytes = usize::try_from(pending).unwrap_or(0).min(bytes_max);
        if bytes == 0 {
            return Ok(None);
        }
        self.front = None;
        Ok(Some(Run::new(&self.map, &mut self.read, bytes)))
    }

    /// Steps over the piece that [`Consumer::peek`] returned.
    ///
    /// # Panics
    /// [`Consumer::peek`] has not returned a piece since the last step.
    #[inline]
    pub fn skip(&mut self) {
        let front = self.front.expect("skip follows a peek that showed a piece");
        self.step_over(front);
    }

    /// Returns the room of everything read so far to the producer. `true` means that the producer
    /// waits for this much room; the caller must ring its space doorbell.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release(&mut self) -> bool {
        self.release_to(self.read)
    }

    /// Like [`Consumer::release`], but only when an eighth of the ring can be released, or when
    /// everything seen so far was read. It is for a reader that takes one piece per call. A reader
    /// that calls this after each piece never sleeps on an empty ring with room unreleased.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release_lazily(&mut self) -> bool {
        let gathered = self.read.wrapping_sub(self.released);
        if self.read == self.tail || gathered >= (self.map.capacity() / 8) as u64 {
            return self.release();
        }
        false
    }

    /// Releases the room of `lease` and of all pieces before it. `true` means that the producer
    /// waits for this much room; the caller must ring its space doorbell.
    #[must_use = "a waiting producer must be woken"]
    pub fn release_upto(&mut self, lease: &Lease) -> bool {
        self.release_to(lease.end())
    }

    /// Releases the room before `index`, which comes from [`Lease::end`] or [`Lease::start`]. An
    /// index that is released already has no effect.
    ///
    /// # Panics
    /// What lies before the index was not read yet.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release_to(&mut self, index: u64) -> bool {
        let held = self.read.wrapping_sub(self.released);
        let more = index.wrapping_sub(self.released);
        if more == 0 || more > held {
            // The index lies behind the released one: then the wrapped distance is in the upper
            // half.
            assert!(
                self.released.wrapping_sub(index) <= u64::MAX / 2,
                "release of {index:#x}, but only {:#x} was read",
                self.read
            );
            return false;
        }
        self.released = index;
        // Release: this end's reads of the payload stay before the producer's next writes there.
        self.map
            .lines()
            .consumer
            .head
            .store(index, Ordering::Release);
        self.mode.order_before_look();
        self.producer_waits()
    }

    /// Returns the number of bytes read since the start of the stream, record headers and padding
    /// included.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.read
    }

    /// Returns the number of bytes released since the start of the stream, record headers and
    /// padding included.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Returns the number of bytes that were published and not read, record headers and padding
    /// included.
    ///
    /// # Errors
    /// [`Corrupt`]: the producer broke the rules. An error is reported instead of an empty ring.
    pub fn pending_bytes(&mut self) -> Result<u64, Corrupt> {
        self.look_at_tail()?;
        Ok(self.tail.wrapping_sub(self.read))
    }

    /// The state that the producer set for its stream. Pieces may still be in the ring: the stream
    /// has ended when [`Consumer::next`] finds no piece *after* this method returned a final state.
    pub fn state(&mut self) -> State {
        self.state = self.map.state();
        self.state
    }

    /// Returns the final state of the stream, once the producer has closed the stream and
    /// everything was read; `None` before.
    ///
    /// # Errors
    /// As for [`Consumer::next`].
    pub fn ended(&mut self) -> Result<Option<State>, Corrupt> {
        let state = self.state();
        if state == State::Open || self.look_at_front()?.is_some() {
            return Ok(None);
        }
        Ok(Some(state))
    }

    /// Asks the producer to ring at the next publish or change of state. `true`: the ring is empty
    /// and the state is still what [`Consumer::state`] returned last, so the caller may sleep on
    /// its data doorbell. `false`: there is a piece to read, a new state, or a fault of the
    /// producer, which [`Consumer::next`] then returns as its error.
    ///
    /// Call [`Consumer::disarm`] after waking.
    #[must_use = "pieces that are there now will not be announced"]
    pub fn arm(&mut self) -> bool {
        self.map
            .lines()
            .consumer_wait
            .armed
            .store(1, Ordering::Relaxed);
        self.armed = true;
        let asleep = self.mode.order_before_sleep()
            && self.look_at_tail().is_ok()
            && self.tail == self.read
            && self.map.state() == self.state;
        if !asleep {
            self.disarm();
        }
        asleep
    }

    /// Cancels [`Consumer::arm`]: the producer need not ring.
    #[inline]
    pub fn disarm(&mut self) {
        if self.armed {
            self.map
                .lines()
                .consumer_wait
                .armed
                .store(0, Ordering::Relaxed);
            self.armed = false;
        }
    }

    #[inline]
    fn look_at_front(&mut self) -> Result<Option<Front>, Corrupt> {
        if self.front.is_some() {
            return Ok(self.front);
        }
        if self.read == self.tail {
            self.look_at_tail()?;
            if self.read == self.tail {
                return Ok(None);
            }
        }
        let (len, flags) = self.map.record_header(self.read);
        // This is at least 8, because both indices are multiples of 8 and differ.
        let mut available = self.tail.wrapping_sub(self.read) - RECORD_HEADER_BYTES as u64;
        if self.is_stream && u64::from(len) > available {
            self.look_at_tail()?;
            available = self.tail.wrapping_sub(self.read) - RECORD_HEADER_BYTES as u64;
            if u64::from(len) > available && record_cost(len as usize) <= self.map.capacity() {
                return Ok(None);
            }
        }
        if u64::from(len) > available {
            return Err(Corrupt::Length {
                len,
                at: self.read,
                available,
            });
        }
        if flags & !MORE != 0 {
            return Err(Corrupt::Flags {
                flags,
                at: self.read,
            });
        }
        self.front = Some(Front {
            len,
            more: flags & MORE != 0,
        });
        Ok(self.front)
    }

    #[inline]
    fn step_over(&mut self, front: Front) {
        self.front = None;
        // The index does not pass the tail: `len` fits the available bytes, which are a multiple of
        // 8.
        self.read = self
            .read
            .wrapping_add(record_cost(front.len as usize) as u64);
    }

    #[inline]
    fn look_at_tail(&mut self) -> Result<(), Corrupt> {
        self.map.check_memory()?;
        // Acquire: records published with this index are visible.
        let tail = self.map.lines().producer.tail.load(Ordering::Acquire);
        let (grown, capacity) = (tail.wrapping_sub(self.tail), self.map.capacity() as u64);
        if grown > capacity - self.tail.wrapping_sub(self.released) {
            let to = self.released.wrapping_add(capacity);
            return Err(Corrupt::Tail {
                tail,
                from: self.tail,
                to,
            });
        }
        if !tail.is_multiple_of(8) {
            return Err(Corrupt::Unaligned { index: tail });
        }
        self.tail = tail;
        Ok(())
    }

    #[inline]
    fn producer_waits(&self) -> bool {
        let wait = &self.map.lines().producer_wait;
        // Acquire: with the armed word, the wanted size and the tail at which the producer went to
        // sleep become visible.
        if wait.armed.load(Ordering::Acquire) == 0 {
            return false;
        }
        let capacity = self.map.capacity() as u64;
        let want = wait.want.load(Ordering::Relaxed).min(capacity);
        let tail = self.map.lines().producer.tail.load(Ordering::Relaxed);
        // A faulty producer harms only itself here: at worst it is woken for nothing.
        let free = capacity.saturating_sub(tail.wrapping_sub(self.released));
        if free < want {
            return false;
        }
        // One ring per sleep: the producer arms again before it sleeps the next time.
        wait.armed.store(0, Ordering::Relaxed);
        true
    }
}
