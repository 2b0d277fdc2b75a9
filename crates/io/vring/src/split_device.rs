//! The device half of a split ring.

use std::sync::atomic::{Ordering, fence};

use crate::device::DeviceRing;
use crate::dirty::DirtyLog;
use crate::fault::Fault;
use crate::inflight::SplitInflight;
use crate::memory::GuestMemory;
use crate::setup::{RingConfig, SetupError};
use crate::split_layout::{Descriptor, INDIRECT, NEXT, NO_NOTIFY, SplitMemory, WRITE, passed};
use crate::taken::{NewChain, Taken};

/// The device half of a split ring. (VIRTIO 1.2 §2.7)
#[derive(Debug)]
pub struct SplitDevice {
    ring: SplitMemory,
    taken: Taken,
    /// Index of the next entry of the available ring to take.
    next: u16,
    /// The driver's index when it was last read.
    available: u16,
    /// Index of the next entry of the used ring to write.
    used: u16,
    /// The index of the used ring that the driver can see.
    published: u16,
    /// The value of `published` when the driver's notification request was last read.
    signalled: u16,
    logs_ring: bool,
    has_event_index: bool,
    has_indirect: bool,
    inflight: Option<SplitInflight>,
}

impl SplitDevice {
    /// Creates a device half for a ring that the driver has set up. [`RingConfig::position`] is the
    /// index of the next chain to take from the available ring.
    ///
    /// # Errors
    /// The ring is not within the memory, or its size is not a power of two.
    pub fn new(memory: &GuestMemory, config: &RingConfig) -> Result<SplitDevice, SetupError> {
        let ring = SplitMemory::new(memory, config)?;
        let position =
            u16::try_from(config.position).map_err(|_| SetupError::Position(config.position))?;
        Ok(SplitDevice {
            taken: Taken::new(memory.clone(), config.size),
            next: position,
            available: position,
            used: position,
            published: position,
            signalled: position,
            logs_ring: false,
            has_event_index: config.has_event_index,
            has_indirect: config.has_indirect,
            inflight: None,
            ring,
        })
    }

    /// The index of the used ring as the driver sees it. If a device half dies, its successor
    /// starts from this index; chains that were taken and not published are then taken again.
    #[must_use]
    pub fn used_index(&self) -> u16 {
        self.ring.used_index().load(Ordering::Acquire)
    }

    /// Records from now on in memory of the front end which chains are taken. `None` stops the
    /// recording.
    pub fn set_inflight(&mut self, inflight: Option<SplitInflight>) {
        self.inflight = inflight;
    }

    /// Reads the chain that begins at descriptor `head`.
    #[inline]
    fn add_chain(&mut self, head: u16) -> Result<(), Fault> {
        let size = self.ring.size;
        if head >= size {
            return Err(Fault::DescriptorIndex { index: head, size });
        }
        let mut chain = self.taken.begin();
        let mut descriptor = self.ring.descriptor(head);
        // `Taken` limits the length of a chain, so that a circular chain ends too.
        loop {
            if descriptor.flags & INDIRECT != 0 {
                self.add_indirect(&mut chain, descriptor)?;
                break;
            }
            let is_writable = descriptor.flags & WRITE != 0;
            let Descriptor { address, len, .. } = descriptor;
            self.taken.add(&mut chain, address, len, is_writable)?;
            if descriptor.flags & NEXT == 0 {
                break;
            }
            let index = descriptor.next;
            if index >= size {
                return Err(Fault::DescriptorIndex { index, size });
            }
            descriptor = self.ring.descriptor(index);
        }
        self.taken.end(chain, head, 1);
        Ok(())
    }

    fn add_indirect(&mut self, chain: &mut NewChain, table: Descriptor) -> Result<(), Fault> {
        if !self.has_indirect {
            return Err(Fault::IndirectNotNegotiated);
        }
        let Descriptor { len, flags, .. } = table;
        if len == 0 || !len.is_multiple_of(16) || flags & NEXT != 0 {
            return Err(Fault::IndirectTable { len, flags });
        }
        let count = len / 16;
        let mut index = 0;
        loop {
            let descriptor = self.table_entry(table.address, len, index)?;
            if descriptor.flags & INDIRECT != 0 {
                let flags = descriptor.flags;
                return Err(Fault::IndirectTable { len, flags });
            }
            let is_writable = descriptor.flags & WRITE != 0;
            let Descriptor { address, len, .. } = descriptor;
            self.taken.add(chain, address, len, is_writable)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(descriptor.next);
            if index >= count {
                return Err(Fault::DescriptorIndex {
                    index: descriptor.next,
                    size: u16::try_from(count).unwrap_or(u16::MAX),
                });
            }
        }
    }

    fn table_entry(&mut self, address: u64, len: u32, index: u32) -> Result<Descriptor, Fault> {
        indirect_entry(&self.taken, address, len, index)
    }
}

/// Reads the descriptor with number `index` of an indirect table.
pub(crate) fn indirect_entry(
    taken: &Taken,
    address: u64,
    len: u32,
    index: u32,
) -> Result<Descriptor, Fault> {
    let outside = Fault::OutsideMemory { address, len };
    let at = address.checked_add(16 * u64::from(index)).ok_or(outside)?;
    let host = taken.memory().guest(at, 16, &mut 0).ok_or(outside)?;
    if !host.as_ptr().addr().is_multiple_of(8) {
        return Err(outside);
    }
    // SAFETY: 16 bytes were found there, in memory that `taken` keeps mapped, and aligned.
    Ok(unsafe { Descriptor::load(host) })
}

impl DeviceRing for SplitDevice {
    #[inline]
    fn take(&mut self, max: usize) -> Result<usize, Fault> {
        if self.taken.has_open() {
            self.put_back();
        }
        self.taken.clear();
        let mut waiting = self.available.wrapping_sub(self.next);
        if usize::from(waiting) < max {
            let (size, next) = (self.ring.size, self.next);
            let index = self.ring.available_index().load(Ordering::Acquire);
            waiting = index.wrapping_sub(next);
            if waiting > size {
                return Err(Fault::AvailableIndex { index, next, size });
            }
            self.available = index;
        }
        let count = usize::from(waiting).min(max);
        for _ in 0..count {
            let head = self.ring.available(self.next).load(Ordering::Relaxed);
            self.add_chain(head)?;
            if let Some(inflight) = &mut self.inflight {
                inflight.take(head);
            }
            self.next = self.next.wrapping_add(1);
            if self.taken.is_full() {
                break;
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
        let [id, len] = self.ring.used(self.used);
        id.store(u32::from(chain.id), Ordering::Relaxed);
        len.store(written, Ordering::Relaxed);
        if let Some(inflight) = &mut self.inflight {
            inflight.complete(chain.id);
        }
        self.used = self.used.wrapping_add(1);
    }

    fn put_back(&mut self) {
        let ids = self.taken.put_back().map(|chain| chain.id);
        let mut count = 0;
        for id in ids {
            count += 1;
            if let Some(inflight) = &mut self.inflight {
                inflight.put_back(id);
            }
        }
        self.next = self.next.wrapping_sub(count);
    }

    #[inline]
    fn publish(&mut self) {
        if self.used == self.published {
            return;
        }
        let used_index = self.ring.used_index();
        used_index.store(self.used, Ordering::Release);
        if let Some(inflight) = &mut self.inflight {
            inflight.publish(self.used);
        }
        if self.logs_ring
            && let Some(log) = &self.taken.log
        {
            // If the written entries wrap around, the whole ring is marked; it has at most 64
            // pages.
            let bytes = 4 + 8 * u64::from(self.ring.size);
            log.mark(self.ring.device_guest, bytes);
        }
        self.published = self.used;
    }

    #[inline]
    fn wants_signal(&mut self) -> bool {
        let old = std::mem::replace(&mut self.signalled, self.published);
        if old == self.published {
            return false;
        }
        // The index must be visible before the driver's notification request is read.
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = self.ring.used_event().load(Ordering::Relaxed);
            return passed(event, self.published, old);
        }
        self.ring.driver_flags().load(Ordering::Relaxed) & NO_NOTIFY == 0
    }

    fn arm(&mut self) -> bool {
        if self.has_event_index {
            self.ring
                .available_event()
                .store(self.next, Ordering::Relaxed);
        } else {
            self.ring.device_flags().store(0, Ordering::Relaxed);
        }
        // This half's notification request must be visible before the driver's index is read.
        fence(Ordering::SeqCst);
        !self.has_available()
    }

    fn disarm(&mut self) {
        if self.has_event_index {
            // The event index is the one that the driver reaches last.
            let event = self.next.wrapping_sub(1);
            self.ring.available_event().store(event, Ordering::Relaxed);
        } else {
            self.ring.device_flags().store(NO_NOTIFY, Ordering::Relaxed);
        }
    }

    fn has_available(&self) -> bool {
        self.ring.available_index().load(Ordering::Acquire) != self.next
    }

    fn position(&self) -> u32 {
        u32::from(self.next)
    }

    fn set_dirty_log(&mut self, log: Option<DirtyLog>, with_ring: bool) {
        self.taken.log = log;
        self.logs_ring = with_ring;
    }
}
