//! The driver half of a packed ring.

use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};

use crate::driver::{Completion, DriverBuffer, DriverRing, RingFull};
use crate::fault::Fault;
use crate::memory::GuestMemory;
use crate::packed_layout::{AVAILABLE, PackedMemory, PackedPosition, USED};
use crate::setup::{RingConfig, SetupError};
use crate::split_layout::{Descriptor, INDIRECT, NEXT, WRITE};

/// The driver half of a packed ring. (VIRTIO 1.2 §2.8)
///
/// It keeps private copies of the lengths of chains, which a device cannot change.
#[derive(Debug)]
pub struct PackedDriver {
    ring: PackedMemory,
    memory: GuestMemory,
    /// Buffer ids that no chain uses.
    ids: Vec<u16>,
    /// Number of descriptors of the chain with each id; 0 if the device does not have it.
    lengths: Box<[u16]>,
    free: u16,
    next: PackedPosition,
    /// Position of the first descriptor that was added and not published, and the flags that it
    /// will get.
    hidden: Option<(PackedPosition, u16)>,
    /// Number of descriptors added since the last publication.
    unpublished: u16,
    /// Position of the next descriptor to publish.
    published: PackedPosition,
    /// Number of descriptors published since the device's notification request was last read.
    unkicked: u16,
    used: PackedPosition,
    /// Ids of the chains that the device has, in order; `None` unless it uses them in order.
    order: Option<VecDeque<u16>>,
    /// The rest of a used descriptor that stands for several chains: its last chain, and the length
    /// written.
    batch: Option<Completion>,
    has_event_index: bool,
}

impl PackedDriver {
    /// Creates a driver half, and initializes the three parts of the ring as an empty ring.
    /// [`RingConfig::position`] is not used: a new ring begins at its first descriptor.
    ///
    /// # Errors
    /// The ring is not within the memory.
    pub fn new(memory: &GuestMemory, config: &RingConfig) -> Result<PackedDriver, SetupError> {
        let ring = PackedMemory::new(memory, config)?;
        for index in 0..config.size {
            ring.flags(PackedPosition(index))
                .store(0, Ordering::Relaxed);
        }
        ring.driver_event().enable(None);
        ring.device_event().enable(None);
        Ok(PackedDriver {
            memory: memory.clone(),
            ids: (0..config.size).rev().collect(),
            lengths: vec![0; usize::from(config.size)].into(),
            free: config.size,
            next: PackedPosition::FIRST,
            hidden: None,
            unpublished: 0,
            published: PackedPosition::FIRST,
            unkicked: 0,
            used: PackedPosition::FIRST,
            order: config.is_in_order.then(VecDeque::new),
            batch: None,
            has_event_index: config.has_event_index,
            ring,
        })
    }

    fn put(&mut self, address: u64, len: u32, id: u16, flags: u16) {
        let position = self.next;
        self.ring.store_address(position, address);
        self.ring.store_len_and_id(position, len, id);
        let flags = flags | position.available();
        // The first descriptor of a burst becomes visible last, and with it all others.
        if self.hidden.is_none() {
            self.hidden = Some((position, flags));
        } else {
            self.ring.flags(position).store(flags, Ordering::Release);
        }
        self.next = position.plus(1, self.ring.size);
        self.unpublished += 1;
        self.free -= 1;
    }

    fn take_id(&mut self, descriptors: usize) -> Result<u16, RingFull> {
        if descriptors > self.room() {
            return Err(RingFull);
        }
        let id = self.ids.pop().ok_or(RingFull)?;
        self.lengths[usize::from(id)] = descriptors as u16;
        if let Some(order) = &mut self.order {
            order.push_back(id);
        }
        Ok(id)
    }

    fn has_used(&self) -> bool {
        if self.batch.is_some() {
            return true;
        }
        let flags = self.ring.flags(self.used).load(Ordering::Acquire);
        flags & (AVAILABLE | USED) == self.used.used()
    }
}

fn flags_of(buffer: &DriverBuffer) -> u16 {
    if buffer.is_writable { WRITE } else { 0 }
}

impl DriverRing for PackedDriver {
    fn room(&self) -> usize {
        usize::from(self.free)
    }

    fn add(&mut self, buffers: &[DriverBuffer]) -> Result<u16, RingFull> {
        assert!(!buffers.is_empty(), "a chain has a buffer");
        let id = self.take_id(buffers.len())?;
        for (number, buffer) in buffers.iter().enumerate() {
            let next = if number + 1 < buffers.len() { NEXT } else { 0 };
            self.put(buffer.address, buffer.len, id, flags_of(buffer) | next);
        }
        Ok(id)
    }

    fn add_indirect(&mut self, table: u64, buffers: &[DriverBuffer]) -> Result<u16, RingFull> {
        assert!(!buffers.is_empty(), "a chain has a buffer");
        let bytes = 16 * buffers.len();
        let host = self.memory.guest(table, bytes as u64, &mut 0);
        let host = host.expect("a table of descriptors lies in the memory of the ring");
        assert!(
            host.as_ptr().addr().is_multiple_of(16),
            "table at {table:#x}"
        );
        let id = self.take_id(1)?;
        for (number, buffer) in buffers.iter().enumerate() {
            // In a packed table the last word holds the flags; in a split table it holds `next`.
            let descriptor = Descriptor {
                address: buffer.address,
                len: buffer.len,
                flags: 0,
                next: flags_of(buffer),
            };
            // SAFETY: `bytes` bytes were found there, in memory that this value keeps mapped, and
            // aligned.
            unsafe { descriptor.store(host.add(16 * number)) };
        }
        self.put(table, bytes as u32, id, INDIRECT);
        Ok(id)
    }

    fn publish(&mut self) {
        if let Some((position, flags)) = self.hidden.take() {
            self.ring.flags(position).store(flags, Ordering::Release);
            self.published = self.next;
            let count = std::mem::take(&mut self.unpublished);
            self.unkicked = self.unkicked.saturating_add(count);
        }
    }

    fn wants_kick(&mut self) -> bool {
        let count = std::mem::take(&mut self.unkicked);
        if count == 0 {
            return false;
        }
        // The flags must be visible before the device's notification request is read.
        fence(Ordering::SeqCst);
        let size = self.ring.size;
        count >= size
            || self
                .ring
                .device_event()
                .is_wanted(self.published, count, size)
    }

    fn poll(&mut self) -> Result<Option<Completion>, Fault> {
        if !self.has_used() {
            return Ok(None);
        }
        let last = self.batch.take().unwrap_or_else(|| {
            let (_, written, id) = self.ring.load(self.used);
            Completion { id, written }
        });
        let Completion { id, written } = match &mut self.order {
            None => last,
            Some(order) => match order.pop_front() {
                Some(id) if id != last.id => {
                    self.batch = Some(last);
                    Completion { id, written: 0 }
                }
                _ => last,
            },
        };
        let length = self.lengths.get_mut(usize::from(id)).map(std::mem::take);
        let Some(descriptors @ 1..) = length else {
            return Err(Fault::UsedId { id: u32::from(id) });
        };
        self.ids.push(id);
        self.free += descriptors;
        self.used = self.used.plus(descriptors, self.ring.size);
        Ok(Some(Completion { id, written }))
    }

    fn arm(&mut self) -> bool {
        let position = self.has_event_index.then_some(self.used);
        self.ring.driver_event().enable(position);
        // This half's notification request must be visible before the device's flags are read.
        fence(Ordering::SeqCst);
        !self.has_used()
    }

    fn disarm(&mut self) {
        self.ring.driver_event().disable();
    }
}
