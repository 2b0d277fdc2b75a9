//! The in-flight region: which chains of a split ring a device has, in memory of the front end.
//! When the device has died, its successor neither loses nor repeats a chain. (vhost-user,
//! "Inflight I/O tracking")
//!
//! ```text
//! features u64, version u16, desc_num u16, last_batch_head u16, used_idx u16
//! desc_num entries: inflight u8, 5 bytes, next u16, counter u64
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering, fence};

use carina_sys::Mapping;

use crate::fault::Fault;

/// The in-flight region of one split ring: which chains the device has taken and not returned.
#[derive(Clone, Debug)]
pub struct SplitInflight {
    mapping: Arc<Mapping>,
    offset: usize,
    size: u16,
    counter: u64,
    /// Chains that were completed since the index was last published.
    batch: Vec<u16>,
    last: u16,
}

/// Why an in-flight region cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InflightError {
    /// The region is not within its mapping, or not aligned to 8 bytes.
    #[error(
        "in-flight region of {bytes} bytes at {offset}: not within the mapping, or not aligned"
    )]
    Range {
        /// Offset of the region in the mapping.
        offset: usize,
        /// Size of the region in bytes.
        bytes: usize,
    },
    /// The region has another version, or is for a ring of another size.
    #[error("in-flight region of version {version} for {size} descriptors")]
    Version {
        /// The version in the region.
        version: u16,
        /// The number of descriptors for which the region was made: the size of its ring.
        size: u16,
    },
}

impl SplitInflight {
    /// Returns the size in bytes of the region of one ring with `size` descriptors, a multiple of
    /// 64.
    #[must_use]
    pub const fn bytes(size: u16) -> usize {
        (HEADER + ENTRY * size as usize).next_multiple_of(64)
    }

    /// Opens the region at `offset` of a mapping. A region of zeros is initialized for a ring
    /// without chains in flight.
    ///
    /// # Errors
    /// The region is not within the mapping, or was created for another ring.
    pub fn new(
        mapping: Arc<Mapping>,
        offset: usize,
        size: u16,
    ) -> Result<SplitInflight, InflightError> {
        let bytes = Self::bytes(size);
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > mapping.len()) || !offset.is_multiple_of(8) {
            return Err(InflightError::Range { offset, bytes });
        }
        let region = SplitInflight {
            mapping,
            offset,
            size,
            counter: 0,
            batch: Vec::with_capacity(256),
            last: 0,
        };
        let (version, sized) = (region.word(8), region.word(10));
        match (
            version.load(Ordering::Relaxed),
            sized.load(Ordering::Relaxed),
        ) {
            (0, _) => {
                sized.store(size, Ordering::Relaxed);
                version.store(1, Ordering::Release);
            }
            (1, found) if found == size => {}
            (version, size) => return Err(InflightError::Version { version, size }),
        }
        Ok(region)
    }

    /// Returns the chains that an earlier device took and did not return, in the order in which it
    /// took them. `used_index` is the index of the used ring; it shows whether the earlier device's
    /// last batch was returned.
    ///
    /// # Errors
    /// The region refers to a descriptor that the ring does not have.
    pub fn recover(&mut self, used_index: u16) -> Result<Vec<u16>, Fault> {
        let size = self.size;
        let behind = used_index.wrapping_sub(self.word(14).load(Ordering::Relaxed));
        let mut head = self.word(12).load(Ordering::Relaxed);
        for _ in 0..behind.min(size) {
            if head >= size {
                return Err(Fault::DescriptorIndex { index: head, size });
            }
            self.entry_flag(head).store(0, Ordering::Relaxed);
            head = self.entry_next(head).load(Ordering::Relaxed);
        }
        self.word(14).store(used_index, Ordering::Release);
        let counter = |id| self.entry_counter(id).load(Ordering::Relaxed);
        let is_taken = |id: &u16| self.entry_flag(*id).load(Ordering::Relaxed) == 1;
        let mut taken: Vec<u16> = (0..size).filter(is_taken).collect();
        taken.sort_by_key(|id| counter(*id));
        // The front end may have written any number.
        let next = taken.iter().map(|id| counter(*id).wrapping_add(1));
        self.counter = next.max().unwrap_or(0);
        self.last = self.word(12).load(Ordering::Relaxed);
        Ok(taken)
    }

    pub(crate) fn take(&mut self, head: u16) {
        self.entry_counter(head)
            .store(self.counter, Ordering::Relaxed);
        self.counter = self.counter.wrapping_add(1);
        self.entry_flag(head).store(1, Ordering::Release);
    }

    pub(crate) fn put_back(&mut self, head: u16) {
        self.entry_flag(head).store(0, Ordering::Release);
    }

    pub(crate) fn complete(&mut self, head: u16) {
        self.entry_next(head).store(self.last, Ordering::Relaxed);
        self.word(12).store(head, Ordering::Release);
        self.last = head;
        self.batch.push(head);
    }

    /// Records that the used ring's index has become `used`.
    pub(crate) fn publish(&mut self, used: u16) {
        fence(Ordering::Release);
        for at in 0..self.batch.len() {
            self.entry_flag(self.batch[at]).store(0, Ordering::Relaxed);
        }
        self.batch.clear();
        self.word(14).store(used, Ordering::Release);
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < Self::bytes(self.size));
        // SAFETY: `new` found the whole region within the mapping.
        unsafe { self.mapping.as_ptr().add(self.offset + offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: inside of the region, see `at`; offsets are even, and the region is aligned.
        unsafe { AtomicU16::from_ptr(self.at(offset).cast()) }
    }

    fn entry(&self, id: u16) -> usize {
        assert!(id < self.size);
        HEADER + ENTRY * usize::from(id)
    }

    fn entry_flag(&self, id: u16) -> &AtomicU8 {
        // SAFETY: inside of the region, see `at`.
        unsafe { AtomicU8::from_ptr(self.at(self.entry(id))) }
    }

    fn entry_next(&self, id: u16) -> &AtomicU16 {
        self.word(self.entry(id) + 6)
    }

    fn entry_counter(&self, id: u16) -> &AtomicU64 {
        // SAFETY: as in `word`; entries and the region are aligned to 8.
        unsafe { AtomicU64::from_ptr(self.at(self.entry(id) + 8).cast()) }
    }
}

const HEADER: usize = 16;
const ENTRY: usize = 16;
