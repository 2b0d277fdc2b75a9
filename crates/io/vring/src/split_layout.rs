//! The layout of a split ring in memory. (VIRTIO 1.2 §2.7)
//!
//! ```text
//! descriptors  { address u64, length u32, flags u16, next u16 } of each
//! driver       flags u16, idx u16, ring[size] of u16, used_event u16
//! device       flags u16, idx u16, ring[size] of { id u32, length u32 }, avail_event u16
//! ```

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use crate::memory::GuestMemory;
use crate::setup::{RingConfig, SetupError};

/// Sizes in bytes of the three parts of a split ring: descriptors, driver area, device area.
#[must_use]
pub const fn split_bytes(size: u16) -> [u64; 3] {
    let size = size as u64;
    [16 * size, 6 + 2 * size, 6 + 8 * size]
}

/// A local copy of a descriptor, which was read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    pub(crate) next: u16,
}

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// Value of `flags` in the driver or device area: the other end need not notify.
pub(crate) const NO_NOTIFY: u16 = 1;

impl Descriptor {
    /// # Safety
    /// 16 bytes at `at`, a multiple of 8, must be mapped.
    #[inline]
    pub(crate) unsafe fn load(at: NonNull<u8>) -> Descriptor {
        // SAFETY: the caller's promise; atomics tolerate a peer that writes meanwhile.
        let [address, rest] = unsafe {
            let words = at.as_ptr().cast::<u64>();
            [
                AtomicU64::from_ptr(words).load(Ordering::Relaxed),
                AtomicU64::from_ptr(words.add(1)).load(Ordering::Relaxed),
            ]
        };
        Descriptor {
            address,
            len: rest as u32,
            flags: (rest >> 32) as u16,
            next: (rest >> 48) as u16,
        }
    }

    /// # Safety
    /// As for [`Descriptor::load`].
    #[inline]
    pub(crate) unsafe fn store(self, at: NonNull<u8>) {
        let rest = u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.next) << 48;
        // SAFETY: as in `load`.
        unsafe {
            let words = at.as_ptr().cast::<u64>();
            AtomicU64::from_ptr(words).store(self.address, Ordering::Relaxed);
            AtomicU64::from_ptr(words.add(1)).store(rest, Ordering::Relaxed);
        }
    }
}

/// The three parts of a ring, as both halves access them. The memory must outlive this value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitMemory {
    descriptors: NonNull<u8>,
    driver: NonNull<u8>,
    device: NonNull<u8>,
    pub(crate) device_guest: u64,
    pub(crate) size: u16,
}

// SAFETY: the pointers are to mapped memory without thread affinity, accessed by atomics.
unsafe impl Send for SplitMemory {}
// SAFETY: as above.
unsafe impl Sync for SplitMemory {}

impl SplitMemory {
    pub(crate) fn new(memory: &GuestMemory, config: &RingConfig) -> Result<Self, SetupError> {
        config.check_size(true)?;
        let [descriptors, driver, device] = split_bytes(config.size);
        let part =
            |name, address, bytes, alignment| config.part(memory, name, address, bytes, alignment);
        let device = part("used ring", config.device, device, 4)?;
        Ok(SplitMemory {
            descriptors: part("descriptor table", config.descriptors, descriptors, 16)?.host,
            driver: part("available ring", config.driver, driver, 2)?.host,
            device: device.host,
            device_guest: device.guest,
            size: config.size,
        })
    }

    #[inline]
    fn mask(&self, index: u16) -> usize {
        usize::from(index & (self.size - 1))
    }

    #[inline]
    fn driver_word(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at < 3 + usize::from(self.size));
        // SAFETY: `new` found the part with its 3 words and one a descriptor mapped and aligned;
        // all callers stay within.
        unsafe { AtomicU16::from_ptr(self.driver.as_ptr().cast::<u16>().add(at)) }
    }

    #[inline]
    fn device_word(&self, at: usize) -> &AtomicU16 {
        debug_assert!(at < 3 + 4 * usize::from(self.size));
        // SAFETY: as in `driver_word`, with 4 words a descriptor.
        unsafe { AtomicU16::from_ptr(self.device.as_ptr().cast::<u16>().add(at)) }
    }

    /// Reads a descriptor; `index` must be below the ring's size.
    #[inline]
    pub(crate) fn descriptor(&self, index: u16) -> Descriptor {
        assert!(index < self.size);
        // SAFETY: the table has `size` descriptors, and is aligned to 16.
        unsafe { Descriptor::load(self.descriptors.add(16 * usize::from(index))) }
    }

    #[inline]
    pub(crate) fn set_descriptor(&self, index: u16, descriptor: Descriptor) {
        assert!(index < self.size);
        // SAFETY: as in `descriptor`.
        unsafe { descriptor.store(self.descriptors.add(16 * usize::from(index))) }
    }

    #[inline]
    pub(crate) fn driver_flags(&self) -> &AtomicU16 {
        self.driver_word(0)
    }

    #[inline]
    pub(crate) fn available_index(&self) -> &AtomicU16 {
        self.driver_word(1)
    }

    #[inline]
    pub(crate) fn available(&self, index: u16) -> &AtomicU16 {
        self.driver_word(2 + self.mask(index))
    }

    #[inline]
    pub(crate) fn used_event(&self) -> &AtomicU16 {
        self.driver_word(2 + usize::from(self.size))
    }

    #[inline]
    pub(crate) fn device_flags(&self) -> &AtomicU16 {
        self.device_word(0)
    }

    #[inline]
    pub(crate) fn used_index(&self) -> &AtomicU16 {
        self.device_word(1)
    }

    /// The id and the length of a used chain.
    #[inline]
    pub(crate) fn used(&self, index: u16) -> [&AtomicU32; 2] {
        // SAFETY: as in `device_word`; entries begin at 4 bytes, and the part is aligned to 4.
        unsafe {
            let entry = self.device.as_ptr().cast::<u32>();
            let entry = entry.add(1 + 2 * self.mask(index));
            [
                AtomicU32::from_ptr(entry),
                AtomicU32::from_ptr(entry.add(1)),
            ]
        }
    }

    #[inline]
    pub(crate) fn available_event(&self) -> &AtomicU16 {
        self.device_word(2 + 4 * usize::from(self.size))
    }
}

/// Whether an end that advanced from `old` to `new` has passed the index at which the other end
/// wants a notification. (VIRTIO 1.2 §2.7.7.1, `vring_need_event`)
#[inline]
pub(crate) fn passed(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_passed_once() {
        assert!(passed(5, 6, 5) && passed(5, 9, 3));
        assert!(!passed(5, 5, 3) && !passed(5, 9, 6) && !passed(5, 5, 5));
        assert!(passed(65535, 0, 65535) && passed(65530, 4, 65529) && !passed(3, 2, 65535));
    }
}
