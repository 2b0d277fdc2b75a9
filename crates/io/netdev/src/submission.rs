//! Bursts of reads or writes of one file in one system call. (io_uring(7))
//!
//! The file must be able to answer at once: each operation forbids waiting (`RWF_NOWAIT`), so a
//! call returns when all its operations are complete, and the kernel uses the buffers only during
//! the call. `O_NONBLOCK` of the file does not have this effect: io_uring then waits for the file
//! itself.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A queue of operations for the kernel, and a queue of their results.
#[derive(Debug)]
pub(crate) struct Submissions {
    fd: OwnedFd,
    /// Memory of the indices of both queues, and of the results.
    rings: Area,
    operations: Area,
    layout: Parameters,
    /// The two parts of each operation's buffer. They must not move until the operation is
    /// complete.
    parts: Vec<[Part; 2]>,
    results: Vec<i32>,
}

/// Whether the operations read into their buffers or write from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Read = 1,
    Write = 2,
}

/// A range of memory: `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    address: u64,
    bytes: u64,
}

impl Part {
    pub(crate) fn of(bytes: &[u8]) -> Part {
        Part {
            address: bytes.as_ptr().expose_provenance() as u64,
            bytes: bytes.len() as u64,
        }
    }

    pub(crate) fn of_mut(bytes: &mut [u8]) -> Part {
        Part {
            address: bytes.as_mut_ptr().expose_provenance() as u64,
            bytes: bytes.len() as u64,
        }
    }
}

impl Submissions {
    /// Creates queues for `operations` operations, a power of two.
    ///
    /// # Errors
    /// The kernel has no io_uring (before Linux 5.6), or does not permit it.
    pub(crate) fn new(operations: u32) -> io::Result<Submissions> {
        let mut layout = Parameters::default();
        // SAFETY: the argument is a local structure of the length that the kernel expects.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_io_uring_setup,
                libc::c_ulong::from(operations),
                &raw mut layout,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made it for this process.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        if layout.features & SINGLE_MMAP == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let results = layout.results.entries + layout.result_entries * size_of::<[u64; 2]>() as u32;
        let indices = layout.operations.array + layout.operation_entries * 4;
        let bytes = layout.operation_entries as usize * OPERATION_BYTES;
        Ok(Submissions {
            rings: Area::map(fd.as_fd(), RINGS_AT, results.max(indices) as usize)?,
            operations: Area::map(fd.as_fd(), OPERATIONS_AT, bytes)?,
            fd,
            layout,
            parts: Vec::with_capacity(operations as usize),
            results: Vec::with_capacity(operations as usize),
        })
    }

    /// Tests whether operations on `file` can forbid waiting, by reading zero bytes.
    ///
    /// # Errors
    /// They cannot, e.g. for a TAP device before Linux 6.4.
    pub(crate) fn try_on(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        let nothing = [[Part::of(&[]), Part::of(&[])]];
        // SAFETY: there is no byte that could be read or written.
        let results = unsafe { self.run(file, Direction::Read, nothing.into_iter()) };
        match results.first() {
            Some(result) if *result >= 0 || -result == libc::EAGAIN => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Performs one operation for each pair of parts, in order, in one system call. Returns one
    /// result for each: a number of bytes, or a negated error number.
    ///
    /// # Safety
    /// All parts are memory that may be read or written until this call returns, and there are no
    /// more pairs than the queue has operations.
    pub(crate) unsafe fn run(
        &mut self,
        file: BorrowedFd<'_>,
        direction: Direction,
        parts: impl Iterator<Item = [Part; 2]>,
    ) -> &[i32] {
        self.parts.clear();
        self.parts
            .extend(parts.take(self.layout.operation_entries as usize));
        let count = self.parts.len() as u32;
        self.results.clear();
        self.results.resize(self.parts.len(), -libc::ECANCELED);
        let mask = self.layout.operation_entries - 1;
        let tail = self.layout.operations.tail as usize;
        let begin = self.rings.atomic_u32(tail).load(Ordering::Relaxed);
        for number in 0..count {
            self.put(begin.wrapping_add(number) & mask, file, direction, number);
        }
        let end = begin.wrapping_add(count);
        self.rings.atomic_u32(tail).store(end, Ordering::Release);
        let (mut submitted, mut done) = (0, 0);
        while done < count {
            // SAFETY: takes numbers only; the operations that are submitted are those above, whose
            // memory is there until all of them are done.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_enter,
                    self.fd.as_raw_fd(),
                    count - submitted,
                    count - done,
                    GET_EVENTS,
                    std::ptr::null::<libc::c_void>(),
                    0usize,
                )
            };
            let is_passing = taken >= 0 || is_passing(&io::Error::last_os_error());
            submitted += u32::try_from(taken).unwrap_or(0).min(count - submitted);
            done += self.take_results();
            if !is_passing && done >= submitted {
                // Operations that the kernel has not taken must not stay in the queue for the next
                // call.
                let end = begin.wrapping_add(submitted);
                self.rings.atomic_u32(tail).store(end, Ordering::Release);
                break;
            }
        }
        &self.results
    }

    /// Writes operation `number` and its index into entry `at` of the queue.
    fn put(&self, at: u32, file: BorrowedFd<'_>, direction: Direction, number: u32) {
        let parts = &self.parts[number as usize];
        let operation = Operation {
            code: direction as u8,
            file: file.as_raw_fd(),
            address: parts.as_ptr().expose_provenance() as u64,
            count: 2,
            operation_flags: NOWAIT,
            number: number.into(),
            ..Operation::default()
        };
        let place = at as usize * OPERATION_BYTES;
        let place = self.operations.at(place, OPERATION_BYTES);
        // SAFETY: so many bytes of the area, which is page-aligned, and whose operations the kernel
        // reads in `run` only.
        unsafe { place.cast::<Operation>().write(operation) };
        let index = self.layout.operations.array + 4 * at;
        let index = self.rings.atomic_u32(index as usize);
        index.store(at, Ordering::Relaxed);
    }

    /// Collects the available results. Returns how many there were.
    fn take_results(&mut self) -> u32 {
        let at = &self.layout.results;
        let (head, tail) = (at.head as usize, at.tail as usize);
        let mut next = self.rings.atomic_u32(head).load(Ordering::Relaxed);
        let end = self.rings.atomic_u32(tail).load(Ordering::Acquire);
        let mut count = 0;
        while next != end {
            let place = (next & (self.layout.result_entries - 1)) * 16 + at.entries;
            let number = self.rings.atomic_u64(place as usize);
            let result = self.rings.atomic_u32(place as usize + 8);
            let number = number.load(Ordering::Relaxed) as usize;
            if let Some(to) = self.results.get_mut(number) {
                *to = result.load(Ordering::Relaxed).cast_signed();
            }
            next = next.wrapping_add(1);
            count += 1;
        }
        self.rings.atomic_u32(head).store(next, Ordering::Release);
        count
    }
}

/// Memory shared with the kernel. The kernel chooses its address, so it is not a
/// [`carina_sys::Mapping`].
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: memory of the process without thread affinity, owned by this value.
unsafe impl Send for Area {}

impl Area {
    fn map(fd: BorrowedFd<'_>, at: i64, bytes: usize) -> io::Result<Area> {
        // SAFETY: a new mapping, where the kernel finds room.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                at,
            )
        };
        match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => Ok(Area { base, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of `bytes` bytes at `offset`, which are checked to be inside the area.
    fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset <= self.bytes && bytes <= self.bytes - offset);
        // SAFETY: within the area, as was just checked.
        unsafe { self.base.as_ptr().add(offset) }
    }

    fn atomic_u32(&self, offset: usize) -> &AtomicU32 {
        let at = self.at(offset, 4).cast::<u32>();
        assert!(at.is_aligned());
        // SAFETY: mapped as long as `self` lives, and aligned; the kernel writes it atomically.
        unsafe { AtomicU32::from_ptr(at) }
    }

    fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        let at = self.at(offset, 8).cast::<u64>();
        assert!(at.is_aligned());
        // SAFETY: as in `atomic_u32`.
        unsafe { AtomicU64::from_ptr(at) }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `map`, and no reference outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Whether the error is temporary, so that the call should be repeated.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

/// `struct io_uring_sqe`, with the fields of the operations used here.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Operation {
    code: u8,
    flags: u8,
    priority: u16,
    file: i32,
    offset: u64,
    address: u64,
    count: u32,
    operation_flags: u32,
    number: u64,
    rest: [u64; 3],
}

/// `struct io_uring_params`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Parameters {
    operation_entries: u32,
    result_entries: u32,
    flags: u32,
    thread: [u32; 2],
    features: u32,
    workers: u32,
    reserved: [u32; 3],
    operations: OperationOffsets,
    results: ResultOffsets,
}

/// `struct io_sqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct OperationOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    address: u64,
}

/// `struct io_cqring_offsets`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct ResultOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    count: u32,
    overflow: u32,
    entries: u32,
    flags: u32,
    reserved: u32,
    address: u64,
}

const OPERATION_BYTES: usize = size_of::<Operation>();
const _: () = assert!(OPERATION_BYTES == 64 && size_of::<Parameters>() == 120);

/// Offsets at which the kernel maps the queues and the operations (`linux/io_uring.h`).
const RINGS_AT: i64 = 0;
const OPERATIONS_AT: i64 = 0x1000_0000;

/// Feature flag: both queues are in one mapping.
const SINGLE_MMAP: u32 = 1;

/// `RWF_NOWAIT`: an operation that would wait ends with `EAGAIN`.
const NOWAIT: u32 = 8;

/// Flag of io_uring_enter(2): wait for results.
const GET_EVENTS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_written_and_read_in_order() {
        let mut submissions = match Submissions::new(8) {
            Ok(submissions) => submissions,
            Err(error) => return println!("SKIP: io_uring: {error}"),
        };
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        submissions.try_on(theirs.as_fd()).unwrap();
        // Several rounds, so that the indices wrap around the ends of the queues.
        for round in 0..9_u8 {
            let texts: Vec<[u8; 3]> = (0..5).map(|n| [round, n, 7]).collect();
            let parts = texts.iter().map(|t| [Part::of(&t[..1]), Part::of(&t[1..])]);
            // SAFETY: the texts live beyond the call.
            let sent = unsafe { submissions.run(ours.as_fd(), Direction::Write, parts) };
            assert_eq!(sent, [3; 5]);
            let mut got = [[0_u8; 4]; 7];
            let parts = got.iter_mut().map(|to| {
                let (first, rest) = to.split_at_mut(2);
                [Part::of_mut(first), Part::of_mut(rest)]
            });
            // SAFETY: as above.
            let results = unsafe { submissions.run(theirs.as_fd(), Direction::Read, parts) };
            assert_eq!(results[..5], [3; 5]);
            assert_eq!(results[5..], [-libc::EAGAIN; 2]);
            for (number, bytes) in got[..5].iter().enumerate() {
                assert_eq!(bytes[..3], [round, number as u8, 7]);
            }
        }
    }
}
