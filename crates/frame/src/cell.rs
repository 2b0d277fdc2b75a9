//! The memory of one frame: a header of a cache line, then room for bytes.

use std::ptr::NonNull;

use carina_time::Instant;

use crate::arena::Arena;
use crate::metadata::{Checksum, Segmentation};

/// The first cache line of a cell. `arena`, `index` and `room` are written when the pool is made
/// and never after.
#[repr(C, align(64))]
pub(crate) struct Header {
    pub(crate) arena: NonNull<Arena>,
    /// Number of the cell in its pool.
    pub(crate) index: u32,
    /// Bytes behind the header.
    pub(crate) room: u32,
    pub(crate) time: Instant,
    pub(crate) hash: u32,
    pub(crate) vlan: u16,
    pub(crate) checksum: Checksum,
    pub(crate) segmentation: Segmentation,
}

/// A cell; its owner alone may touch the memory.
pub(crate) type Cell = NonNull<Header>;

pub(crate) const HEADER_BYTES: usize = 64;

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);
