//! A shared mapping. A part of it may be mapped twice in a row.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};

use crate::lost_pages::{Registered, lost_pages};

/// Size of a page in bytes. Every size and offset to map is a multiple of it.
pub const PAGE_BYTES: usize = 4096;

/// Size of a huge page in bytes: 2 MiB.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The kind of pages that the kernel gave for private memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages that the system reserved. Each is contiguous for a device.
    Huge,
    /// Small pages, or huge pages where the kernel could allocate them.
    Advised,
}

/// Readable and writable memory shared with other processes, unmapped on drop.
///
/// Other processes may write at any time, so no reference to plain bytes is ever given out: access
/// is by copy, by atomics, or through the raw pointer.
///
/// Another process may also truncate the file, or leave no room for a page that was never written.
/// An access to such a lost page finds zeros, and [`Mapping::is_lost`] returns true from then on.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// `None` for memory that is not of a file.
    registered: Option<Registered>,
}

// SAFETY: the mapping is process-wide memory without thread affinity, owned by this value.
unsafe impl Send for Mapping {}
// SAFETY: the safe accessors use atomics only, which tolerate concurrent access.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `fd` from `offset`.
    ///
    /// # Errors
    /// `InvalidInput` if offset or length are not multiples of [`PAGE_BYTES`], or if a regular file
    /// is too short; the kernel's refusal.
    pub fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        check(fd, offset, len)?;
        let mapping = Self::reserve(len)?;
        // SAFETY: the range is the reservation just made, so nothing else is replaced.
        unsafe { mapping.place(0, fd, offset, len)? };
        Ok(mapping.registered())
    }

    /// Maps `head + data` bytes of `fd` from `offset`, and then the `data` part once more directly
    /// behind: the byte at `head + i` is also at `head + data + i` for `i < data`.
    ///
    /// # Errors
    /// As for [`Mapping::shared`].
    pub fn mirrored(fd: BorrowedFd<'_>, offset: u64, head: usize, data: usize) -> io::Result<Self> {
        let once = head.checked_add(data).ok_or_else(too_large)?;
        check(fd, offset, once)?;
        check(fd, offset + head as u64, data)?;
        let mapping = Self::reserve(once.checked_add(data).ok_or_else(too_large)?)?;
        // SAFETY: both ranges lie inside the reservation just made and do not overlap.
        unsafe {
            mapping.place(0, fd, offset, once)?;
            mapping.place(once, fd, offset + head as u64, data)?;
        }
        Ok(mapping.registered())
    }

    /// Maps one private page of zeros, and directly behind it the first `len` bytes of `fd`. A ring
    /// has a header page before its data. With the page of zeros, memory without a header, such as
    /// that of a packet socket, is laid out like a ring.
    ///
    /// # Errors
    /// As for [`Mapping::shared`].
    pub fn behind_page(fd: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        check(fd, 0, len)?;
        let mapping = Self::reserve(len.checked_add(PAGE_BYTES).ok_or_else(too_large)?)?;
        // SAFETY: both ranges lie inside the reservation just made and do not overlap.
        unsafe {
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            mprotect(mapping.as_ptr().cast(), PAGE_BYTES, access)?;
            mapping.place(PAGE_BYTES, fd, 0, len)?;
        }
        Ok(mapping.registered())
    }

    /// Maps `data` bytes of `fd` from `offset` behind one private page of zeros, and then once more
    /// directly behind: the byte at [`PAGE_BYTES`]` + i` is also at `PAGE_BYTES + data + i`. The
    /// data begins at a multiple of [`HUGE_PAGE_BYTES`], so that the file may be one of huge pages.
    ///
    /// # Errors
    /// As for [`Mapping::shared`].
    pub fn mirrored_behind_page(fd: BorrowedFd<'_>, offset: u64, data: usize) -> io::Result<Self> {
        check(fd, offset, data)?;
        let len = data
            .checked_mul(2)
            .and_then(|twice| twice.checked_add(PAGE_BYTES))
            .ok_or_else(too_large)?;
        let longer = len.checked_add(HUGE_PAGE_BYTES).ok_or_else(too_large)?;
        let whole = Self::reserve(longer)?;
        let before = whole
            .as_ptr()
            .wrapping_add(PAGE_BYTES)
            .align_offset(HUGE_PAGE_BYTES);
        let mapping = whole.part(before, len)?;
        // SAFETY: the ranges lie inside the reservation just made and do not overlap.
        unsafe {
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            mprotect(mapping.as_ptr().cast(), PAGE_BYTES, access)?;
            mapping.place(PAGE_BYTES, fd, offset, data)?;
            mapping.place(PAGE_BYTES + data, fd, offset, data)?;
        }
        Ok(mapping.registered())
    }

    /// Maps `len` bytes of a peer's file from `offset`; the two numbers need not be multiples of a
    /// page. Seals the file against shrinking if possible: a memfd of the peer can be sealed, a
    /// file of huge pages cannot. Returns the mapping, and the offset in it at which the bytes
    /// begin.
    ///
    /// # Errors
    /// `InvalidInput` if the file is too short, or `len` is 0; the kernel's refusal.
    pub fn of_peer(fd: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<(Self, usize)> {
        // If the file cannot be sealed, a page that the peer removes is replaced
        // ([`Mapping::is_lost`]).
        let _ = rustix::fs::fcntl_add_seals(fd, rustix::fs::SealFlags::SHRINK);
        let stat = rustix::fs::fstat(fd)?;
        let end = offset.checked_add(len).ok_or_else(too_large)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        if !regular || len == 0 || end > stat.st_size as u64 {
            let text = format!(
                "cannot map {len} bytes at offset {offset} of a file of {} bytes",
                stat.st_size
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A file of huge pages can be mapped only in whole huge pages.
        let page = (stat.st_blksize as u64).max(PAGE_BYTES as u64);
        let start = offset - offset % page;
        let end = end.checked_next_multiple_of(page).ok_or_else(too_large)?;
        let whole = usize::try_from(end - start).map_err(|_| too_large())?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: the kernel picks the address, so no other mapping is touched.
        let base = unsafe { mmap(ptr::null_mut(), whole, access, flags, fd, start)? };
        let base = NonNull::new(base.cast()).expect("mmap without a hint never maps page 0");
        let mapping = Self::at(base, whole).registered();
        Ok((mapping, (offset - start) as usize))
    }

    /// Maps `len` bytes of zeros that are private to this process, rounded up to and aligned to
    /// whole pages of [`HUGE_PAGE_BYTES`]. Uses reserved huge pages if the system has enough;
    /// otherwise asks the kernel to use huge pages where it can. The result says which.
    ///
    /// # Errors
    /// `InvalidInput` for a length of 0 or beyond the address space; the kernel's refusal.
    pub fn private(len: usize) -> io::Result<(Self, Pages)> {
        let len = len
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .filter(|len| *len > 0)
            .ok_or_else(too_large)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let huge = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: the kernel picks the address, so no other mapping is touched.
        if let Ok(base) = unsafe { mmap_anonymous(ptr::null_mut(), len, access, huge) }
            && let Some(base) = NonNull::new(base.cast())
        {
            return Ok((Self::at(base, len), Pages::Huge));
        }
        let longer = len
            .checked_add(HUGE_PAGE_BYTES - PAGE_BYTES)
            .ok_or_else(too_large)?;
        let whole = Self::reserve(longer)?;
        let before = whole.as_ptr().align_offset(HUGE_PAGE_BYTES);
        let mapping = whole.part(before, len)?;
        // SAFETY: the range is the reservation just made; access to it is given, none is taken.
        unsafe {
            let access = MprotectFlags::READ | MprotectFlags::WRITE;
            mprotect(mapping.as_ptr().cast(), len, access)?;
            // This is only advice: without it the pages are small.
            let _ = madvise(mapping.as_ptr().cast(), len, Advice::LinuxHugepage);
        }
        Ok((mapping, Pages::Advised))
    }

    /// Keeps the `len` bytes at offset `before` of a reservation and unmaps the rest. Both are
    /// multiples of a page.
    fn part(self, before: usize, len: usize) -> io::Result<Self> {
        assert!(
            before <= self.len && len <= self.len - before,
            "part {before}+{len} of a reservation of {} bytes",
            self.len
        );
        let whole = std::mem::ManuallyDrop::new(self);
        let after = whole.len - before - len;
        // SAFETY: `before + len` is at most the length of the reservation.
        let (base, end) = unsafe {
            let base = whole.base.add(before);
            (base, base.as_ptr().add(len))
        };
        let mapping = Self::at(base, len);
        // SAFETY: both ends belong to the reservation, lie outside of what is kept, and no
        // borrow of them exists.
        unsafe {
            if before > 0 {
                munmap(whole.base.as_ptr().cast(), before)?;
            }
            if after > 0 {
                munmap(end.cast(), after)?;
            }
        }
        Ok(mapping)
    }

    /// Returns the length of the mapping in bytes, with the mirrored part counted twice.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether a page of the file was lost when it was accessed, because another process has
    /// truncated the file or its file system is full. The mapping then has a private page of zeros
    /// there, so its contents differ from the file and it must be given up.
    #[must_use]
    #[inline]
    pub fn is_lost(&self) -> bool {
        lost_pages() > 0 && self.registered.as_ref().is_some_and(Registered::is_lost)
    }

    /// Returns the address of the first byte. It is valid for [`Mapping::len`] bytes as long as
    /// this value lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the byte at `offset` for atomic access.
    ///
    /// # Panics
    /// It is not inside the mapping.
    #[must_use]
    pub fn atomic_u8(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU8::from_ptr(self.checked(offset, 1)) }
    }

    /// Returns the 16-bit word at `offset` for atomic access, in native byte order.
    ///
    /// # Panics
    /// It is not aligned or not inside the mapping.
    #[must_use]
    pub fn atomic_u16(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU16::from_ptr(self.checked(offset, 2).cast()) }
    }

    /// Returns the 32-bit word at `offset` for atomic access, in native byte order.
    ///
    /// # Panics
    /// It is not aligned or not inside the mapping.
    #[must_use]
    pub fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `checked` proves bounds and alignment; the memory is valid for `&self` and
        // is only ever accessed atomically through safe code.
        unsafe { AtomicU32::from_ptr(self.checked(offset, 4).cast()) }
    }

    /// Returns the 64-bit word at `offset` for atomic access, in native byte order.
    ///
    /// # Panics
    /// It is not aligned or not inside the mapping.
    #[must_use]
    pub fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU64::from_ptr(self.checked(offset, 8).cast()) }
    }

    /// Copies bytes from the mapping to `to`. Concurrent writers may tear them, so check the copy.
    /// It copies one byte at a time, so it is not for the fast path.
    ///
    /// # Panics
    /// The range is not inside the mapping.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let shared = self.bytes(offset, to.len());
        for (byte, shared) in to.iter_mut().zip(shared) {
            *byte = shared.load(Ordering::Relaxed);
        }
    }

    /// Copies bytes from `from` to the mapping, one at a time.
    ///
    /// # Panics
    /// The range is not inside the mapping.
    pub fn write(&self, offset: usize, from: &[u8]) {
        for (byte, shared) in from.iter().zip(self.bytes(offset, from.len())) {
            shared.store(*byte, Ordering::Relaxed);
        }
    }

    fn bytes(&self, offset: usize, len: usize) -> &[AtomicU8] {
        assert!(
            offset <= self.len && len <= self.len - offset,
            "range {offset}+{len} outside a mapping of {} bytes",
            self.len
        );
        // SAFETY: the range was just checked to be inside, and bytes are accessed atomically.
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(offset).cast(), len) }
    }

    fn checked(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset.is_multiple_of(bytes) && offset < self.len && bytes <= self.len - offset,
            "word of {bytes} bytes at {offset} in a mapping of {} bytes",
            self.len
        );
        // SAFETY: inside the mapping, checked above.
        unsafe { self.as_ptr().add(offset) }
    }

    fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: the kernel picks the address, so no other mapping is touched.
        let base =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE)? };
        let base = NonNull::new(base.cast()).expect("mmap without a hint never maps page 0");
        Ok(Self::at(base, len))
    }

    fn at(base: NonNull<u8>, len: usize) -> Self {
        Self {
            base,
            len,
            registered: None,
        }
    }

    /// Registers the mapping, so that a lost page is replaced and does not end the process.
    fn registered(mut self) -> Self {
        let start = self.base.as_ptr().addr();
        self.registered = Some(Registered::new(start, self.len));
        self
    }

    /// # Safety
    /// `at + len` must lie inside the reservation and that range must not be in use yet.
    unsafe fn place(
        &self,
        at: usize,
        fd: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<()> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the caller promises that the range is ours and unused, so replacing it is safe.
        unsafe {
            let address = self.as_ptr().add(at).cast();
            mmap(
                address,
                len,
                access,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                offset,
            )?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The registration ends first: another mapping may get the addresses as soon as they are
        // free.
        self.registered = None;
        // SAFETY: the whole reservation belongs to this value and no borrow of it remains.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn check(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<()> {
    let page = PAGE_BYTES as u64;
    if len == 0 || !len.is_multiple_of(PAGE_BYTES) || !offset.is_multiple_of(page) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("cannot map {len} bytes at {offset}: not multiples of {PAGE_BYTES}"),
        ));
    }
    let stat = rustix::fs::fstat(fd)?;
    // Devices report no size; for them the kernel itself checks the range.
    let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    let end = offset.checked_add(len as u64).ok_or_else(too_large)?;
    // The last page may be mapped completely: in sysfs, a PCI BAR of 256 bytes is such a file.
    if regular && end > (stat.st_size as u64).next_multiple_of(page) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "cannot map up to byte {end}: the file has {} bytes",
                stat.st_size
            ),
        ));
    }
    Ok(())
}

fn too_large() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "mapping larger than the address space",
    )
}

#[cfg(test)]
mod tests;
