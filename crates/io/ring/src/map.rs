//! The mapped memory of one ring.

#[cfg(not(feature = "loom"))]
use std::io;
#[cfg(not(feature = "loom"))]
use std::os::fd::BorrowedFd;

#[cfg(not(feature = "loom"))]
use carina_sys::{Mapping, PAGE_BYTES};

use crate::fault::Corrupt;
use crate::primitive::{AtomicU32, AtomicU64, Ordering};

/// Size in bytes of the header page in front of a ring's data.
pub const HEADER_BYTES: usize = 4096;

/// Returns the bytes that one ring takes in its file: header page and data.
#[must_use]
pub const fn region_bytes(capacity: usize) -> usize {
    HEADER_BYTES + capacity
}

/// The state of a ring's stream of messages, which the producer sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The producer has not ended: more pieces may follow.
    Open,
    /// The stream ended as intended: the ring holds everything that remains.
    Closed,
    /// The stream ended by a failure: the ring may hold only a part of the last message.
    Failed,
}

/// The mapped memory of one ring. Its ends share it with the leases of pieces in it.
///
/// It is aligned so that the reference count, which every lease changes, does not share a cache
/// line with the fields that both ends read for every piece.
#[derive(Debug)]
#[repr(align(128))]
pub struct RingMap {
    #[cfg(not(feature = "loom"))]
    mapping: Mapping,
    #[cfg(feature = "loom")]
    model: model::Model,
    capacity: usize,
}

impl RingMap {
    /// Maps the ring at `offset` of `fd`, with its data twice in a row.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is not a power of two from 4096 to 2^31, or if the file is
    /// too short; the kernel's refusal to map.
    #[cfg(not(feature = "loom"))]
    pub fn map(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Self> {
        check_capacity(capacity)?;
        let mapping = Mapping::mirrored(fd, offset, HEADER_BYTES, capacity)?;
        Ok(Self { mapping, capacity })
    }

    /// Wraps memory that is mapped as [`RingMap::map`] maps it: a header page, then the data twice
    /// in a row. The memory need not be of a file that can be mapped twice.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is not allowed, or does not fit the mapping.
    #[cfg(not(feature = "loom"))]
    pub fn mirrored(mapping: Mapping, capacity: usize) -> io::Result<Self> {
        check_capacity(capacity)?;
        if mapping.len() != region_bytes(capacity) + capacity {
            let text = format!(
                "a mapping of {} bytes for a ring of {capacity}",
                mapping.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self { mapping, capacity })
    }

    /// Wraps memory that is not a ring and that another party fills, for leases of parts of it
    /// ([`Lease::over`](crate::Lease::over)). The `capacity` bytes lie behind one page, as
    /// [`Mapping::behind_page`] maps them.
    ///
    /// # Errors
    /// `InvalidInput` if the capacity is not a power of two, or if the mapping is too short.
    #[cfg(not(feature = "loom"))]
    pub fn foreign(mapping: Mapping, capacity: usize) -> io::Result<Self> {
        if !capacity.is_power_of_two() || mapping.len() < region_bytes(capacity) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "capacity {capacity} of foreign memory: must be a power of two that the mapping \
                     of {} bytes holds behind its first page",
                    mapping.len()
                ),
            ));
        }
        Ok(Self { mapping, capacity })
    }

    /// Maps a ring whose data is `capacity` bytes at `offset` of `fd`, and whose header page is
    /// private to this process. Both ends are in this process; only the data is shared with another
    /// party ([`Producer::stretch`](crate::Producer::stretch)). The mapped data begins at a
    /// multiple of a huge page.
    ///
    /// # Errors
    /// As for [`RingMap::map`].
    #[cfg(not(feature = "loom"))]
    pub fn with_own_header(fd: BorrowedFd<'_>, offset: u64, capacity: usize) -> io::Result<Self> {
        check_capacity(capacity)?;
        let mapping = Mapping::mirrored_behind_page(fd, offset, capacity)?;
        Ok(Self { mapping, capacity })
    }

    /// Returns the mapping: a header page, then the data of the ring twice in a row.
    #[cfg(not(feature = "loom"))]
    #[must_use]
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Whether a page of the memory is lost, because the file was truncated or its file system is
    /// full. The ring must then be given up.
    #[cfg(not(feature = "loom"))]
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    #[cfg(not(feature = "loom"))]
    #[inline]
    pub(crate) fn check_memory(&self) -> Result<(), Corrupt> {
        if self.is_lost() {
            Err(Corrupt::MemoryLost)
        } else {
            Ok(())
        }
    }

    /// In a loom model, the memory is never lost.
    #[cfg(feature = "loom")]
    #[inline]
    pub(crate) fn check_memory(&self) -> Result<(), Corrupt> {
        Ok(())
    }

    /// Zeroes indices, state and armed words, and writes the informational words. Only the creator
    /// of the memory calls it, before the memory is shared.
    pub fn init(&self) {
        let lines = self.lines();
        lines.producer.tail.store(0, Ordering::Relaxed);
        lines.producer.state.store(0, Ordering::Relaxed);
        lines.consumer_wait.armed.store(0, Ordering::Relaxed);
        lines.consumer.head.store(0, Ordering::Relaxed);
        lines.producer_wait.armed.store(0, Ordering::Relaxed);
        lines.producer_wait.want.store(0, Ordering::Relaxed);
        lines.info.magic.store(MAGIC, Ordering::Relaxed);
        lines.info.version.store(1, Ordering::Relaxed);
        lines
            .info
            .capacity
            .store(self.capacity as u32, Ordering::Release);
    }

    /// Returns the size of the ring's data area in bytes; record headers take a part of it.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the state that the producer last set. Unknown values read as [`State::Failed`].
    #[must_use]
    pub fn state(&self) -> State {
        match self.lines().producer.state.load(Ordering::Acquire) {
            0 => State::Open,
            1 => State::Closed,
            _ => State::Failed,
        }
    }

    /// Sets the state on behalf of a producer that died. The caller must ring the consumer's
    /// doorbell afterwards.
    pub fn set_state(&self, state: State) {
        let word = match state {
            State::Open => 0,
            State::Closed => 1,
            State::Failed => 2,
        };
        self.lines().producer.state.store(word, Ordering::Release);
    }

    #[cfg(not(feature = "loom"))]
    #[inline]
    pub(crate) fn lines(&self) -> &Lines {
        // SAFETY: the mapping starts with a header page, larger than `Lines` and page-aligned;
        // every field is an atomic, for which any bits are valid and sharing is allowed.
        unsafe { &*self.mapping.as_ptr().cast() }
    }

    /// Address of the data byte at a free-running index. `capacity` bytes from there are mapped.
    #[cfg(not(feature = "loom"))]
    #[inline]
    pub(crate) fn data(&self, index: u64) -> *mut u8 {
        let at = HEADER_BYTES + (index as usize & (self.capacity - 1));
        // SAFETY: `at` is below HEADER_BYTES + capacity, inside the mapping.
        unsafe { self.mapping.as_ptr().add(at) }
    }

    /// Tells a model checker that the producer writes these bytes.
    #[cfg(not(feature = "loom"))]
    #[inline]
    pub(crate) fn note_write(&self, _index: u64, _bytes: usize) {}

    /// Tells a model checker that the consumer reads these bytes.
    #[cfg(not(feature = "loom"))]
    #[inline]
    pub(crate) fn note_read(&self, _index: u64, _bytes: usize) {}

    /// Reads a record header once. The values are unchecked.
    #[inline]
    pub(crate) fn record_header(&self, index: u64) -> (u32, u32) {
        self.note_read(index, 8);
        // SAFETY: 8 mapped bytes, aligned because indices are multiples of 8; a hostile writer
        // is tolerated because the access is atomic.
        let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(self.data(index).cast()) };
        let word = word.load(core::sync::atomic::Ordering::Relaxed);
        (word as u32, (word >> 32) as u32)
    }

    /// Writes a record header.
    #[inline]
    pub(crate) fn set_record_header(&self, index: u64, len: u32, flags: u32) {
        self.note_write(index, 8);
        // SAFETY: as in `record_header`.
        let word = unsafe { core::sync::atomic::AtomicU64::from_ptr(self.data(index).cast()) };
        let value = u64::from(len) | u64::from(flags) << 32;
        word.store(value, core::sync::atomic::Ordering::Relaxed);
    }
}

#[cfg(not(feature = "loom"))]
fn check_capacity(capacity: usize) -> io::Result<()> {
    if capacity.is_power_of_two() && (PAGE_BYTES..=1 << 31).contains(&capacity) {
        return Ok(());
    }
    let text = format!("ring capacity {capacity}: must be a power of two in 4096..=2^31");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(feature = "loom")]
#[path = "map_model.rs"]
mod model;

/// The header page. Each writer has a pair of cache lines of its own, because processors prefetch
/// neighbouring lines together.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct Lines {
    pub info: Info,
    pub producer: ProducerLine,
    pub consumer_wait: ConsumerWait,
    pub consumer: ConsumerLine,
    pub producer_wait: ProducerWait,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct Info {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub capacity: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ProducerLine {
    pub tail: AtomicU64,
    pub state: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ConsumerWait {
    pub armed: AtomicU32,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ConsumerLine {
    pub head: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct ProducerWait {
    pub armed: AtomicU32,
    pub want: AtomicU64,
}

/// "CARINARG", little-endian.
const MAGIC: u64 = u64::from_le_bytes(*b"CARINARG");

#[cfg(not(feature = "loom"))]
const _: () = {
    assert!(core::mem::offset_of!(Lines, producer) == 0x080);
    assert!(core::mem::offset_of!(Lines, consumer_wait) == 0x100);
    assert!(core::mem::offset_of!(Lines, consumer) == 0x180);
    assert!(core::mem::offset_of!(Lines, producer_wait) == 0x200);
    assert!(core::mem::offset_of!(Lines, producer_wait.want) == 0x208);
    assert!(core::mem::size_of::<Lines>() <= HEADER_BYTES);
};
