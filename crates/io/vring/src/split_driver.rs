//! The driver half of a split ring.

use std::sync::atomic::{Ordering, fence};

use crate::driver::{Completion, DriverBuffer, DriverRing, RingFull};
use crate::fault::Fault;
use crate::memory::GuestMemory;
use crate::setup::{RingConfig, SetupError};
use crate::split_layout::{Descriptor, INDIRECT, NEXT, NO_NOTIFY, SplitMemory, WRITE, passed};

/// The driver half of a split ring. (VIRTIO 1.2 §2.7)
///
/// It keeps private copies of the free list and of the lengths of chains, which a device cannot
/// change.
#[derive(Debug)]
pub struct SplitDriver {
    ring: SplitMemory,
    memory: GuestMemory,
    /// The successor of each descriptor, in a chain or in the free list.
    next: Box<[u16]>,
    /// Number of descriptors of the chain that begins at each descriptor; 0 if the device has no
    /// such chain.
    lengths: Box<[u16]>,
    first_free: u16,
    free: u16,
    /// Number of chains that the device has, or that are not yet published.
    outstanding: u16,
    available: u16,
    published: u16,
    kicked: u16,
    used: u16,
    /// The device's index when it was last read.
    seen: u16,
    has_event_index: bool,
}

impl SplitDriver {
    /// Creates a driver half, and initializes the three parts of the ring as an empty ring.
    /// [`RingConfig::position`] is not used: a new ring begins at index 0.
    ///
    /// # Errors
    /// The ring is not within the memory, or its size is not a power of two.
    pub fn new(memory: &GuestMemory, config: &RingConfig) -> Result<SplitDriver, SetupError> {
        let ring = SplitMemory::new(memory, config)?;
        let size = config.size;
        let driver = SplitDriver {
            memory: memory.clone(),
            next: (1..=size).collect(),
            lengths: vec![0; usize::from(size)].into(),
            first_free: 0,
            free: size,
            outstanding: 0,
            available: 0,
            published: 0,
            kicked: 0,
            used: 0,
            seen: 0,
            has_event_index: config.has_event_index,
            ring,
        };
        ring.driver_flags().store(0, Ordering::Relaxed);
        ring.used_event().store(0, Ordering::Relaxed);
        ring.available_index().store(0, Ordering::Relaxed);
        ring.device_flags().store(0, Ordering::Relaxed);
        ring.available_event().store(0, Ordering::Relaxed);
        ring.used_index().store(0, Ordering::Release);
        Ok(driver)
    }

    fn make_available(&mut self, head: u16, descriptors: u16) {
        self.lengths[usize::from(head)] = descriptors;
        self.free -= descriptors;
        self.outstanding += 1;
        let entry = self.ring.available(self.available);
        entry.store(head, Ordering::Relaxed);
        self.available = self.available.wrapping_add(1);
    }

    /// Returns the descriptors of a chain to the front of the free list.
    fn release(&mut self, head: u16, descriptors: u16) {
        let mut last = head;
        for _ in 1..descriptors {
            last = self.next[usize::from(last)];
        }
        self.next[usize::from(last)] = self.first_free;
        self.first_free = head;
        self.free += descriptors;
        self.outstanding -= 1;
    }
}

fn descriptor_of(buffer: DriverBuffer, flags: u16, next: u16) -> Descriptor {
    let write = if buffer.is_writable { WRITE } else { 0 };
    Descriptor {
        address: buffer.address,
        len: buffer.len,
        flags: flags | write,
        next,
    }
}

impl DriverRing for SplitDriver {
    fn room(&self) -> usize {
        usize::from(self.free)
    }

    fn add(&mut self, buffers: &[DriverBuffer]) -> Result<u16, RingFull> {
        assert!(!buffers.is_empty(), "a chain has a buffer");
        if buffers.len() > self.room() {
            return Err(RingFull);
        }
        let head = self.first_free;
        let mut at = head;
        for (number, buffer) in buffers.iter().enumerate() {
            let next = self.next[usize::from(at)];
            let flags = if number + 1 < buffers.len() { NEXT } else { 0 };
            self.ring
                .set_descriptor(at, descriptor_of(*buffer, flags, next));
            at = next;
        }
        self.first_free = at;
        self.make_available(head, buffers.len() as u16);
        Ok(head)
    }

    fn add_indirect(&mut self, table: u64, buffers: &[DriverBuffer]) -> Result<u16, RingFull> {
        assert!(!buffers.is_empty(), "a chain has a buffer");
        if self.free == 0 {
            return Err(RingFull);
        }
        let bytes = 16 * buffers.len();
        let host = self.memory.guest(table, bytes as u64, &mut 0);
        let host = host.expect("a table of descriptors lies in the memory of the ring");
        assert!(
            host.as_ptr().addr().is_multiple_of(16),
            "table at {table:#x}"
        );
        for (number, buffer) in buffers.iter().enumerate() {
            let flags = if number + 1 < buffers.len() { NEXT } else { 0 };
            let descriptor = descriptor_of(*buffer, flags, number as u16 + 1);
            // SAFETY: `bytes` bytes were found there, in memory that this value keeps mapped, and
            // aligned.
            unsafe { descriptor.store(host.add(16 * number)) };
        }
        let head = self.first_free;
        self.first_free = self.next[usize::from(head)];
        let leads = Descriptor {
            address: table,
            len: bytes as u32,
            flags: INDIRECT,
            next: 0,
        };
        self.ring.set_descriptor(head, leads);
        self.make_available(head, 1);
        Ok(head)
    }

    fn publish(&mut self) {
        if self.available != self.published {
            let index = self.ring.available_index();
            index.store(self.available, Ordering::Release);
            self.published = self.available;
        }
    }

    fn wants_kick(&mut self) -> bool {
        let old = std::mem::replace(&mut self.kicked, self.published);
        if old == self.published {
            return false;
        }
        // The index must be visible before the device's notification request is read.
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = self.ring.available_event().load(Ordering::Relaxed);
            return passed(event, self.published, old);
        }
        self.ring.device_flags().load(Ordering::Relaxed) & NO_NOTIFY == 0
    }

    fn poll(&mut self) -> Result<Option<Completion>, Fault> {
        if self.seen == self.used {
            let index = self.ring.used_index().load(Ordering::Acquire);
            let (next, outstanding) = (self.used, self.outstanding);
            if index.wrapping_sub(next) > outstanding {
                return Err(Fault::UsedIndex {
                    index,
                    next,
                    outstanding,
                });
            }
            self.seen = index;
            if index == next {
                return Ok(None);
            }
        }
        let [id, written] = self.ring.used(self.used);
        let (id, written) = (id.load(Ordering::Relaxed), written.load(Ordering::Relaxed));
        let length = self.lengths.get_mut(id as usize).map(std::mem::take);
        let Some(descriptors @ 1..) = length else {
            return Err(Fault::UsedId { id });
        };
        let id = id as u16;
        self.release(id, descriptors);
        self.used = self.used.wrapping_add(1);
        Ok(Some(Completion { id, written }))
    }

    fn arm(&mut self) -> bool {
        if self.has_event_index {
            self.ring.used_event().store(self.used, Ordering::Relaxed);
        } else {
            self.ring.driver_flags().store(0, Ordering::Relaxed);
        }
        // This half's notification request must be visible before the device's index is read.
        fence(Ordering::SeqCst);
        self.ring.used_index().load(Ordering::Acquire) == self.used
    }

    fn disarm(&mut self) {
        if self.has_event_index {
            // The event index is the one that the device reaches last.
            let event = self.used.wrapping_sub(1);
            self.ring.used_event().store(event, Ordering::Relaxed);
        } else {
            self.ring.driver_flags().store(NO_NOTIFY, Ordering::Relaxed);
        }
    }
}
