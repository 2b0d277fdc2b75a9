//! A frame: the bytes of one packet, and its metadata.

use std::fmt;

use carina_time::Instant;

use crate::arena::{Cell, HEADER_BYTES};
use crate::cache;
use crate::metadata::{Checksum, Known, Metadata, Segmentation};

/// A packet in a cell of a pool. The frame owns the cell; dropping the frame returns the cell to
/// its pool.
pub struct Frame {
    cell: Cell,
    view: View,
}

/// The view of a frame on its cell, packed into one word: a frame thus moves by two loads and
/// stores. Length in bits 0 to 31; offset of the first byte behind the header in bits 32 to 47; id
/// of the pool in bits 48 to 55; known metadata in bits 56 to 63.
#[derive(Clone, Copy)]
struct View(u64);

impl View {
    #[inline]
    fn new(pool: u8, start: u16, len: u32) -> View {
        View(u64::from(len) | u64::from(start) << 32 | u64::from(pool) << 48)
    }

    #[inline]
    fn len(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn start(self) -> u16 {
        (self.0 >> 32) as u16
    }

    #[inline]
    fn pool(self) -> u8 {
        (self.0 >> 48) as u8
    }

    #[inline]
    fn known(self) -> Known {
        Known((self.0 >> 56) as u8)
    }

    #[inline]
    fn set(&mut self, start: u16, len: u32) {
        self.0 = self.0 >> 48 << 48 | u64::from(start) << 32 | u64::from(len);
    }

    #[inline]
    fn set_known(&mut self, what: Known, is_known: bool) {
        let mut known = self.known();
        known.set(what, is_known);
        self.0 = self.0 << 8 >> 8 | u64::from(known.0) << 56;
    }
}

// SAFETY: a frame is the only one that has its cell, whose memory has no thread affinity.
unsafe impl Send for Frame {}
// SAFETY: a shared reference only reads.
unsafe impl Sync for Frame {}

const _: () = assert!(size_of::<Option<Frame>>() == 16);

impl Frame {
    /// # Safety
    /// The caller must own `cell`, which must be of the pool with id `pool`; `start + len` must not
    /// exceed its room.
    #[inline]
    pub(crate) unsafe fn new(cell: Cell, pool: u8, start: u16, len: u32) -> Frame {
        Frame {
            cell,
            view: View::new(pool, start, len),
        }
    }

    /// Returns the length of the frame in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.view.len() as usize
    }

    /// True when the frame has no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.view.len() == 0
    }

    #[inline]
    fn first(&self) -> *mut u8 {
        // SAFETY: `start` lies within the room behind the header, in the same allocation.
        unsafe {
            let cell = self.cell.as_ptr().cast::<u8>();
            cell.add(HEADER_BYTES + usize::from(self.view.start()))
        }
    }

    /// Returns the frame's bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len` is within the room, whose bytes are initialised since the memory
        // was zeroed, and this frame is the only one that has the cell.
        unsafe { std::slice::from_raw_parts(self.first(), self.len()) }
    }

    /// Returns the frame's bytes, for writing.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow of the frame is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len()) }
    }

    /// Returns the number of free bytes in front of the frame's bytes.
    #[must_use]
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.view.start())
    }

    /// Returns the number of free bytes behind the frame's bytes.
    #[must_use]
    #[inline]
    pub fn tailroom(&self) -> usize {
        // SAFETY: the header of an owned cell may be read.
        let room = unsafe { self.cell.as_ref() }.room as usize;
        room - self.headroom() - self.len()
    }

    /// Inserts `header` in front of the frame's bytes. Returns false, and leaves the frame
    /// unchanged, if the headroom is too small.
    #[must_use]
    #[inline]
    pub fn prepend(&mut self, header: &[u8]) -> bool {
        let Some(start) = self.headroom().checked_sub(header.len()) else {
            return false;
        };
        let len = self.len() + header.len();
        self.view.set(start as u16, len as u32);
        self.bytes_mut()[..header.len()].copy_from_slice(header);
        true
    }

    /// Appends `bytes` to the frame. Returns false, and leaves the frame unchanged, if the tailroom
    /// is too small.
    #[must_use]
    pub fn append(&mut self, bytes: &[u8]) -> bool {
        if bytes.len() > self.tailroom() {
            return false;
        }
        let from = self.len();
        self.set_view_len(from + bytes.len());
        self.bytes_mut()[from..].copy_from_slice(bytes);
        true
    }

    /// Removes `count` bytes at the front; all bytes if the frame has fewer.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len());
        let len = (self.len() - count) as u32;
        // The start of a frame is a u16. Beyond its range, the bytes are moved instead.
        if let Ok(start) = u16::try_from(self.headroom() + count) {
            self.view.set(start, len);
        } else {
            self.bytes_mut().copy_within(count.., 0);
            self.view.set(self.view.start(), len);
        }
    }

    /// Cuts the frame to its first `len` bytes. A shorter frame stays unchanged.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.set_view_len(self.len().min(len));
    }

    /// Sets the length of the frame in bytes. Added bytes contain the previous contents of the
    /// cell. Returns false, and leaves the frame unchanged, if the room is too small.
    #[must_use]
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        if len > self.len() + self.tailroom() {
            return false;
        }
        self.set_view_len(len);
        true
    }

    /// Returns the address of the first byte, for code in other languages. The headroom in front
    /// and the tailroom behind also belong to the frame, until the frame is moved or dropped.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.first()
    }

    /// Sets both the headroom and the length of the frame in bytes. Added bytes contain the
    /// previous contents of the cell. Returns false, and leaves the frame unchanged, if the room is
    /// too small.
    #[must_use]
    pub fn reshape(&mut self, headroom: usize, len: usize) -> bool {
        let room = self.headroom() + self.len() + self.tailroom();
        let fits = headroom.checked_add(len).is_some_and(|end| end <= room);
        let Some(start) = u16::try_from(headroom).ok().filter(|_| fits) else {
            return false;
        };
        self.view.set(start, len as u32);
        true
    }

    #[inline]
    fn set_view_len(&mut self, len: usize) {
        self.view.set(self.view.start(), len as u32);
    }

    /// Returns the offset of the frame's first byte in the pool's memory, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        // SAFETY: the header of an owned cell may be read, and its arena lives while it is owned.
        let base = unsafe { self.cell.as_ref().arena.as_ref() }.memory().0;
        self.first().addr() - base.addr()
    }

    /// Returns the number of the frame's cell in its pool. No other frame of the pool has the same
    /// cell at the same time.
    #[must_use]
    pub fn cell_index(&self) -> u32 {
        // SAFETY: the header of an owned cell may be read.
        unsafe { self.cell.as_ref() }.index
    }
}

/// Access to the metadata as a whole.
impl Frame {
    /// Whether any metadata of the frame is known.
    #[must_use]
    #[inline]
    pub fn has_metadata(&self) -> bool {
        self.view.known() != Known::NOTHING
    }

    /// Returns a copy of all metadata of the frame.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        Metadata {
            vlan: self.vlan(),
            checksum: self.checksum(),
            is_checksum_valid: self.is_checksum_valid(),
            segmentation: self.segmentation(),
            hash: self.hash(),
            time: self.time(),
        }
    }

    /// Replaces all metadata of the frame.
    pub fn set_metadata(&mut self, metadata: &Metadata) {
        self.set_vlan(metadata.vlan);
        self.set_checksum(metadata.checksum);
        self.set_checksum_valid(metadata.is_checksum_valid);
        self.set_segmentation(metadata.segmentation);
        self.set_hash(metadata.hash);
        self.set_time(metadata.time);
    }

    /// Whether all checksums of the frame were verified.
    #[must_use]
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        self.view.known().has(Known::CHECKSUM_VALID)
    }

    /// Sets whether all checksums of the frame were verified.
    #[inline]
    pub fn set_checksum_valid(&mut self, is_valid: bool) {
        self.view.set_known(Known::CHECKSUM_VALID, is_valid);
    }
}

macro_rules! metadata {
    ($($(#[$doc:meta])* $field:ident, $setter:ident, $type:ty, $bit:ident;)*) => {
        /// Access to single values of the metadata.
        impl Frame {
            $(
                $(#[$doc])*
                #[must_use]
                #[inline]
                pub fn $field(&self) -> Option<$type> {
                    // SAFETY: the header of an owned cell may be read.
                    let value = || unsafe { self.cell.as_ref() }.$field;
                    self.view.known().has(Known::$bit).then(value)
                }

                /// Sets the metadata that the function of the same name without `set_` returns;
                /// `None` makes it unknown.
                #[inline]
                pub fn $setter(&mut self, value: Option<$type>) {
                    self.view.set_known(Known::$bit, value.is_some());
                    if let Some(value) = value {
                        // SAFETY: the borrow is exclusive, and so is the frame's hold of the cell.
                        unsafe { self.cell.as_mut() }.$field = value;
                    }
                }
            )*
        }
    };
}

metadata! {
    /// Control information of a VLAN tag that is not in the frame's bytes.
    vlan, set_vlan, u16, VLAN;
    /// A checksum that must still be filled in.
    checksum, set_checksum, Checksum, CHECKSUM;
    /// How the frame must still be segmented.
    segmentation, set_segmentation, Segmentation, SEGMENTATION;
    /// Hash over the addresses of the frame's flow.
    hash, set_hash, u32, HASH;
    /// Time at which the frame arrived.
    time, set_time, Instant, TIME;
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the frame owns its cell, which is of the pool with this id, and ends here.
        unsafe { cache::give_back(self.view.pool(), self.cell) };
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Frame");
        out.field("bytes", &self.bytes());
        if self.has_metadata() {
            out.field("metadata", &self.metadata());
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests;
