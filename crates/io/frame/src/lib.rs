//! Frames: packets of network cards, guests and tunnels, in contiguous memory.
//!
//! A [`Pool`] has a fixed number of cells of one size in memory of huge pages. A [`Frame`] owns a
//! cell: its bytes, room in front and behind, and [`Metadata`]. Apps pass the `Frame` itself on,
//! which is 16 bytes; a [`FrameQueue`] is a bounded queue of frames.
//!
//! ```text
//!   Frame: cell, start, len, pool, flags             16 bytes, moves
//!   Cell:  [header 64][ headroom |  bytes  | free ]  stays; a multiple of 64 bytes
//!                     0        start   start+len  room
//! ```
//!
//! Cells are reused last in, first out, so that a burst stays in the nearest cache. A cell spans an
//! odd number of cache lines: frames then spread over all sets of a cache instead of evicting one
//! another. No cell crosses a huge page, so that each is contiguous for a device too.
//!
//! A frame may move to another thread and may be dropped in any thread. Each thread keeps some
//! cells of each pool, and exchanges them with the pool in batches under a lock.
//!
//! Unsafe code is here because a frame has to be a pointer that is moved without touching the
//! memory behind it; the crates above get owned values and slices.

mod arena;
mod cache;
mod frame;
mod metadata;
mod pool;
mod queue;

pub use crate::frame::Frame;
pub use crate::metadata::{Checksum, Metadata, Segmentation, SegmentationKind};
pub use crate::pool::{HEADROOM_BYTES, Pool, PoolConfig, PoolError};
pub use crate::queue::{FrameQueue, Moved};
