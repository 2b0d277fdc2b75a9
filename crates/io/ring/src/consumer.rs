//! The reading end.

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
    /// What the shared head says: everything before is the producer's again.
    released: u64,
    /// Index of the next record to read.
    read: u64,
    /// The producer's index when it was last looked at.
    tail: u64,
    /// The record at `read`, when its header was read and found right.
    front: Option<Front>,
    /// The state when the caller last asked.
    state: State,
    /// Whether our armed word may be set.
    armed: bool,
    /// Whether the published bytes may end within a record.
    is_stream: bool,
}

/// A record header, read once.
#[derive(Clone, Copy, Debug)]
struct Front {
    len: u32,
    more: bool,
}

impl Consumer {
    /// Takes up reading where the indices in the memory stand.
    ///
    /// # Errors
    /// [`Corrupt`] when they cannot be right.
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

    /// Starts from zero, whatever the memory says, and zeroes the consumer's own words.
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

    /// As [`Consumer::fresh`], of a ring whose producer publishes bytes as they come
    /// ([`Producer::stretch`](crate::Producer::stretch)): a record that has not come whole is
    /// not there yet, unless it could never fit.
    #[must_use]
    pub fn of_stream(map: Arc<RingMap>, mode: WakeMode) -> Self {
        Self {
            is_stream: true,
            ..Self::fresh(map, mode)
        }
    }

    /// Bytes of data the ring holds.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// The memory of the ring.
    #[must_use]
    pub fn map(&self) -> &Arc<RingMap> {
        &self.map
    }

    /// Reads the next piece and steps over it; `None` when the ring is empty. The room stays taken
    /// until released, and any number of pieces may be held.
    ///
    /// # Errors
    /// [`Corrupt`]; the ring is then of no further use.
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

    /// Reads the whole SDUs of one piece each that come next and steps over them, as long as they
    /// have at most `len_max` bytes each and take at most `bytes_max` bytes of ring together: one
    /// lease of all of them, as they lie there. `None` where there are fewer than two.
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

    /// Copies the next piece to the start of `to` and steps over it, if it is known to be there, is
    /// a whole SDU and fits; returns its length. `None` says only that [`Consumer::peek`] has to
    /// look.
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

    /// Looks at the next piece without stepping over it; [`Consumer::skip`] does that. Costs no
    /// reference count.
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

    /// What was published and not read, at most `bytes_max` bytes of it, as it lies in the ring:
    /// records, of which the last may be cut off. For moving records to another ring without
    /// looking at them; a piece that [`Consumer::peek`] showed is shown again.
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

    /// Steps over the piece that [`Consumer::peek`] showed.
    ///
    /// # Panics
    /// When none was shown since the last step.
    #[inline]
    pub fn skip(&mut self) {
        let front = self.front.expect("skip follows a peek that showed a piece");
        self.step_over(front);
    }

    /// Gives the room of everything read so far back to the producer. `true`: it waits for that
    /// much, ring its space doorbell.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release(&mut self) -> bool {
        self.release_to(self.read)
    }

    /// As [`Consumer::release`], but only when an eighth of the ring has gathered or everything
    /// seen so far was read: for a reader that takes one piece per call. A reader that calls
    /// this after each piece never sleeps on an empty ring with room unreleased.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release_lazily(&mut self) -> bool {
        let gathered = self.read.wrapping_sub(self.released);
        if self.read == self.tail || gathered >= (self.map.capacity() / 8) as u64 {
            return self.release();
        }
        false
    }

    /// Gives the room of this lease and of all pieces before it back.
    #[must_use = "a waiting producer must be woken"]
    pub fn release_upto(&mut self, lease: &Lease) -> bool {
        self.release_to(lease.end())
    }

    /// Gives the room before `index` (of [`Lease::end`] or [`Lease::start`]) back; an index that
    /// was released already changes nothing.
    ///
    /// # Panics
    /// When the index was not read yet.
    #[inline]
    #[must_use = "a waiting producer must be woken"]
    pub fn release_to(&mut self, index: u64) -> bool {
        let held = self.read.wrapping_sub(self.released);
        let more = index.wrapping_sub(self.released);
        if more == 0 || more > held {
            // Behind what was released: distances run the other way round.
            assert!(
                self.released.wrapping_sub(index) <= u64::MAX / 2,
                "release of {index:#x}, but only {:#x} was read",
                self.read
            );
            return false;
        }
        self.released = index;
        // Release: our reads of the payload stay before the producer's next writes there.
        self.map
            .lines()
            .consumer
            .head
            .store(index, Ordering::Release);
        self.mode.order_before_look();
        self.producer_waits()
    }

    /// Bytes read since the start of the stream, record headers and padding included.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.read
    }

    /// Bytes released since the start of the stream.
    #[must_use]
    pub fn released(&self) -> u64 {
        self.released
    }

    /// Bytes published but not read.
    ///
    /// # Errors
    /// [`Corrupt`]: the producer broke the rules. That is never the same as an empty ring.
    pub fn pending_bytes(&mut self) -> Result<u64, Corrupt> {
        self.look_at_tail()?;
        Ok(self.tail.wrapping_sub(self.read))
    }

    /// What the producer says about its stream. Pieces may still be in the ring: the stream has
    /// ended when [`Consumer::next`] finds none *after* this said so.
    pub fn state(&mut self) -> State {
        self.state = self.map.state();
        self.state
    }

    /// The final state once the producer closed and everything was read; `None` before.
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

    /// Asks to be woken by the next publish or change of state. `true`: the ring is empty and the
    /// state is what [`Consumer::state`] returned last, so the caller may sleep on its data
    /// doorbell. `false`: there is something to read or to notice. When the producer broke the
    /// rules, that is the error of [`Consumer::next`].
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

    /// Takes back [`Consumer::arm`].
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
        // At least 8: both indices are multiples of 8 and differ.
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
        // Does not pass the tail: `len` fits the bytes available, which are a multiple of 8.
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
        // Acquire: with the armed word come the want and the tail the producer went to sleep at.
        if wait.armed.load(Ordering::Acquire) == 0 {
            return false;
        }
        let capacity = self.map.capacity() as u64;
        let want = wait.want.load(Ordering::Relaxed).min(capacity);
        let tail = self.map.lines().producer.tail.load(Ordering::Relaxed);
        // A lying producer only cheats itself here: at worst it is woken for nothing.
        let free = capacity.saturating_sub(tail.wrapping_sub(self.released));
        if free < want {
            return false;
        }
        // One doorbell per sleep: the producer arms again before its next one.
        wait.armed.store(0, Ordering::Relaxed);
        true
    }
}
