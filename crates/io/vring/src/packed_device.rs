//! The device half of a packed ring.

use std::sync::atomic::{Ordering, fence};

use crate::device::DeviceRing;
use crate::dirty::DirtyLog;
use crate::fault::Fault;
use crate::memory::GuestMemory;
use crate::packed_layout::{AVAILABLE, PackedMemory, PackedPosition, USED, UsedDescriptor};
use crate::packed_progress::PackedProgress;
use crate::setup::{RingConfig, SetupError};
use crate::split_device::indirect_entry;
use crate::split_layout::{INDIRECT, NEXT, WRITE};
use crate::taken::{NewChain, Taken};

/// The device half of a packed ring. (VIRTIO 1.2 §2.8)
#[derive(Debug)]
pub struct PackedDevice {
    ring: PackedMemory,
    taken: Taken,
    /// Position of the next descriptor to take.
    next: PackedPosition,
    /// Position of the next descriptor to mark as used.
    used: PackedPosition,
    /// Used descriptors that the driver cannot see yet. They are written into the ring only
    /// together: a successor of this half could not take again what is already overwritten.
    hidden: Vec<UsedDescriptor>,
    /// Number of descriptors used since the last publication.
    unpublished: u16,
    /// Position of the next descriptor to publish.
    published: PackedPosition,
    /// Number of descriptors published since the driver's notification request was last read.
    unsignalled: u16,
    progress: Option<PackedProgress>,
    logs_ring: bool,
    has_event_index: bool,
    has_indirect: bool,
    is_in_order: bool,
}

impl PackedDevice {
    /// Creates a device half for a ring that the driver has set up. The low half of
    /// [`RingConfig::position`] is the position of the next chain, and the high half that of the
    /// next used descriptor, as in vhost-user. A high half of 0 stands for the same position as the
    /// low half.
    ///
    /// # Errors
    /// The ring is not within the memory, or the position not within the ring.
    pub fn new(memory: &GuestMemory, config: &RingConfig) -> Result<PackedDevice, SetupError> {
        let ring = PackedMemory::new(memory, config)?;
        let next = PackedPosition(config.position as u16);
        let used = match PackedPosition((config.position >> 16) as u16) {
            PackedPosition(0) => next,
            used => used,
        };
        if next.index() >= ring.size || used.index() >= ring.size {
            return Err(SetupError::Position(config.position));
        }
        Ok(PackedDevice {
            taken: Taken::new(memory.clone(), config.size),
            // Chains that were taken but not used are taken again.
            next: used,
            used,
            hidden: Vec::with_capacity(128),
            unpublished: 0,
            published: used,
            unsignalled: 0,
            progress: None,
            logs_ring: false,
            has_event_index: config.has_event_index,
            has_indirect: config.has_indirect,
            is_in_order: config.is_in_order,
            ring,
        })
    }

    /// Records this half's progress in memory that outlives its process. If a predecessor recorded
    /// its progress there for the same ring, this half continues where the predecessor stopped.
    /// `begin` is the position at which the front end says that the ring began. Call it before
    /// anything is taken.
    pub fn set_progress(&mut self, progress: PackedProgress, config: &RingConfig, begin: u32) {
        if let Some(at) = progress.of_predecessor(config, begin, &self.ring) {
            (self.next, self.used, self.published) = (at, at, at);
        }
        progress.start(config, begin, self.used);
        self.progress = Some(progress);
    }

    /// The flags of the next descriptor; `None` if it is not available.
    #[inline]
    fn available_flags(&self) -> Option<u16> {
        let flags = self.ring.flags(self.next).load(Ordering::Acquire);
        (flags & (AVAILABLE | USED) == self.next.available()).then_some(flags)
    }

    /// Reads the chain that begins at the next descriptor. Returns how many descriptors it has.
    #[inline]
    fn add_chain(&mut self, first_flags: u16) -> Result<u16, Fault> {
        let mut chain = self.taken.begin();
        let (mut at, mut flags, mut count) = (self.next, first_flags, 1);
        let id = loop {
            let (address, len, id) = self.ring.load(at);
            if flags & INDIRECT != 0 {
                self.add_indirect(&mut chain, address, len, flags)?;
                break id;
            }
            self.taken
                .add(&mut chain, address, len, flags & WRITE != 0)?;
            if flags & NEXT == 0 {
                break id;
            }
            // `Taken` limits the count to the ring's size.
            count += 1;
            at = at.plus(1, self.ring.size);
            flags = self.ring.flags(at).load(Ordering::Relaxed);
        };
        self.next = at.plus(1, self.ring.size);
        self.taken.end(chain, id, count);
        Ok(count)
    }

    fn add_indirect(
        &mut self,
        chain: &mut NewChain,
        address: u64,
        len: u32,
        flags: u16,
    ) -> Result<(), Fault> {
        if !self.has_indirect {
            return Err(Fault::IndirectNotNegotiated);
        }
        if len == 0 || !len.is_multiple_of(16) || flags & NEXT != 0 {
            return Err(Fault::IndirectTable { len, flags });
        }
        // All entries of the table belong to the chain; the NEXT flag is not used. (VIRTIO 1.2
        // §2.8.7)
        for index in 0..len / 16 {
            let entry = indirect_entry(&self.taken, address, len, index)?;
            // In a packed table the last word holds the flags; in a split table it holds `next`.
            let flags = entry.next;
            if flags & INDIRECT != 0 {
                return Err(Fault::IndirectTable { len, flags });
            }
            let is_writable = flags & WRITE != 0;
            self.taken
                .add(chain, entry.address, entry.len, is_writable)?;
        }
        Ok(())
    }
}

impl DeviceRing for PackedDevice {
    #[inline]
    fn take(&mut self, max: usize) -> Result<usize, Fault> {
        if self.taken.has_open() {
            self.put_back();
        }
        self.taken.clear();
        let size = self.ring.size;
        let mut descriptors = 0;
        while self.taken.len() < max && !self.taken.is_full() {
            let Some(flags) = self.available_flags() else {
                break;
            };
            descriptors += self.add_chain(flags)?;
            // Not more descriptors than the ring has can be available at once.
            if descriptors > size {
                return Err(Fault::ChainLength { size });
            }
        }
        Ok(self.taken.len())
    }

    #[inline]
    fn taken(&self) -> &Taken {
        &self.taken
    }

    #[inline]
    fn complete(&mut self, written: u32) {
        let chain = self.taken.complete();
        match self.hidden.last_mut() {
            // One used descriptor stands for all chains up to its own, as long as the device has
            // written nothing into them. (VIRTIO 1.2 §2.8, in-order use of descriptors)
            Some(last) if self.is_in_order && written == 0 && last.len == 0 => last.id = chain.id,
            _ => self.hidden.push(UsedDescriptor {
                at: self.used,
                id: chain.id,
                len: written,
            }),
        }
        self.used = self.used.plus(chain.descriptors, self.ring.size);
        self.unpublished = self.unpublished.saturating_add(chain.descriptors);
    }

    fn put_back(&mut self) {
        let left: u16 = self.taken.put_back().map(|chain| chain.descriptors).sum();
        // The chains of a burst never wrap around the ring more than once.
        let size = self.ring.size;
        self.next = match self.next.index().checked_sub(left) {
            Some(index) => PackedPosition(self.next.0 & 0x8000 | index),
            None => {
                let index = self.next.index() + size - left;
                PackedPosition((self.next.0 & 0x8000 ^ 0x8000) | index)
            }
        };
    }

    #[inline]
    fn publish(&mut self) {
        if self.hidden.is_empty() {
            return;
        }
        if let Some(progress) = &self.progress {
            progress.publishing(&self.hidden, self.used);
        }
        self.ring.store_used(&self.hidden);
        if let Some(progress) = &self.progress {
            progress.published(&self.hidden, self.used);
        }
        if self.logs_ring
            && let Some(log) = &self.taken.log
        {
            for used in &self.hidden {
                let at = 16 * u64::from(used.at.index());
                log.mark(self.ring.descriptors_guest + at, 16);
            }
        }
        self.hidden.clear();
        self.published = self.used;
        let count = std::mem::take(&mut self.unpublished);
        self.unsignalled = self.unsignalled.saturating_add(count);
    }

    #[inline]
    fn wants_signal(&mut self) -> bool {
        let count = std::mem::take(&mut self.unsignalled);
        if count == 0 {
            return false;
        }
        // The flags must be visible before the driver's notification request is read.
        fence(Ordering::SeqCst);
        let size = self.ring.size;
        count >= size
            || self
                .ring
                .driver_event()
                .is_wanted(self.published, count, size)
    }

    fn arm(&mut self) -> bool {
        let position = self.has_event_index.then_some(self.next);
        self.ring.device_event().enable(position);
        // This half's notification request must be visible before the driver's flags are read.
        fence(Ordering::SeqCst);
        !self.has_available()
    }

    fn disarm(&mut self) {
        self.ring.device_event().disable();
    }

    fn has_available(&self) -> bool {
        self.available_flags().is_some()
    }

    fn position(&self) -> u32 {
        u32::from(self.next.0) | u32::from(self.used.0) << 16
    }

    fn set_dirty_log(&mut self, log: Option<DirtyLog>, with_ring: bool) {
        self.taken.log = log;
        self.logs_ring = with_ring;
    }
}
