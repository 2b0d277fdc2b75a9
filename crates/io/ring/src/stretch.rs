//! Raw bytes of a ring, moved from ring to ring without parsing the records.

use std::marker::PhantomData;

use crate::copy::copy;
use crate::lease::Lease;
use crate::map::RingMap;

/// Reserved room in a ring for bytes that are records already. Dropping it leaves the ring
/// unchanged.
#[derive(Debug)]
pub struct Stretch<'a> {
    tail: &'a mut u64,
    to: *mut u8,
    len: usize,
}

impl<'a> Stretch<'a> {
    pub(crate) fn new(tail: &'a mut u64, to: *mut u8, len: usize) -> Self {
        Self { tail, to, len }
    }

    /// Returns the number of reserved bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "a length to fill, not a collection"
    )]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the address of the first reserved byte. [`Stretch::len`] bytes may be written there
    /// until the stretch is committed.
    #[must_use]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.to
    }

    /// Copies the bytes that a lease, usually of another ring, has in view to the start of the
    /// room.
    ///
    /// # Panics
    /// There is less room.
    pub fn copy_from(&mut self, lease: &Lease) {
        let (from, to) = (lease.range(0, lease.len()), self.first(lease.len()));
        // SAFETY: the view is mapped, and there is room for it. They could overlap only for a stale
        // lease of this very ring, which the copy tolerates as it would tolerate a torn source.
        unsafe { copy(from, to, lease.len()) }
    }

    /// Copies `bytes` to the start of the room.
    ///
    /// # Panics
    /// There is less room.
    pub fn write(&mut self, bytes: &[u8]) {
        let to = self.first(bytes.len());
        // SAFETY: there is room for them; `bytes` is private memory.
        unsafe { copy(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Address for writing the first `bytes` bytes, which are checked to have room.
    fn first(&mut self, bytes: usize) -> *mut u8 {
        let room = self.len;
        assert!(bytes <= room, "{bytes} bytes in a stretch of {room}");
        self.to
    }

    /// Adds the first `bytes` bytes to the stream.
    ///
    /// # Panics
    /// There are fewer, or `bytes` is not a multiple of 8.
    pub fn commit(self, bytes: usize) {
        assert!(
            bytes <= self.len && bytes.is_multiple_of(8),
            "commit of {bytes} bytes in a stretch of {}",
            self.len
        );
        *self.tail = self.tail.wrapping_add(bytes as u64);
    }
}

/// Published bytes of a ring that were not read yet. Dropping it leaves the ring unchanged.
#[derive(Debug)]
pub struct Run<'a> {
    read: &'a mut u64,
    from: *const u8,
    offset: usize,
    len: usize,
    ring: PhantomData<&'a RingMap>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(map: &'a RingMap, read: &'a mut u64, len: usize) -> Self {
        map.note_read(*read, len);
        Self {
            from: map.data(*read),
            offset: *read as usize & (map.capacity() - 1),
            read,
            len,
            ring: PhantomData,
        }
    }

    /// Returns the number of bytes; never 0.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a run is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the offset in the ring's data at which the bytes begin. They may wrap to the start
    /// of the data.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the address of the first byte. [`Run::len`] contiguous bytes can be read there.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.from
    }

    /// Steps over the first `bytes` bytes. Returns the index behind them, for
    /// [`Consumer::release_to`](crate::Consumer::release_to).
    ///
    /// # Panics
    /// There are fewer, or `bytes` is not a multiple of 8.
    pub fn step(self, bytes: usize) -> u64 {
        assert!(
            bytes <= self.len && bytes.is_multiple_of(8),
            "step over {bytes} bytes in a run of {}",
            self.len
        );
        *self.read = self.read.wrapping_add(bytes as u64);
        *self.read
    }
}

#[cfg(not(feature = "loom"))]
#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::Arc;

    use carina_sys::Memory;

    use crate::{Consumer, Corrupt, Producer, RingMap, WakeMode};

    const CAPACITY: usize = 4096;

    fn ends() -> (Producer, Consumer) {
        let memory = Memory::anonymous("stretch", CAPACITY).unwrap();
        let map = RingMap::with_own_header(memory.as_fd(), 0, CAPACITY).unwrap();
        let map = Arc::new(map);
        (
            Producer::fresh(Arc::clone(&map), WakeMode::Fence),
            Consumer::of_stream(map, WakeMode::Fence),
        )
    }

    /// Moves up to `bytes` bytes. Returns how many.
    fn carry(from: &mut Consumer, to: &mut Producer, bytes: usize) -> usize {
        let Some(run) = from.run(bytes).unwrap() else {
            return 0;
        };
        let mut stretch = to.stretch(run.len()).unwrap();
        let moved = run.len();
        // SAFETY: both are `moved` bytes long, in different memory.
        unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), stretch.as_mut_ptr(), moved) };
        stretch.commit(moved);
        run.step(moved);
        let _ = (from.release(), to.publish());
        moved
    }

    #[test]
    fn records_cross_in_any_portions_and_wrap() {
        let ((mut write, mut take), (mut put, mut read)) = (ends(), ends());
        let mut next = 0_u32;
        for round in 0..2000_u32 {
            let bytes = round as usize * 37 % 900;
            write.push(&[&vec![round as u8; bytes]], false).unwrap();
            let _ = write.publish();
            while carry(&mut take, &mut put, 8 + 8 * (round as usize % 40)) > 0 {
                while let Some(lease) = read.next().unwrap() {
                    assert_eq!(lease.to_vec(), vec![next as u8; next as usize * 37 % 900]);
                    next += 1;
                }
                let _ = read.release();
            }
        }
        assert_eq!(next, 2000);
    }

    #[test]
    fn a_record_that_could_never_come_whole_is_corrupt() {
        let (mut put, mut read) = ends();
        for (len, is_right) in [(CAPACITY as u32 - 8, true), (CAPACITY as u32 - 7, false)] {
            let mut stretch = put.stretch(8).unwrap();
            // SAFETY: the room has 8 bytes.
            unsafe { stretch.as_mut_ptr().cast::<u32>().write(len) };
            // SAFETY: as above.
            unsafe { stretch.as_mut_ptr().cast::<u32>().add(1).write(0) };
            stretch.commit(8);
            let _ = put.publish();
            let found = read.next();
            if is_right {
                assert!(found.unwrap().is_none())
            } else {
                assert!(matches!(found, Err(Corrupt::Length { .. })))
            }
            while let Some(run) = read.run(CAPACITY).unwrap() {
                let all = run.len();
                run.step(all);
            }
            let _ = read.release();
        }
    }

    #[test]
    fn a_stretch_is_refused_while_the_ring_is_full() {
        let (mut put, mut read) = ends();
        let stretch = put.stretch(CAPACITY).unwrap();
        stretch.commit(CAPACITY);
        let _ = put.publish();
        assert!(put.stretch(8).is_err());
        read.run(64).unwrap().unwrap().step(64);
        let _ = read.release();
        assert_eq!(put.stretch(64).unwrap().len(), 64);
    }
}
