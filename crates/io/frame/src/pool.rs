//! Pools of frames.

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use carina_sys::{HUGE_PAGE_BYTES, Pages};

use crate::arena::{Arena, HEADER_BYTES, POOLS_MAX};
use crate::cache;
use crate::frame::Frame;

/// A fixed number of frames of one size, in contiguous memory.
///
/// Clones share the pool. Its memory is freed when the last clone and the last frame are dropped.
#[derive(Clone)]
pub struct Pool {
    owner: Arc<Owner>,
    arena: NonNull<Arena>,
    id: u8,
    frame_bytes: u32,
}

// SAFETY: the arena is `Sync`, and lives as long as `owner`.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

struct Owner {
    arena: NonNull<Arena>,
    frames: usize,
}

// SAFETY: the arena is `Sync`.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

/// Configuration of a pool: number and length of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Number of frames in the pool. Each thread that returns frames keeps up to 512 of them for
    /// itself.
    pub frames: usize,
    /// Longest frame in bytes, 64 to [`PoolConfig::FRAME_BYTES_MAX`].
    pub frame_bytes: usize,
}

impl PoolConfig {
    /// Largest value of [`PoolConfig::frame_bytes`]. It has room for an unsegmented frame of a
    /// guest: 64 KiB of IP and the link header.
    pub const FRAME_BYTES_MAX: usize = 128 << 10;
    /// Largest value of [`PoolConfig::frames`].
    pub const FRAMES_MAX: usize = 1 << 24;

    /// Checks that the values of the configuration are in range.
    ///
    /// # Errors
    /// A value is out of range.
    pub fn check(&self) -> Result<(), PoolError> {
        if !(1..=PoolConfig::FRAMES_MAX).contains(&self.frames) {
            return Err(PoolError::Frames(self.frames));
        }
        if !(64..=PoolConfig::FRAME_BYTES_MAX).contains(&self.frame_bytes) {
            return Err(PoolError::FrameBytes(self.frame_bytes));
        }
        Ok(())
    }
}

impl Default for PoolConfig {
    /// 16,384 frames of up to 2048 bytes.
    fn default() -> PoolConfig {
        PoolConfig {
            frames: 16_384,
            frame_bytes: 2048,
        }
    }
}

/// Why a pool cannot be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The number of frames is out of range; holds the number.
    #[error("a pool of {0} frames: must be 1 to {max}", max = PoolConfig::FRAMES_MAX)]
    Frames(usize),
    /// The length of frames is out of range; holds the length in bytes.
    #[error(
        "a pool with frames of {0} bytes: must be 64 to {max}",
        max = PoolConfig::FRAME_BYTES_MAX
    )]
    FrameBytes(usize),
    /// The process already has the largest number of pools.
    #[error("this process has {POOLS_MAX} pools of frames already, which is the maximum")]
    TooMany,
    /// The system has too little memory for the pool.
    #[error("allocating memory for a pool of {frames} frames: {source}")]
    Memory {
        /// Number of frames that were requested.
        frames: usize,
        /// Why the kernel refused the memory of the pool.
        source: io::Error,
    },
}

/// Headroom of a new frame in bytes, for headers that are added later.
pub const HEADROOM_BYTES: usize = 192;

impl Pool {
    /// Creates a pool.
    ///
    /// # Errors
    /// A value is out of range, the process has too many pools, or there is too little memory.
    pub fn new(config: PoolConfig) -> Result<Pool, PoolError> {
        config.check()?;
        let PoolConfig {
            frames,
            frame_bytes,
        } = config;
        let room = (HEADROOM_BYTES + frame_bytes).next_multiple_of(64);
        let arena = Arena::new(frames, room as u32)
            .map_err(|source| PoolError::Memory { frames, source })?
            .ok_or(PoolError::TooMany)?;
        // SAFETY: the arena was just made and lives until its pool is closed.
        let id = unsafe { arena.as_ref() }.id;
        Ok(Pool {
            owner: Arc::new(Owner { arena, frames }),
            arena,
            id,
            frame_bytes: frame_bytes as u32,
        })
    }

    /// Takes an empty frame with [`HEADROOM_BYTES`] of headroom. `None` if the pool has no frame
    /// left.
    #[must_use]
    #[inline]
    pub fn take(&self) -> Option<Frame> {
        let cell = cache::take(self.id, self.arena)?;
        // SAFETY: the cell was taken from this pool, and has room for the headroom.
        Some(unsafe { Frame::new(cell, self.id, HEADROOM_BYTES as u16, 0) })
    }

    /// Takes a frame and copies `bytes` to it. `None` if the pool has no frame left, or `bytes` is
    /// longer than [`Pool::frame_bytes`].
    #[must_use]
    #[inline]
    pub fn frame_of(&self, bytes: &[u8]) -> Option<Frame> {
        if bytes.len() > self.frame_bytes as usize {
            return None;
        }
        let cell = cache::take(self.id, self.arena)?;
        // SAFETY: the cell was taken from this pool; headroom and `frame_bytes` fit into its room.
        let mut frame =
            unsafe { Frame::new(cell, self.id, HEADROOM_BYTES as u16, bytes.len() as u32) };
        copy(bytes, frame.bytes_mut());
        Some(frame)
    }

    /// Takes a frame and copies another frame with its metadata to it. `None` as for
    /// [`Pool::frame_of`].
    #[must_use]
    #[inline]
    pub fn copy_of(&self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.frame_of(frame.bytes())?;
        if frame.has_metadata() {
            copy.set_metadata(&frame.metadata());
        }
        Some(copy)
    }

    /// Returns the length of the longest frame that [`Pool::frame_of`] makes, in bytes.
    #[must_use]
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes as usize
    }

    /// Returns the number of frames of the pool, in use or free.
    #[must_use]
    pub fn frames(&self) -> usize {
        self.owner.frames
    }

    /// Returns the number of frames that this thread can still take. The call takes a lock, so do
    /// not use it on the data path.
    #[must_use]
    pub fn spare(&self) -> usize {
        // SAFETY: the arena lives as long as this pool.
        unsafe { self.arena.as_ref() }.spare() + cache::kept(self.id)
    }

    /// Returns the kind of pages that the pool's memory has.
    #[must_use]
    pub fn pages(&self) -> Pages {
        // SAFETY: as in `spare`.
        unsafe { self.arena.as_ref() }.pages
    }

    /// Returns address and length of the memory that contains all frames, for registration with a
    /// device or socket that shares it. [`Frame::offset`] counts from this address.
    #[must_use]
    pub fn memory(&self) -> (*mut u8, usize) {
        // SAFETY: as in `spare`.
        unsafe { self.arena.as_ref() }.memory()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: a pool's clones share one owner, so this happens once, and none of them is left.
        // The stack of this thread is emptied first, because it may hold the last cells.
        unsafe {
            let id = self.arena.as_ref().id;
            cache::flush(id);
            Arena::close(self.arena);
        }
    }
}

/// Copies all of `from` to `to`, which has the same length. For a short frame, two copies of a
/// fixed length that may overlap are faster than a call.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    match from.len() {
        32..=64 => copy_ends::<32>(from, to),
        65..=128 => copy_ends::<64>(from, to),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
fn copy_ends<const N: usize>(from: &[u8], to: &mut [u8]) {
    let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) else {
        return;
    };
    if let Some(place) = to.first_chunk_mut::<N>() {
        *place = *first;
    }
    if let Some(place) = to.last_chunk_mut::<N>() {
        *place = *last;
    }
}

const _: () =
    assert!(HEADER_BYTES + HEADROOM_BYTES + PoolConfig::FRAME_BYTES_MAX + 64 <= HUGE_PAGE_BYTES);
