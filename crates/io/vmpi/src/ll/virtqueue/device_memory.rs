//! Memory that a driver half shares with its device: the rings, headers of blocks, and the data of
//! both pipes.
//!
//! ```text
//! 0        ring 0: descriptors, driver's part at 0x4000, device's part at 0x5000
//! 0x8000   ring 1: the same
//! 0x10000  headers of blocks: 16 bytes for each descriptor of ring 0; of ring 1 at 0x14000
//! 2 MiB    data of the pipe from the guest, then of the pipe to it
//! ```

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(super) use carina_nic::virtio::RingAddresses;
use carina_sys::{HUGE_PAGE_BYTES, Mapping, Memory, huge_page_file, physical_addresses};
use carina_vring::{
    AddressSpace, DriverBuffer, GuestMemory, Region, RingConfig, SetupError, SplitDriver,
};
use carina_wire::vmpi::BLOCK_HEADER_BYTES;

use super::pipe::Pipe;
use super::{FROM_GUEST, TO_GUEST};

/// The memory of a driver half, with the address of each page as the device sees it.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    memory: Memory,
    queues: Arc<Mapping>,
    /// The device's address of each part; a part has the size of a huge page.
    pages: Vec<u64>,
    capacity: usize,
}

/// Bytes of data of each pipe.
pub(super) const PIPE_BYTES: usize = 4 << 20;

/// Largest number of descriptors of a ring that the memory has room for.
pub(super) const RING_SIZE_MAX: u16 = 1024;

const RING_BYTES: usize = 0x8000;
const DRIVER_PART: usize = 0x4000;
const DEVICE_PART: usize = 0x5000;
const HEADERS: usize = 0x1_0000;
const HEADERS_BYTES: usize = RING_SIZE_MAX as usize * BLOCK_HEADER_BYTES;

const _: () = assert!(2 * RING_BYTES <= HEADERS, "rings end before the headers");

const fn total(capacity: usize) -> usize {
    HUGE_PAGE_BYTES + 2 * capacity
}

impl DeviceMemory {
    /// Allocates huge pages, which the device addresses by physical address.
    pub(super) fn physical(name: &str) -> io::Result<DeviceMemory> {
        let bytes = total(PIPE_BYTES);
        let memory = huge_page_file(name, bytes)?;
        let (whole, _) = Mapping::of_peer(memory.as_fd(), 0, bytes as u64)?;
        let pages = physical_addresses(&whole, 0, bytes)?;
        DeviceMemory::new(memory, pages, PIPE_BYTES)
    }

    /// Allocates a memfd, which the device addresses from `first` on.
    pub(super) fn counted_from(first: u64, capacity: usize) -> io::Result<DeviceMemory> {
        let memory = Memory::anonymous("carina-virtqueue", total(capacity))?;
        let pages = (first..)
            .step_by(HUGE_PAGE_BYTES)
            .take(total(capacity).div_ceil(HUGE_PAGE_BYTES));
        DeviceMemory::new(memory, pages.collect(), capacity)
    }

    fn new(memory: Memory, pages: Vec<u64>, capacity: usize) -> io::Result<DeviceMemory> {
        // The kernel chooses the address, because huge pages need a special alignment.
        let (queues, _) = Mapping::of_peer(memory.as_fd(), 0, HUGE_PAGE_BYTES as u64)?;
        Ok(DeviceMemory {
            memory,
            queues: Arc::new(queues),
            pages,
            capacity,
        })
    }

    /// The file descriptor of the whole memory.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Size of the whole memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        total(self.capacity)
    }

    /// Bytes of data of each pipe.
    pub(super) fn pipe_bytes(&self) -> usize {
        self.capacity
    }

    /// The pipe whose data a ring carries.
    pub(super) fn pipe(&self, ring: usize) -> io::Result<Pipe> {
        let offset = self.pipe_offset(ring) as u64;
        Pipe::at(self.memory.as_fd(), offset, self.capacity)
    }

    fn pipe_offset(&self, ring: usize) -> usize {
        match ring {
            FROM_GUEST => HUGE_PAGE_BYTES,
            _ => HUGE_PAGE_BYTES + self.capacity,
        }
    }

    /// Creates an empty ring of `size` descriptors. Returns it with its addresses as the device
    /// sees them.
    pub(super) fn ring(
        &self,
        ring: usize,
        size: u16,
    ) -> Result<(SplitDriver, RingAddresses), SetupError> {
        let first = self.pages[0];
        let queues = Arc::clone(&self.queues);
        let region = Region::new(queues, 0, first, first, HUGE_PAGE_BYTES as u64);
        let memory = region.and_then(|region| GuestMemory::new(vec![region]));
        let memory = memory.map_err(|_| SetupError::OutsideMemory {
            part: "queues",
            address: first,
            bytes: HUGE_PAGE_BYTES as u64,
        })?;
        let at = |part: usize| first + (ring * RING_BYTES + part) as u64;
        let addresses = RingAddresses {
            size,
            descriptors: at(0),
            driver: at(DRIVER_PART),
            device: at(DEVICE_PART),
        };
        let config = RingConfig {
            size,
            descriptors: addresses.descriptors,
            driver: addresses.driver,
            device: addresses.device,
            space: AddressSpace::Guest,
            has_event_index: false,
            has_indirect: false,
            is_in_order: false,
            position: 0,
        };
        Ok((SplitDriver::new(&memory, &config)?, addresses))
    }

    /// The device's address of the block header in `slot`.
    pub(super) fn header(&self, ring: usize, slot: u16) -> u64 {
        self.pages[0] + header_offset(ring, slot) as u64
    }

    pub(super) fn write_header(&self, ring: usize, slot: u16, header: &[u8; BLOCK_HEADER_BYTES]) {
        let at = header_offset(ring, slot);
        let (words, _) = header.as_chunks::<8>();
        for (number, word) in words.iter().enumerate() {
            let to = self.queues.atomic_u64(at + 8 * number);
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    pub(super) fn read_header(&self, ring: usize, slot: u16) -> [u8; BLOCK_HEADER_BYTES] {
        let mut header = [0; BLOCK_HEADER_BYTES];
        self.queues.read(header_offset(ring, slot), &mut header);
        header
    }

    /// Appends to `to` the buffers for `len` bytes of a pipe's data that begin at `offset`. The
    /// range may wrap to the start of the data. There is one buffer for each part that is
    /// contiguous for the device.
    pub(super) fn buffers(
        &self,
        ring: usize,
        offset: usize,
        len: usize,
        to: &mut Vec<DriverBuffer>,
    ) {
        let (mut offset, mut left) = (offset, len);
        while left > 0 {
            let at = self.pipe_offset(ring) + offset;
            let within = at % HUGE_PAGE_BYTES;
            let part = left
                .min(HUGE_PAGE_BYTES - within)
                .min(self.capacity - offset);
            let address = self.pages[at / HUGE_PAGE_BYTES] + within as u64;
            to.push(DriverBuffer {
                address,
                len: part as u32,
                is_writable: ring == TO_GUEST,
            });
            left -= part;
            offset = (offset + part) % self.capacity;
        }
    }
}

fn header_offset(ring: usize, slot: u16) -> usize {
    HEADERS + ring * HEADERS_BYTES + usize::from(slot % RING_SIZE_MAX) * BLOCK_HEADER_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_pages_and_wrap() {
        let mut memory = DeviceMemory::counted_from(0x4000_0000, PIPE_BYTES).unwrap();
        let page = HUGE_PAGE_BYTES as u64;
        memory.pages = vec![10 * page, 30 * page, 20 * page, 50 * page, 40 * page];
        let buffers = |ring, offset, len| {
            let mut all = Vec::new();
            memory.buffers(ring, offset, len, &mut all);
            let short = all.iter().map(|b| (b.address, b.len, b.is_writable));
            short.collect::<Vec<_>>()
        };
        assert_eq!(buffers(FROM_GUEST, 8, 16), [(30 * page + 8, 16, false)]);
        assert_eq!(
            buffers(FROM_GUEST, HUGE_PAGE_BYTES - 8, 24),
            [(31 * page - 8, 8, false), (20 * page, 16, false)]
        );
        assert_eq!(
            buffers(TO_GUEST, PIPE_BYTES - 8, 16),
            [(41 * page - 8, 8, true), (50 * page, 8, true)]
        );
    }

    #[test]
    fn rings_and_headers_do_not_overlap() {
        let [descriptors, driver, device] = carina_vring::split_bytes(RING_SIZE_MAX);
        assert!(descriptors as usize <= DRIVER_PART);
        assert!(DRIVER_PART + driver as usize <= DEVICE_PART);
        assert!(DEVICE_PART + device as usize <= RING_BYTES);
        assert!(header_offset(1, RING_SIZE_MAX - 1) + BLOCK_HEADER_BYTES <= HUGE_PAGE_BYTES);
        assert_eq!(
            header_offset(1, 0),
            header_offset(0, RING_SIZE_MAX - 1) + 16
        );
    }
}
