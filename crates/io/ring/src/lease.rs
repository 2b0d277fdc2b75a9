//! Pieces of a ring, read in place: held as a lease, or borrowed.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::copy::{append, copy};
use crate::map::RingMap;
use crate::sdus::Sdus;
use crate::{RECORD_HEADER_BYTES, record_cost};

/// A piece of a ring, held in place. The memory stays mapped as long as the lease lives.
///
/// The contents stay the same only until the consumer releases the piece, and only if the producer
/// keeps to the rules. Therefore every accessor copies; check the copy, not the ring.
#[derive(Clone, Debug)]
pub struct Lease {
    map: Arc<RingMap>,
    /// Index of the first payload byte in view.
    at: u64,
    /// Bytes in view, at most the capacity.
    len: u32,
    more: bool,
    /// Index of the record.
    start: u64,
    /// Index behind the record.
    end: u64,
}

impl Lease {
    pub(crate) fn new(map: Arc<RingMap>, start: u64, len: u32, more: bool) -> Self {
        let end = start.wrapping_add(crate::record_cost(len as usize) as u64);
        Self {
            map,
            at: start.wrapping_add(8),
            len,
            more,
            start,
            end,
        }
    }

    /// A lease of several records, with their headers in view.
    pub(crate) fn of_records(map: Arc<RingMap>, start: u64, bytes: u32) -> Self {
        Self {
            map,
            at: start,
            len: bytes,
            more: false,
            start,
            end: start.wrapping_add(u64::from(bytes)),
        }
    }

    /// Counts the SDUs in view: whole records of a ring, one after the other, each a single piece.
    /// `None` if the view holds anything else.
    ///
    /// The producer may change the records afterwards, so a reader of the single SDUs must check
    /// each.
    #[must_use]
    pub fn sdus(&self) -> Option<Sdus> {
        if !self.at.is_multiple_of(8) {
            return None;
        }
        let sdus = Sdus::at(&self.map, self.at, self.len(), self.len());
        (sdus.count > 0 && sdus.cost == self.len).then_some(sdus)
    }

    /// Removes the first SDU from the view and returns a lease of it. `None` if the view does not
    /// begin with a whole SDU.
    #[must_use]
    pub fn take_sdu(&mut self) -> Option<Lease> {
        if !self.at.is_multiple_of(8) {
            return None;
        }
        let len = Sdus::first(&self.map, self.at, self.len())?;
        let mut sdu = self.clone();
        sdu.advance(RECORD_HEADER_BYTES);
        sdu.truncate(len as usize);
        self.advance(record_cost(len as usize));
        Some(sdu)
    }

    /// Makes a lease of `len` bytes at offset `at` of memory that is not a ring
    /// ([`RingMap::foreign`]). While the lease is used, the writer of the memory must not change
    /// these bytes.
    ///
    /// # Panics
    /// The range is not within the memory.
    #[must_use]
    pub fn over(map: &Arc<RingMap>, at: usize, len: usize) -> Self {
        let capacity = map.capacity();
        assert!(
            at <= capacity && len <= capacity - at,
            "view {at}+{len} outside {capacity} bytes"
        );
        Self {
            map: Arc::clone(map),
            at: at as u64,
            len: len as u32,
            more: false,
            start: at as u64,
            end: (at + len) as u64,
        }
    }

    /// Returns the number of bytes in view: the payload without the parts that were cut off.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether no bytes are in view, because the payload is empty or was cut off.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether further pieces of the same SDU follow in the ring.
    #[must_use]
    #[inline]
    pub fn more(&self) -> bool {
        self.more
    }

    /// Returns the index of the record in the ring: the bytes of the stream before it. All records
    /// before it were read earlier.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Returns the index behind the record, for
    /// [`Consumer::release_to`](crate::Consumer::release_to).
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the bytes of ring that the record takes, including the parts that were cut off from
    /// the view.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.end.wrapping_sub(self.start)
    }

    /// Cuts `bytes` bytes off the front of the view.
    ///
    /// # Panics
    /// Fewer bytes are in view.
    pub fn advance(&mut self, bytes: usize) {
        assert!(
            bytes <= self.len(),
            "{bytes} bytes off a view of {}",
            self.len
        );
        self.at = self.at.wrapping_add(bytes as u64);
        self.len -= bytes as u32;
    }

    /// Cuts the view to its first `bytes` bytes. A shorter view stays unchanged.
    pub fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Copies the view to the start of `to`, as many bytes as fit. Returns how many were copied.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let bytes = self.len().min(to.len());
        self.copy_range(0, &mut to[..bytes]);
        bytes
    }

    /// Fills `to` with the bytes of the view from `offset`.
    ///
    /// # Panics
    /// The view ends before that.
    pub fn copy_range(&self, offset: usize, to: &mut [u8]) {
        let from = self.range(offset, to.len());
        // SAFETY: `range` checked that the bytes are in view, thus mapped; `to` is private.
        unsafe { copy(from, to.as_mut_ptr(), to.len()) }
    }

    /// Copies the first `N` bytes; `None` if fewer are in view.
    #[must_use]
    pub fn copy_prefix<const N: usize>(&self) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (N <= self.len()).then(|| {
            self.copy_range(0, &mut bytes);
            bytes
        })
    }

    /// Copies the view to a new vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }

    /// Appends a copy of the view to `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        // SAFETY: `range` checked that the bytes are in view, thus mapped.
        unsafe { append(self.range(0, self.len()), to, self.len()) }
    }

    /// Returns the address of the first byte in view. The peer may write there at any time: read
    /// through the pointer only with volatile accesses or in the kernel, and never create a
    /// reference.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.map.data(self.at)
    }

    /// Address of bytes in view, which are contiguous.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> *const u8 {
        assert!(
            offset <= self.len() && bytes <= self.len() - offset,
            "range {offset}+{bytes} outside a view of {}",
            self.len
        );
        self.map
            .note_read(self.at.wrapping_add(offset as u64), bytes);
        self.map.data(self.at.wrapping_add(offset as u64))
    }
}

/// The next piece of the ring, borrowed. It is cheaper than a [`Lease`], which counts references to
/// the mapping.
#[derive(Debug)]
pub struct PieceRef<'a> {
    from: *const u8,
    len: u32,
    more: bool,
    ring: PhantomData<&'a RingMap>,
}

impl<'a> PieceRef<'a> {
    pub(crate) fn new(map: &'a RingMap, start: u64, len: u32, more: bool) -> Self {
        map.note_read(start.wrapping_add(8), len as usize);
        Self {
            from: map.data(start.wrapping_add(8)),
            len,
            more,
            ring: PhantomData,
        }
    }

    /// Returns the length of the payload in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether the payload is empty.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether further pieces of the same SDU follow in the ring.
    #[must_use]
    #[inline]
    pub fn more(&self) -> bool {
        self.more
    }

    /// Copies the payload to the start of `to`, as many bytes as fit. Returns how many were copied.
    #[inline]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let bytes = self.len().min(to.len());
        // SAFETY: the payload was checked to be inside the ring, `to` is private and long enough.
        unsafe { copy(self.from, to.as_mut_ptr(), bytes) }
        bytes
    }

    /// Fills `to` with the bytes of the payload from `offset`.
    ///
    /// # Panics
    /// The payload ends before that.
    pub fn copy_range(&self, offset: usize, to: &mut [u8]) {
        assert!(
            offset <= self.len() && to.len() <= self.len() - offset,
            "range {offset}+{} outside a payload of {}",
            to.len(),
            self.len
        );
        // SAFETY: checked to be inside the payload, which is inside the ring; `to` is private.
        unsafe { copy(self.from.add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Appends a copy of the payload to `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        // SAFETY: the payload is inside the ring.
        unsafe { append(self.from, to, self.len()) }
    }

    /// Returns the address of the first byte; see [`Lease::as_ptr`].
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.from
    }
}
