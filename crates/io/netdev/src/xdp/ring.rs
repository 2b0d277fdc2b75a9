//! One ring of an AF_XDP socket, in memory shared with the kernel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use carina_sys::Mapping;

/// A ring. This side's counter is `next`; [`Ring::publish`] makes it visible to the kernel.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Mapping,
    /// Offset of the kernel's counter. The next field is the offset of this side's counter.
    theirs: usize,
    own: usize,
    flags: usize,
    entries: usize,
    size: u32,
    /// This side's counter. It is at most `size` ahead of the consumer's counter.
    next: u32,
    is_producer: bool,
}

impl Ring {
    /// Maps a ring of `size` entries, a power of two, of `entry` bytes each, at offset `at` of the
    /// socket.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        at: u64,
        offsets: &libc::xdp_ring_offset,
        size: u32,
        entry: usize,
        is_producer: bool,
    ) -> io::Result<Ring> {
        let [producer, consumer, flags, entries] = [
            offsets.producer,
            offsets.consumer,
            offsets.flags,
            offsets.desc,
        ]
        .map(|at| at as usize);
        let bytes = (entries + size as usize * entry).next_multiple_of(PAGE_BYTES);
        let memory = Mapping::shared(fd, at, bytes)?;
        let (own, theirs) = if is_producer {
            (producer, consumer)
        } else {
            (consumer, producer)
        };
        Ok(Ring {
            memory,
            theirs,
            own,
            flags,
            entries,
            size,
            next: 0,
            is_producer,
        })
    }

    fn theirs(&self) -> u32 {
        self.memory.atomic_u32(self.theirs).load(Ordering::Acquire)
    }

    /// Number of entries that the kernel has put into the ring and this side has not taken.
    pub(super) fn waiting(&self) -> usize {
        debug_assert!(!self.is_producer);
        self.theirs().wrapping_sub(self.next).min(self.size) as usize
    }

    /// Number of entries that this side can put into the ring.
    pub(super) fn room(&self) -> usize {
        debug_assert!(self.is_producer);
        let used = self.next.wrapping_sub(self.theirs());
        self.size.saturating_sub(used) as usize
    }

    /// Whether the kernel has taken all published entries.
    pub(super) fn is_taken(&self) -> bool {
        self.theirs() == self.next
    }

    /// Makes the entries that were put or taken visible to the kernel.
    pub(super) fn publish(&self) {
        self.memory
            .atomic_u32(self.own)
            .store(self.next, Ordering::Release);
    }

    /// Whether the kernel needs a system call to process the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        let flags = self.memory.atomic_u32(self.flags).load(Ordering::Relaxed);
        flags & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&mut self, entry: usize) -> usize {
        let at = (self.next & (self.size - 1)) as usize;
        self.next = self.next.wrapping_add(1);
        self.entries + at * entry
    }

    pub(super) fn put_chunk(&mut self, chunk: u64) {
        let at = self.slot(CHUNK_ENTRY);
        self.memory.atomic_u64(at).store(chunk, Ordering::Relaxed);
    }

    pub(super) fn take_chunk(&mut self) -> Option<u64> {
        if self.waiting() == 0 {
            return None;
        }
        let at = self.slot(CHUNK_ENTRY);
        Some(self.memory.atomic_u64(at).load(Ordering::Relaxed))
    }

    pub(super) fn put_frame(&mut self, address: u64, bytes: u32) {
        let at = self.slot(FRAME_ENTRY);
        self.memory.atomic_u64(at).store(address, Ordering::Relaxed);
        // The second word holds the length; the options in its upper half are zero.
        self.memory
            .atomic_u64(at + 8)
            .store(u64::from(bytes), Ordering::Relaxed);
    }

    pub(super) fn take_frame(&mut self) -> Option<(u64, u32)> {
        if self.waiting() == 0 {
            return None;
        }
        let at = self.slot(FRAME_ENTRY);
        let address = self.memory.atomic_u64(at).load(Ordering::Relaxed);
        let word = self.memory.atomic_u64(at + 8).load(Ordering::Relaxed);
        Some((address, word as u32))
    }
}

/// Size in bytes of an entry of the fill and completion rings.
pub(super) const CHUNK_ENTRY: usize = 8;
/// Size in bytes of an entry of the rx and tx rings: address u64, length u32, options u32.
pub(super) const FRAME_ENTRY: usize = 16;
const PAGE_BYTES: usize = 4096;
