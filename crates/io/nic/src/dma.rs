//! Memory that a device reads and writes by DMA.
//!
//! | where it lies | the device's addresses | when the process is killed |
//! |---|---|---|
//! | a file of huge pages | physical ones, from `/proc/self/pagemap` | the file stays |
//! | a memfd, behind an IOMMU | of its own, by VFIO | the kernel resets the device first |
//!
//! If such memory were freed while a device still writes to it, another process could get it.
//! Therefore the memory outlives the process, or the device is stopped first. The pool of a graph
//! ends with the process, so frames are copied between the pool and this memory, once in each
//! direction.
//!
//! `unsafe` is here because a device may write this memory at any time: bytes are only ever copied,
//! as between processes, and no reference to them is given out.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use carina_ring::copy_shared;
use carina_sys::{
    HUGE_PAGE_BYTES, Mapping, Memory, PAGE_BYTES, huge_page_file, huge_page_file_remove,
    physical_addresses,
};
use carina_vring::{GuestMemory, MemoryError, Region};

use crate::vfio::VfioDevice;

/// Memory that a device reads and writes by DMA. Parts of it are allocated until it is used up;
/// they are never freed one by one.
#[derive(Debug)]
pub struct DmaMemory {
    mapping: Arc<Mapping>,
    /// For each [`HUGE_PAGE_BYTES`] of the memory, in order: the address at which the device
    /// accesses these bytes.
    pages: Vec<u64>,
    used: usize,
    _memory: Memory,
}

/// A part of a [`DmaMemory`] that was allocated; its bytes are contiguous for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the part in this process's mapping of the memory, in bytes.
    pub offset: usize,
    /// Address at which the device accesses the part.
    pub address: u64,
}

impl DmaMemory {
    /// Allocates huge pages at physical addresses, for a device without an IOMMU. Their file has
    /// the name `name` and stays when this process ends, until [`forget`].
    ///
    /// # Errors
    /// `OutOfMemory` if there are too few huge pages; `PermissionDenied` if the process may not
    /// read physical addresses.
    pub fn physical(name: &str, bytes: usize) -> io::Result<DmaMemory> {
        let bytes = whole(bytes);
        let memory = huge_page_file(name, bytes)?;
        let (mapping, _) = Mapping::of_peer(memory.as_fd(), 0, bytes as u64)?;
        let pages = physical_addresses(&mapping, 0, bytes)?;
        Ok(DmaMemory {
            mapping: Arc::new(mapping),
            pages,
            used: 0,
            _memory: memory,
        })
    }

    /// Allocates memory that an IOMMU maps for the device; the device can access nothing else.
    ///
    /// # Errors
    /// The kernel refuses the memory or the mapping.
    pub fn behind_iommu(device: &VfioDevice, bytes: usize) -> io::Result<DmaMemory> {
        let memory = DmaMemory::counted_from(FIRST_ADDRESS, bytes)?;
        device.map_dma(&memory.mapping, FIRST_ADDRESS)?;
        Ok(memory)
    }

    /// Allocates memory whose device addresses count from `first`, for a model of a device.
    ///
    /// # Errors
    /// The kernel refuses memory.
    pub fn counted_from(first: u64, bytes: usize) -> io::Result<DmaMemory> {
        let bytes = whole(bytes);
        let memory = Memory::anonymous("carina-nic", bytes)?;
        let mapping = memory.map()?;
        let pages = (first..).step_by(HUGE_PAGE_BYTES);
        Ok(DmaMemory {
            mapping: Arc::new(mapping),
            pages: pages.take(bytes / HUGE_PAGE_BYTES).collect(),
            used: 0,
            _memory: memory,
        })
    }

    /// A second mapping of the same memory, for the model of a device.
    #[cfg(test)]
    pub(crate) fn again(&self) -> DmaMemory {
        DmaMemory {
            mapping: Arc::new(self._memory.map().unwrap()),
            pages: self.pages.clone(),
            used: 0,
            _memory: self._memory.try_clone().unwrap(),
        }
    }

    /// Allocates a part of `bytes` bytes whose offset is a multiple of `align`, a power of two.
    ///
    /// # Errors
    /// `OutOfMemory` if the memory is used up, or if the part is longer than a huge page.
    pub fn part(&mut self, bytes: usize, align: usize) -> io::Result<Part> {
        let mut offset = self.used.next_multiple_of(align);
        if offset % HUGE_PAGE_BYTES + bytes > HUGE_PAGE_BYTES {
            // Huge pages that are adjacent in this mapping need not be adjacent for the device.
            offset = offset.next_multiple_of(HUGE_PAGE_BYTES);
        }
        if bytes > HUGE_PAGE_BYTES || offset + bytes > self.mapping.len() {
            let text = format!("the memory for the device has no room for {bytes} more bytes");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, text));
        }
        self.used = offset + bytes;
        let page = self.pages[offset / HUGE_PAGE_BYTES];
        Ok(Part {
            offset,
            address: page + (offset % HUGE_PAGE_BYTES) as u64,
        })
    }

    /// Returns the 64-bit word at `offset`, which is shared with the device.
    ///
    /// # Panics
    /// The offset is outside the memory, or not a multiple of 8.
    #[must_use]
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        self.mapping.atomic_u64(offset)
    }

    /// Copies bytes from the memory to `to`. The device may change the source at any time, so check
    /// only the copy.
    ///
    /// # Panics
    /// The range is not within the memory.
    #[inline]
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        self.check(offset, to.len());
        // SAFETY: the range was just checked to be within the mapping; a copy may tear.
        unsafe { copy_shared(self.mapping.as_ptr().add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Copies bytes from `from` to the memory.
    ///
    /// # Panics
    /// The range is not within the memory.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        // SAFETY: the range was just checked to be within the mapping, which is writable.
        unsafe { copy_shared(from.as_ptr(), self.mapping.as_ptr().add(offset), from.len()) };
    }

    fn check(&self, offset: usize, len: usize) {
        let all = self.mapping.len();
        assert!(
            offset <= all && len <= all - offset,
            "{len} bytes at {offset} of {all}"
        );
    }

    /// Translates an address of the device to an offset, as an IOMMU does. `None` unless all `len`
    /// bytes from there are in this memory.
    #[must_use]
    pub fn offset_of(&self, address: u64, len: usize) -> Option<usize> {
        let mut pages = self.pages.iter().enumerate();
        let (page, within) = pages.find_map(|(page, first)| {
            let within = address.checked_sub(*first)?;
            (within < HUGE_PAGE_BYTES as u64).then_some((page, within as usize))
        })?;
        (within + len <= HUGE_PAGE_BYTES).then_some(page * HUGE_PAGE_BYTES + within)
    }
}

impl DmaMemory {
    /// Returns the whole memory in the form that virtio rings use, at the device's addresses.
    ///
    /// # Errors
    /// The memory has more huge pages than a virtio memory can have regions.
    pub fn for_rings(&self) -> Result<GuestMemory, MemoryError> {
        let pages = self.pages.iter().enumerate();
        let region = |(page, address): (usize, &u64)| {
            let mapping = Arc::clone(&self.mapping);
            let bytes = HUGE_PAGE_BYTES as u64;
            Region::new(mapping, page * HUGE_PAGE_BYTES, *address, *address, bytes)
        };
        GuestMemory::new(pages.map(region).collect::<Result<_, _>>()?)
    }
}

/// Removes the huge-page file of a device, which frees the memory. The device must have been
/// stopped.
pub fn forget(file: &str) {
    huge_page_file_remove(file);
}

fn whole(bytes: usize) -> usize {
    bytes.max(PAGE_BYTES).next_multiple_of(HUGE_PAGE_BYTES)
}

/// First address of the memory of a device behind an IOMMU: below the addresses of interrupts.
const FIRST_ADDRESS: u64 = 0x1000_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_within_a_page() {
        let mut memory = DmaMemory::counted_from(1 << 32, 2 * HUGE_PAGE_BYTES).unwrap();
        let first = memory.part(100, 128).unwrap();
        assert_eq!((first.offset, first.address), (0, 1 << 32));
        assert_eq!(memory.part(100, 128).unwrap().offset, 128);
        let long = memory.part(HUGE_PAGE_BYTES, 4096).unwrap();
        assert_eq!(long.offset, HUGE_PAGE_BYTES);
        let error = memory.part(64, 64).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        let end = (1 << 32) + 2 * HUGE_PAGE_BYTES as u64;
        assert_eq!(memory.offset_of(end - 8, 8), Some(2 * HUGE_PAGE_BYTES - 8));
        assert_eq!(memory.offset_of(end - 8, 9), None);
        assert_eq!(memory.offset_of(5, 1), None);
    }

    #[test]
    #[should_panic(expected = "4 bytes at 2097150")]
    fn bytes_outside_are_not_copied() {
        let memory = DmaMemory::counted_from(0, 1).unwrap();
        memory.write(HUGE_PAGE_BYTES - 2, &[0; 4]);
    }
}
