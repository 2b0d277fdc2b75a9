//! The layout of a packed ring in memory. (VIRTIO 1.2 §2.8)
//!
//! ```text
//! descriptors  { address u64, length u32, id u16, flags u16 } of each
//! driver       { offset and wrap u16, flags u16 }: when the device is to signal
//! device       the same: when the driver is to kick
//! ```

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::memory::GuestMemory;
use crate::setup::{RingConfig, SetupError};
use crate::split_layout::{WRITE, passed};

/// Sizes in bytes of the three parts of a packed ring: descriptors, driver area, device area.
#[must_use]
pub const fn packed_bytes(size: u16) -> [u64; 3] {
    [16 * size as u64, 4, 4]
}

pub(crate) const AVAILABLE: u16 = 1 << 7;
pub(crate) const USED: u16 = 1 << 15;

/// A position in a packed ring: the index of a descriptor, and in bit 15 the wrap counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedPosition(pub u16);

impl PackedPosition {
    /// Value of [`RingConfig::position`] for a new ring: the start position in both halves.
    pub const START: u32 = 0x8000_8000;

    pub(crate) const FIRST: PackedPosition = PackedPosition(1 << 15);

    /// Returns the index of the descriptor.
    #[must_use]
    #[inline]
    pub fn index(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Returns the wrap counter.
    #[must_use]
    #[inline]
    pub fn wrap(self) -> bool {
        self.0 >> 15 != 0
    }

    /// The position `count` descriptors further on; `count` is at most the ring's size.
    #[inline]
    pub(crate) fn plus(self, count: u16, size: u16) -> PackedPosition {
        let index = self.index() + count;
        if index < size {
            return PackedPosition(self.0 & 0x8000 | index);
        }
        PackedPosition((self.0 & 0x8000 ^ 0x8000) | (index - size))
    }

    /// The same index with the other wrap counter, as in the next or the previous lap.
    pub(crate) fn other_lap(self) -> PackedPosition {
        PackedPosition(self.0 ^ 0x8000)
    }

    /// The flags by which a descriptor at this position becomes available.
    #[inline]
    pub(crate) fn available(self) -> u16 {
        if self.wrap() { AVAILABLE } else { USED }
    }

    /// The flags by which a descriptor at this position becomes used.
    #[inline]
    pub(crate) fn used(self) -> u16 {
        if self.wrap() { AVAILABLE | USED } else { 0 }
    }
}

/// A used descriptor, as the device returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedDescriptor {
    pub(crate) at: PackedPosition,
    pub(crate) id: u16,
    pub(crate) len: u32,
}

impl UsedDescriptor {
    pub(crate) fn word(self) -> u64 {
        u64::from(self.at.0) | u64::from(self.id) << 16 | u64::from(self.len) << 32
    }
}

/// The three parts of a ring, as both halves access them. The memory must outlive this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedMemory {
    descriptors: NonNull<u8>,
    driver: NonNull<u8>,
    device: NonNull<u8>,
    pub(crate) descriptors_guest: u64,
    pub(crate) size: u16,
}

// SAFETY: the pointers are to mapped memory without thread affinity, accessed by atomics.
unsafe impl Send for PackedMemory {}
// SAFETY: as above.
unsafe impl Sync for PackedMemory {}

impl PackedMemory {
    pub(crate) fn new(memory: &GuestMemory, config: &RingConfig) -> Result<Self, SetupError> {
        config.check_size(false)?;
        let [descriptors, driver, device] = packed_bytes(config.size);
        let part =
            |name, address, bytes, alignment| config.part(memory, name, address, bytes, alignment);
        let table = part("descriptor ring", config.descriptors, descriptors, 16)?;
        Ok(PackedMemory {
            descriptors: table.host,
            descriptors_guest: table.guest,
            driver: part("driver's event suppression", config.driver, driver, 4)?.host,
            device: part("device's event suppression", config.device, device, 4)?.host,
            size: config.size,
        })
    }

    #[inline]
    fn at(&self, position: PackedPosition) -> NonNull<u8> {
        assert!(position.index() < self.size);
        // SAFETY: the table has `size` descriptors.
        unsafe { self.descriptors.add(16 * usize::from(position.index())) }
    }

    #[inline]
    pub(crate) fn flags(&self, position: PackedPosition) -> &AtomicU16 {
        // SAFETY: 16 mapped bytes, aligned to 16; see `at`.
        unsafe { AtomicU16::from_ptr(self.at(position).add(14).as_ptr().cast()) }
    }

    /// Reads address, length and id of a descriptor.
    #[inline]
    pub(crate) fn load(&self, position: PackedPosition) -> (u64, u32, u16) {
        let at = self.at(position).as_ptr();
        // SAFETY: as in `flags`.
        unsafe {
            let address = AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed);
            let len = AtomicU32::from_ptr(at.add(8).cast()).load(Ordering::Relaxed);
            let id = AtomicU16::from_ptr(at.add(12).cast()).load(Ordering::Relaxed);
            (address, len, id)
        }
    }

    #[inline]
    pub(crate) fn store_address(&self, position: PackedPosition, address: u64) {
        let at = self.at(position).as_ptr();
        // SAFETY: as in `flags`.
        unsafe { AtomicU64::from_ptr(at.cast()).store(address, Ordering::Relaxed) };
    }

    #[inline]
    pub(crate) fn store_len_and_id(&self, position: PackedPosition, len: u32, id: u16) {
        let at = self.at(position).as_ptr();
        // SAFETY: as in `flags`.
        unsafe {
            AtomicU32::from_ptr(at.add(8).cast()).store(len, Ordering::Relaxed);
            AtomicU16::from_ptr(at.add(12).cast()).store(id, Ordering::Relaxed);
        }
    }

    /// Returns descriptors to the driver. The driver sees none of them before all are written.
    #[inline]
    pub(crate) fn store_used(&self, burst: &[UsedDescriptor]) {
        let Some((first, rest)) = burst.split_first() else {
            return;
        };
        for used in rest {
            self.put_used(used);
        }
        self.put_used(first);
    }

    /// Writes length, id and flags in one store, so that the driver sees all or none of them.
    #[inline]
    fn put_used(&self, used: &UsedDescriptor) {
        let word = u64::from(used.len) | u64::from(used.id) << 32 | u64::from(flags_of(used)) << 48;
        let at = self.at(used.at).as_ptr();
        // SAFETY: as in `flags`.
        unsafe { AtomicU64::from_ptr(at.add(8).cast()).store(word, Ordering::Release) };
    }

    /// The driver area: it says when the device is to signal. The driver writes it.
    #[inline]
    pub(crate) fn driver_event(&self) -> Suppression<'_> {
        // SAFETY: `new` found 4 mapped bytes, aligned to 4.
        unsafe { Suppression::at(self.driver) }
    }

    /// The device area: it says when the driver is to kick. The device writes it.
    #[inline]
    pub(crate) fn device_event(&self) -> Suppression<'_> {
        // SAFETY: as in `driver_event`.
        unsafe { Suppression::at(self.device) }
    }
}

#[inline]
fn flags_of(used: &UsedDescriptor) -> u16 {
    used.at.used() | if used.len > 0 { WRITE } else { 0 }
}

/// An event suppression area. (VIRTIO 1.2 §2.8.14)
#[derive(Clone, Copy)]
pub(crate) struct Suppression<'a> {
    position: &'a AtomicU16,
    flags: &'a AtomicU16,
}

impl Suppression<'_> {
    /// # Safety
    /// 4 bytes must be mapped there, aligned to 4.
    unsafe fn at(at: NonNull<u8>) -> Self {
        let words = at.as_ptr().cast::<u16>();
        // SAFETY: the caller's promise.
        unsafe {
            Suppression {
                position: AtomicU16::from_ptr(words),
                flags: AtomicU16::from_ptr(words.add(1)),
            }
        }
    }

    /// Requests a notification at `position`; at every descriptor if it is `None`, without event
    /// index.
    pub(crate) fn enable(self, position: Option<PackedPosition>) {
        match position {
            None => self.flags.store(ENABLE, Ordering::Release),
            Some(position) => {
                self.position.store(position.0, Ordering::Relaxed);
                self.flags.store(AT_DESCRIPTOR, Ordering::Release);
            }
        }
    }

    pub(crate) fn disable(self) {
        self.flags.store(DISABLE, Ordering::Relaxed);
    }

    /// Whether the peer wants a notification from an end that advanced by `count` descriptors to
    /// `new`.
    #[inline]
    pub(crate) fn is_wanted(self, new: PackedPosition, count: u16, size: u16) -> bool {
        match self.flags.load(Ordering::Acquire) {
            DISABLE => false,
            AT_DESCRIPTOR => {
                let position = PackedPosition(self.position.load(Ordering::Relaxed));
                let mut event = position.index();
                if position.wrap() != new.wrap() {
                    event = event.wrapping_sub(size);
                }
                passed(event, new.index(), new.index().wrapping_sub(count))
            }
            _ => true,
        }
    }
}

const ENABLE: u16 = 0;
const DISABLE: u16 = 1;
const AT_DESCRIPTOR: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrap_counter_changes_at_the_end_of_the_ring() {
        let at = PackedPosition::FIRST;
        assert_eq!((at.index(), at.wrap()), (0, true));
        let at = at.plus(4, 5);
        assert_eq!((at.index(), at.wrap()), (4, true));
        let at = at.plus(3, 5);
        assert_eq!((at.index(), at.wrap()), (2, false));
        let at = at.plus(3, 5);
        assert_eq!((at.index(), at.wrap()), (0, true));
    }
}
