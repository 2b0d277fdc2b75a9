//! Chains that a device has taken, and access to the bytes of their buffers.

use std::ptr::NonNull;

use carina_ring::{Run, SmallBytes, Stretch, copy_shared};

use crate::dirty::DirtyLog;
use crate::fault::Fault;
use crate::memory::GuestMemory;

/// The chains of one burst, numbered from 0 in the order in which they were taken.
///
/// # Panics
/// Each method that takes the number of a chain panics if there is no such chain.
#[derive(Debug)]
pub struct Taken {
    memory: GuestMemory,
    /// Index of the region in which the last buffer was found.
    region: usize,
    chains: Vec<Chain>,
    buffers: Vec<Buffer>,
    /// Number of completed chains.
    done: usize,
    pub(crate) log: Option<DirtyLog>,
    size: u16,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    /// Id of the chain in the ring.
    pub(crate) id: u16,
    /// Number of the ring's descriptors that the chain takes.
    pub(crate) descriptors: u16,
    /// Index of the chain's first buffer.
    first: u32,
    readable: u32,
    writable: u32,
    readable_bytes: u32,
    writable_bytes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Buffer {
    host: NonNull<u8>,
    len: u32,
    guest: u64,
}

// SAFETY: the memory behind `host` is that of `GuestMemory`, which is `Send` and `Sync`.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Taken {
    pub(crate) fn new(memory: GuestMemory, size: u16) -> Taken {
        Taken {
            memory,
            region: 0,
            chains: Vec::with_capacity(128),
            buffers: Vec::with_capacity(256),
            done: 0,
            log: None,
            size,
        }
    }

    /// Returns the number of chains.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chains.len()
    }

    /// Whether there is no chain.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty()
    }

    /// Returns the number of bytes of a chain that the device may read.
    #[must_use]
    #[inline]
    pub fn readable(&self, chain: usize) -> usize {
        self.chains[chain].readable_bytes as usize
    }

    /// Returns the number of bytes of a chain that the device may write.
    #[must_use]
    #[inline]
    pub fn writable(&self, chain: usize) -> usize {
        self.chains[chain].writable_bytes as usize
    }

    /// Copies bytes that the driver wrote to `to`, from byte `skip` of a chain on. Returns how many
    /// were copied: `to.len()`, or fewer at the end of the chain.
    #[inline]
    pub fn read(&self, chain: usize, skip: usize, to: &mut [u8]) -> usize {
        // SAFETY: `to` has that many bytes.
        unsafe { self.read_raw(chain, skip, to.as_mut_ptr(), to.len()) }
    }

    /// Like [`Taken::read`], into reserved room of a ring.
    #[inline]
    pub fn read_into(&self, chain: usize, skip: usize, to: &mut Stretch<'_>) -> usize {
        let (at, len) = (to.as_mut_ptr(), to.len());
        // SAFETY: the room has that many bytes.
        unsafe { self.read_raw(chain, skip, at, len) }
    }

    /// # Safety
    /// `len` bytes at `to` may be written.
    #[inline]
    unsafe fn read_raw(&self, chain: usize, skip: usize, to: *mut u8, len: usize) -> usize {
        let chain = &self.chains[chain];
        let first = chain.first as usize;
        let buffers = &self.buffers[first..first + chain.readable as usize];
        let (mut skip, mut done) = (skip, 0);
        for buffer in buffers {
            let bytes = buffer.len as usize;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let part = (bytes - skip).min(len - done);
            // SAFETY: the buffer was checked to be within the memory, which this value keeps
            // mapped; `to` has `done + part` bytes.
            unsafe {
                let from = buffer.host.as_ptr().add(skip);
                copy_shared(from, to.add(done), part);
            }
            done += part;
            skip = 0;
            if done == len {
                break;
            }
        }
        done
    }

    /// Copies bytes from `from` into the writable buffers of a chain, from byte `at` of the chain
    /// on. Returns how many bytes were copied: fewer than `from.len()` if the chain is too short.
    #[inline]
    pub fn write(&self, chain: usize, at: usize, from: &[u8]) -> usize {
        // SAFETY: `from` has that many bytes.
        unsafe { self.write_raw(chain, at, from.as_ptr(), from.len()) }
    }

    /// Like [`Taken::write`] at the start of a chain, for a few bytes that are often there already,
    /// such as the header of a network card. In that case nothing is written, and the cache line
    /// stays with the driver's processor.
    #[inline]
    pub fn write_if_other(&self, chain: usize, bytes: &SmallBytes) -> usize {
        let whole = &self.chains[chain];
        let first = (whole.first + whole.readable) as usize;
        let buffers = &self.buffers[first..first + whole.writable as usize];
        let Some(buffer) = buffers
            .first()
            .filter(|buffer| buffer.len as usize >= bytes.len())
        else {
            return self.write(chain, 0, &bytes.bytes()[..bytes.len()]);
        };
        let at = buffer.host.as_ptr();
        // SAFETY: as in `read_raw`; the buffer has that many bytes.
        unsafe {
            if !bytes.are_at(at) {
                bytes.write(at);
                if let Some(log) = &self.log {
                    log.mark(buffer.guest, bytes.len() as u64);
                }
            }
        }
        bytes.len()
    }

    /// Like [`Taken::write`], for bytes that a ring holds.
    #[inline]
    pub fn write_from(&self, chain: usize, at: usize, from: &Run<'_>) -> usize {
        // SAFETY: the run has that many bytes.
        unsafe { self.write_raw(chain, at, from.as_ptr(), from.len()) }
    }

    /// # Safety
    /// `len` bytes at `from` may be read.
    #[inline]
    unsafe fn write_raw(&self, chain: usize, at: usize, from: *const u8, len: usize) -> usize {
        let chain = &self.chains[chain];
        let first = (chain.first + chain.readable) as usize;
        let buffers = &self.buffers[first..first + chain.writable as usize];
        let (mut skip, mut done) = (at, 0);
        for buffer in buffers {
            let bytes = buffer.len as usize;
            if skip >= bytes {
                skip -= bytes;
                continue;
            }
            let part = (bytes - skip).min(len - done);
            // SAFETY: as in `read_raw`.
            unsafe {
                let to = buffer.host.as_ptr().add(skip);
                copy_shared(from.add(done), to, part);
            }
            if let Some(log) = &self.log {
                log.mark(buffer.guest + skip as u64, part as u64);
            }
            done += part;
            skip = 0;
            if done == len {
                break;
            }
        }
        done
    }

    pub(crate) fn memory(&self) -> &GuestMemory {
        &self.memory
    }

    /// Removes the chains of the previous burst.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.chains.clear();
        self.buffers.clear();
        self.done = 0;
    }

    /// Whether no more chains should be taken: a burst of long chains has fewer of them.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.buffers.len() >= BUFFERS_MAX
    }

    /// Starts a chain.
    #[inline]
    pub(crate) fn begin(&self) -> NewChain {
        NewChain {
            first: self.buffers.len() as u32,
            readable: 0,
            writable: 0,
            readable_bytes: 0,
            writable_bytes: 0,
            descriptors: 0,
        }
    }

    /// Adds a buffer to the chain that was started last.
    #[inline]
    pub(crate) fn add(
        &mut self,
        chain: &mut NewChain,
        address: u64,
        len: u32,
        is_writable: bool,
    ) -> Result<(), Fault> {
        chain.descriptors += 1;
        if chain.descriptors > u32::from(self.size) {
            return Err(Fault::ChainLength { size: self.size });
        }
        let bytes = if is_writable {
            &mut chain.writable_bytes
        } else if chain.writable > 0 {
            return Err(Fault::ReadableBehindWritable);
        } else {
            &mut chain.readable_bytes
        };
        *bytes = bytes.checked_add(len).ok_or(Fault::ChainBytes)?;
        let host = self.memory.guest(address, u64::from(len), &mut self.region);
        let Some(host) = host else {
            return self.add_pieces(chain, address, len, is_writable);
        };
        if is_writable {
            prefetch_to_write(host.as_ptr(), len)
        } else {
            prefetch(host.as_ptr(), len)
        }
        self.push(chain, host, address, len, is_writable);
        Ok(())
    }

    #[inline]
    fn push(
        &mut self,
        chain: &mut NewChain,
        host: NonNull<u8>,
        guest: u64,
        len: u32,
        is_writable: bool,
    ) {
        chain.writable += u32::from(is_writable);
        chain.readable += u32::from(!is_writable);
        self.buffers.push(Buffer { host, len, guest });
    }

    /// Adds a buffer that continues from one region in the next region.
    #[cold]
    fn add_pieces(
        &mut self,
        chain: &mut NewChain,
        address: u64,
        len: u32,
        is_writable: bool,
    ) -> Result<(), Fault> {
        let (mut at, mut left) = (address, u64::from(len));
        // A buffer of zero bytes may have any address; it is ignored.
        while left > 0 {
            let part = self.memory.bytes_from(at).min(left);
            let host = self.memory.guest(at, part, &mut self.region);
            let Some(host) = host.filter(|_| part > 0) else {
                return Err(Fault::OutsideMemory { address, len });
            };
            self.push(chain, host, at, part as u32, is_writable);
            // The remaining bytes are at most `u32::MAX`, from an address inside a region.
            at = at.wrapping_add(part);
            left -= part;
        }
        Ok(())
    }

    /// Ends the chain that was started last.
    #[inline]
    pub(crate) fn end(&mut self, chain: NewChain, id: u16, descriptors: u16) {
        self.chains.push(Chain {
            id,
            descriptors,
            first: chain.first,
            readable: chain.readable,
            writable: chain.writable,
            readable_bytes: chain.readable_bytes,
            writable_bytes: chain.writable_bytes,
        });
    }

    /// Marks the oldest chain that is not completed as completed, and returns it.
    #[inline]
    pub(crate) fn complete(&mut self) -> Chain {
        let chain = self.chains[self.done];
        self.done += 1;
        chain
    }

    /// Whether a chain is not completed.
    #[inline]
    pub(crate) fn has_open(&self) -> bool {
        self.done < self.chains.len()
    }

    /// Removes the chains that are not completed, and returns them.
    pub(crate) fn put_back(&mut self) -> impl Iterator<Item = Chain> + '_ {
        self.chains.drain(self.done..)
    }
}

/// A chain to which buffers are being added.
pub(crate) struct NewChain {
    first: u32,
    readable: u32,
    writable: u32,
    readable_bytes: u32,
    writable_bytes: u32,
    descriptors: u32,
}

/// Prefetches bytes that a peer has written on another core. The cache lines are requested as soon
/// as their addresses are known, for all buffers of a burst at once.
#[inline]
fn prefetch(at: *const u8, len: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
        if len > LINE {
            _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(LINE as usize).cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, len);
}

/// Prefetches memory for writing. A peer has read its previous contents on another core. Otherwise
/// each cache line would be fetched twice: once for reading, and again for exclusive access when it
/// is written. The first line is prefetched only if more than a header of the buffer is in it.
#[inline]
fn prefetch_to_write(at: *const u8, len: u32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch accesses nothing; a processor that has none of this kind does nothing.
    unsafe {
        use core::arch::asm;
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        if at.addr() % LINE as usize >= LINE as usize - SmallBytes::MAX {
            _mm_prefetch::<_MM_HINT_T0>(at.cast())
        } else {
            asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
        }
        if len > LINE {
            let next = at.wrapping_add(LINE as usize);
            asm!("prefetchw [{}]", in(reg) next, options(nostack, preserves_flags, readonly));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, len);
}

/// Size of a cache line in bytes.
const LINE: u32 = 64;

/// Number of buffers at which a burst ends; the last chain may exceed it.
const BUFFERS_MAX: usize = 1024;
