//! The writing end of a ring.

use std::sync::Arc;

use crate::copy::copy;
use crate::fault::{Corrupt, Refused};
use crate::lease::Lease;
use crate::map::{RingMap, State};
use crate::primitive::Ordering;
use crate::stretch::Stretch;
use crate::{RECORD_HEADER_BYTES, WakeMode, record_cost};

/// Flag of a record: more pieces of the same SDU follow.
pub(crate) const MORE: u32 = 1;

/// The writing end of a ring. Exactly one may exist per ring.
#[derive(Debug)]
pub struct Producer {
    map: Arc<RingMap>,
    mode: WakeMode,
    /// Index behind the last committed record. This private copy is trusted; the shared tail is
    /// not.
    tail: u64,
    /// The value of the shared tail.
    published: u64,
    /// The consumer's index when this end last read it.
    head: u64,
    /// The index up to which there is room: `head` plus the capacity.
    limit: u64,
    /// Whether this end's armed word may be set.
    armed: bool,
}

impl Producer {
    /// Opens the writing end at the indices that the memory holds.
    ///
    /// # Errors
    /// [`Corrupt`] if the indices are not valid.
    pub fn new(map: Arc<RingMap>, mode: WakeMode) -> Result<Self, Corrupt> {
        let tail = map.lines().producer.tail.load(Ordering::Relaxed);
        let head = map.lines().consumer.head.load(Ordering::Acquire);
        let lowest = tail.wrapping_sub(map.capacity() as u64);
        if tail.wrapping_sub(head) > map.capacity() as u64 {
            return Err(Corrupt::Head {
                head,
                from: lowest,
                to: tail,
            });
        }
        if let Some(&index) = [tail, head].iter().find(|index| !index.is_multiple_of(8)) {
            return Err(Corrupt::Unaligned { index });
        }
        Ok(Self {
            limit: head.wrapping_add(map.capacity() as u64),
            map,
            mode,
            tail,
            published: tail,
            head,
            armed: true,
        })
    }

    /// Opens the writing end at index 0, whatever the memory holds, and zeroes the producer's own
    /// words. The consumer's index is not read here, so the consumer must be opened fresh as well
    /// before this end looks for room.
    #[must_use]
    pub fn fresh(map: Arc<RingMap>, mode: WakeMode) -> Self {
        let lines = map.lines();
        lines.producer_wait.armed.store(0, Ordering::Relaxed);
        lines.producer_wait.want.store(0, Ordering::Relaxed);
        lines.producer.state.store(0, Ordering::Relaxed);
        lines.producer.tail.store(0, Ordering::Release);
        Self {
            limit: map.capacity() as u64,
            map,
            mode,
            tail: 0,
            published: 0,
            head: 0,
            armed: false,
        }
    }

    /// Returns the size of the ring's data area in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.map.capacity()
    }

    /// Returns the longest payload of one piece, in bytes.
    #[must_use]
    pub fn len_max(&self) -> usize {
        self.map.capacity() - RECORD_HEADER_BYTES
    }

    /// Returns the mapped memory of the ring.
    #[must_use]
    pub fn map(&self) -> &Arc<RingMap> {
        &self.map
    }

    /// Returns the bytes of ring that a piece of `len` bytes takes: header, payload and padding.
    #[must_use]
    pub fn record_cost(&self, len: usize) -> usize {
        record_cost(len)
    }

    /// Returns the number of free bytes in the ring, which headers and padding also need.
    ///
    /// # Errors
    /// [`Corrupt`]: the consumer broke the rules. An error is reported instead of a full ring, for
    /// which a caller would wait forever.
    pub fn free_bytes(&mut self) -> Result<usize, Corrupt> {
        self.look_at_head()?;
        Ok(self.free_known())
    }

    /// Returns the bytes committed since the start of the stream, record headers and padding
    /// included.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.tail
    }

    /// Reserves room for a piece of `len` bytes. The ring changes only with [`Slot::commit`].
    ///
    /// # Errors
    /// [`Refused`]: the ring is full, the piece is too long for this ring, or the peer broke the
    /// rules.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Result<Slot<'_>, Refused> {
        let len_max = self.len_max();
        if len > len_max {
            return Err(Refused::TooLong { len, len_max });
        }
        let cost = record_cost(len);
        if self.free_known() < cost {
            self.look_at_head().map_err(Refused::Corrupt)?;
            if self.free_known() < cost {
                return Err(Refused::Full);
            }
        }
        Ok(Slot {
            producer: self,
            len,
        })
    }

    /// Reserves room for `bytes` bytes that are records already, or parts of records, such as bytes
    /// of another ring. The ring changes only with [`Stretch::commit`].
    ///
    /// # Errors
    /// As for [`Producer::reserve`].
    pub fn stretch(&mut self, bytes: usize) -> Result<Stretch<'_>, Refused> {
        if self.free_known() < bytes {
            self.look_at_head().map_err(Refused::Corrupt)?;
            if self.free_known() < bytes {
                return Err(Refused::Full);
            }
        }
        let at = self.tail;
        self.map.note_write(at, bytes);
        let to = self.map.data(at);
        Ok(Stretch::new(&mut self.tail, to, bytes))
    }

    /// Writes and commits one piece that is the concatenation of `parts`. It does not publish.
    ///
    /// # Errors
    /// As for [`Producer::reserve`].
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]], more: bool) -> Result<(), Refused> {
        let mut slot = self.reserve(parts.iter().map(|part| part.len()).sum())?;
        let mut offset = 0;
        for part in parts {
            slot.write_at(offset, part);
            offset += part.len();
        }
        slot.commit(more);
        Ok(())
    }

    /// Writes and commits one whole SDU, like [`Producer::push`] but in fewer steps. It does not
    /// publish. Returns `false` if the SDU was refused. A call of [`Producer::push`] then returns
    /// the reason, also if that is a corrupt index, because it reads the index again.
    #[inline]
    #[must_use = "an SDU that was refused is not in the ring"]
    pub fn push_sdu(&mut self, sdu: &[u8]) -> bool {
        let cost = record_cost(sdu.len());
        if self.free_known() < cost && !self.finds_room(cost) {
            return false;
        }
        let header = self.tail;
        let payload = header.wrapping_add(RECORD_HEADER_BYTES as u64);
        self.map.set_record_header(header, sdu.len() as u32, 0);
        self.map.note_write(payload, sdu.len());
        let to = self.map.data(payload);
        // SAFETY: `cost` bytes are free from `header`, and contiguous because the data is mapped
        // twice; `sdu` is private memory. What fits into a ring has a length that fits its header.
        unsafe { copy(sdu.as_ptr(), to, sdu.len()) }
        self.tail = header.wrapping_add(cost as u64);
        true
    }

    /// Makes all committed records visible to the consumer. `true` means that the consumer sleeps;
    /// the caller must ring its data doorbell.
    #[inline]
    #[must_use = "a sleeping consumer must be woken"]
    pub fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.map
            .lines()
            .producer
            .tail
            .store(self.tail, Ordering::Release);
        self.published = self.tail;
        self.consumer_sleeps()
    }

    /// Publishes the committed records and ends the stream with `state`. `true` means that the
    /// caller must ring the consumer's data doorbell.
    #[must_use = "a sleeping consumer must be woken"]
    pub fn close(&mut self, state: State) -> bool {
        self.map
            .lines()
            .producer
            .tail
            .store(self.tail, Ordering::Release);
        self.published = self.tail;
        self.map.set_state(state);
        self.consumer_sleeps()
    }

    /// Asks the consumer to ring when `bytes` of ring (see [`Producer::record_cost`]) are free; a
    /// value above the capacity counts as the capacity. `true`: that much is not free yet, and the
    /// caller may sleep on its space doorbell. `false`: the room is free already and no ring
    /// follows.
    ///
    /// Call [`Producer::disarm`] after waking.
    ///
    /// # Errors
    /// [`Corrupt`]: the consumer broke the rules; nothing is armed.
    pub fn arm_space(&mut self, bytes: usize) -> Result<bool, Corrupt> {
        let want = bytes.min(self.map.capacity());
        let wait = &self.map.lines().producer_wait;
        wait.want.store(want as u64, Ordering::Relaxed);
        wait.armed.store(1, Ordering::Release);
        self.armed = true;
        let asleep = if self.mode.order_before_sleep() {
            self.look_at_head().map(|()| self.free_known() < want)
        } else {
            Ok(false)
        };
        if asleep != Ok(true) {
            self.disarm();
        }
        asleep
    }

    /// Cancels [`Producer::arm_space`]: the consumer need not ring.
    pub fn disarm(&mut self) {
        if self.armed {
            self.map
                .lines()
                .producer_wait
                .armed
                .store(0, Ordering::Relaxed);
            self.armed = false;
        }
    }

    #[inline]
    fn free_known(&self) -> usize {
        self.limit.wrapping_sub(self.tail) as usize
    }

    fn look_at_head(&mut self) -> Result<(), Corrupt> {
        self.map.check_memory()?;
        // Acquire: the consumer's reads before it released the room stay before this end's writes
        // there.
        let head = self.map.lines().consumer.head.load(Ordering::Acquire);
        let published = self.published.wrapping_sub(self.head);
        if head.wrapping_sub(self.head) > published {
            return Err(Corrupt::Head {
                head,
                from: self.head,
                to: self.published,
            });
        }
        if !head.is_multiple_of(8) {
            return Err(Corrupt::Unaligned { index: head });
        }
        self.head = head;
        self.limit = head.wrapping_add(self.map.capacity() as u64);
        Ok(())
    }

    #[inline(never)]
    fn finds_room(&mut self, bytes: usize) -> bool {
        // On a corrupt index this returns false. The caller's next `push` finds the same and
        // returns the reason.
        self.look_at_head().is_ok() && self.free_known() >= bytes
    }

    #[inline]
    fn consumer_sleeps(&self) -> bool {
        self.mode.order_before_look();
        let armed = &self.map.lines().consumer_wait.armed;
        let sleeps = armed.load(Ordering::Relaxed) != 0;
        if sleeps {
            // One ring per sleep: the consumer arms again before it sleeps the next time.
            armed.store(0, Ordering::Relaxed);
        }
        sleeps
    }
}

/// Reserved room for one piece, which is written in place. Dropping it leaves the ring unchanged.
#[derive(Debug)]
pub struct Slot<'a> {
    producer: &'a mut Producer,
    len: usize,
}

impl Slot<'_> {
    /// Returns the number of reserved payload bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length to fill, not a collection"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Writes bytes at an offset of the payload.
    ///
    /// # Panics
    /// They do not fit.
    #[inline]
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) {
        let to = self.range(offset, bytes.len());
        // SAFETY: `range` checked that the room is ours; `bytes` is private memory.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies the bytes that a lease (usually of another ring) has in view to an offset of the
    /// payload.
    ///
    /// # Panics
    /// They do not fit.
    pub fn copy_from(&mut self, lease: &Lease, offset: usize) {
        self.copy_part(lease, 0, offset, lease.len());
    }

    /// Copies `bytes` bytes at offset `from` of the lease's view to an offset of the payload.
    ///
    /// # Panics
    /// They are not in view, or do not fit.
    pub fn copy_part(&mut self, lease: &Lease, from: usize, offset: usize, bytes: usize) {
        let (from, to) = (lease.range(from, bytes), self.range(offset, bytes));
        // SAFETY: both ranges were checked. They could overlap only for a stale lease of this
        // very ring, which the copy tolerates as it would tolerate a torn source.
        unsafe { copy(from, to, bytes) }
    }

    /// Returns the address of the first payload byte. [`Slot::len`] bytes may be written there
    /// until the slot is committed.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.producer.map.data(self.producer.tail.wrapping_add(8))
    }

    /// Adds the piece to the stream; the consumer sees it after [`Producer::publish`]. `more`:
    /// further pieces of the same SDU follow. Bytes that were never written keep their previous
    /// contents.
    #[inline]
    pub fn commit(self, more: bool) {
        let len = self.len;
        self.commit_len(len, more);
    }

    /// Like [`Slot::commit`], but keeps only the first `len` bytes.
    ///
    /// # Panics
    /// Fewer bytes were reserved.
    #[inline]
    pub fn commit_len(self, len: usize, more: bool) {
        assert!(
            len <= self.len,
            "commit of {len} bytes in a slot of {}",
            self.len
        );
        let producer = self.producer;
        let flags = if more { MORE } else { 0 };
        producer
            .map
            .set_record_header(producer.tail, len as u32, flags);
        producer.tail = producer.tail.wrapping_add(record_cost(len) as u64);
    }

    #[inline]
    fn range(&mut self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.len && bytes <= self.len - offset,
            "range {offset}+{bytes} outside a slot of {}",
            self.len
        );
        let at = self
            .producer
            .tail
            .wrapping_add((RECORD_HEADER_BYTES + offset) as u64);
        self.producer.map.note_write(at, bytes);
        self.producer.map.data(at)
    }
}
