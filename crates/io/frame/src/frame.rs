//! A frame: the bytes of one packet, and what is known of them.

use std::fmt;

use carina_time::Instant;

use crate::arena::{Cell, HEADER_BYTES};
use crate::cache;
use crate::metadata::{Checksum, Known, Metadata, Segmentation};

/// A packet in a cell of a pool, which it owns: the cell returns to its pool with the frame.
pub struct Frame {
    cell: Cell,
    view: View,
}

/// Length in bits 0 to 31, start of the bytes behind the header in 32 to 47, number of the pool in
/// 48 to 55, known metadata in 56 to 63: one word, so that a frame moves by two loads and stores.
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

    /// Length in bytes.
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

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `start + len` is within the room, whose bytes are initialised since the memory
        // was zeroed, and this frame is the only one that has the cell.
        unsafe { std::slice::from_raw_parts(self.first(), self.len()) }
    }

    /// The bytes, to be changed.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the borrow of the frame is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.first(), self.len()) }
    }

    /// Free bytes in front.
    #[must_use]
    #[inline]
    pub fn headroom(&self) -> usize {
        usize::from(self.view.start())
    }

    /// Free bytes behind.
    #[must_use]
    #[inline]
    pub fn tailroom(&self) -> usize {
        // SAFETY: the header of an owned cell may be read.
        let room = unsafe { self.cell.as_ref() }.room as usize;
        room - self.headroom() - self.len()
    }

    /// Puts `header` in front; false, and the frame as it was, when the headroom is too small.
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

    /// Puts `bytes` behind; false, and the frame as it was, when the room is too small.
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

    /// Takes bytes off the front; more than there are empty the frame.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        let count = count.min(self.len());
        let len = (self.len() - count) as u32;
        // The start of a frame is a u16; bytes beyond that are moved instead.
        if let Ok(start) = u16::try_from(self.headroom() + count) {
            self.view.set(start, len);
        } else {
            self.bytes_mut().copy_within(count.., 0);
            self.view.set(self.view.start(), len);
        }
    }

    /// Cuts to the first `len` bytes; a shorter frame stays as it is.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.set_view_len(self.len().min(len));
    }

    /// Makes the frame `len` bytes long; bytes that are added hold what was there before. False,
    /// and the frame as it was, when the room is too small.
    #[must_use]
    #[inline]
    pub fn set_len(&mut self, len: usize) -> bool {
        if len > self.len() + self.tailroom() {
            return false;
        }
        self.set_view_len(len);
        true
    }

    /// Where the bytes begin, for code that is not Rust. The headroom in front and the tailroom
    /// behind are the frame's as well, for as long as the frame is neither moved on nor dropped.
    #[inline]
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.first()
    }

    /// Makes the frame the `len` bytes behind `headroom` free ones; bytes that are added hold what
    /// was there before. False, and the frame as it was, when the room is too small.
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

    /// Distance in bytes from the start of the pool's memory to the first byte of the frame.
    #[must_use]
    pub fn offset(&self) -> usize {
        // SAFETY: the header of an owned cell may be read, and its arena lives while it is owned.
        let base = unsafe { self.cell.as_ref().arena.as_ref() }.memory().0;
        self.first().addr() - base.addr()
    }

    /// Number of the frame's cell in its pool: no other frame of the pool has it at the same time.
    #[must_use]
    pub fn cell_index(&self) -> u32 {
        // SAFETY: the header of an owned cell may be read.
        unsafe { self.cell.as_ref() }.index
    }
}

/// Metadata.
impl Frame {
    /// False when all metadata is unknown.
    #[must_use]
    #[inline]
    pub fn has_metadata(&self) -> bool {
        self.view.known() != Known::NOTHING
    }

    /// All metadata.
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

    /// Replaces all metadata.
    pub fn set_metadata(&mut self, metadata: &Metadata) {
        self.set_vlan(metadata.vlan);
        self.set_checksum(metadata.checksum);
        self.set_checksum_valid(metadata.is_checksum_valid);
        self.set_segmentation(metadata.segmentation);
        self.set_hash(metadata.hash);
        self.set_time(metadata.time);
    }

    /// All checksums were checked and are right.
    #[must_use]
    #[inline]
    pub fn is_checksum_valid(&self) -> bool {
        self.view.known().has(Known::CHECKSUM_VALID)
    }

    /// Says whether all checksums were checked and are right.
    #[inline]
    pub fn set_checksum_valid(&mut self, is_valid: bool) {
        self.view.set_known(Known::CHECKSUM_VALID, is_valid);
    }
}

macro_rules! metadata {
    ($($(#[$doc:meta])* $field:ident, $setter:ident, $type:ty, $bit:ident;)*) => {
        /// Single values of the metadata.
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

                /// Sets or forgets what the function of the same name returns.
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
    /// Tag control information of a VLAN tag beside the bytes.
    vlan, set_vlan, u16, VLAN;
    /// A checksum that is still to be filled in.
    checksum, set_checksum, Checksum, CHECKSUM;
    /// How the frame is still to be cut.
    segmentation, set_segmentation, Segmentation, SEGMENTATION;
    /// Hash over the flow's addresses.
    hash, set_hash, u32, HASH;
    /// When the frame arrived.
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
