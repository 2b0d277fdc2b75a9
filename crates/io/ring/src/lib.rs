//! The ring: a single-producer single-consumer message queue in shared memory, for an untrusted
//! peer.
//!
//! One ring carries records in one direction through memory that both ends map. A record is a
//! *piece*: a whole SDU, or a part of one. The MORE mark says that more pieces of the SDU follow.
//! Two rings and four doorbells make a duplex [`channel`]. Threads of one process, which trust each
//! other, use the queue of [`between`].
//!
//! ```text
//! offset   0x0000  magic, version, capacity      informational, never trusted
//!          0x0080  tail u64, state u32           written by the producer
//!          0x0100  consumer_armed u32            set by the consumer, cleared by either
//!          0x0180  head u64                      written by the consumer
//!          0x0200  producer_armed u32,           set by the producer, cleared by either
//!                  producer_want u64             written by the producer
//!          0x1000  data: `capacity` bytes, mapped twice in a row
//!
//! record   len u32 | flags u32 (bit 0: MORE) | payload | padding to 8 bytes
//! ```
//!
//! Indices run freely (they never wrap at the capacity), so `tail - head` is the fill. All words
//! are little-endian, the native order of every machine this runs on. Because the data is mapped
//! twice in a row, every record is contiguous in memory wherever it starts.
//!
//! # Trust
//! The peer may be a hostile guest or application. Each word that it can write is read once into a
//! local variable, the local value is checked, and only the local value is used. A violation is a
//! [`Corrupt`] that names it. The payload may change while it is read, so the safe accessors only
//! copy.
//!
//! # Sleeping
//! An end that wants to sleep sets its armed word, then reads the peer's index a last time, and
//! sleeps only if the index shows nothing to do. The peer moves its index, then reads the armed
//! word, and rings the doorbell if the word is set. On both sides the store must be ordered before
//! the load. [`WakeMode`] says which end pays for the ordering.

mod consumer;
mod copy;
mod fault;
mod lease;
mod map;
mod primitive;
mod producer;
mod sdus;
mod small_bytes;
mod stretch;

pub mod bare;
pub mod between;
#[cfg(not(feature = "loom"))]
pub mod channel;
#[cfg(all(not(feature = "loom"), any(test, feature = "fuzzing")))]
pub mod fuzz;
pub mod waiting;

pub use crate::consumer::Consumer;
pub use crate::copy::{copy as copy_shared, copy_slice};
pub use crate::fault::{Corrupt, Refused};
pub use crate::lease::{Lease, PieceRef};
pub use crate::map::{HEADER_BYTES, RingMap, State, region_bytes};
pub use crate::producer::{Producer, Slot};
pub use crate::sdus::Sdus;
pub use crate::small_bytes::SmallBytes;
pub use crate::stretch::{Run, Stretch};

/// Size in bytes of the header in front of the payload of each record.
pub const RECORD_HEADER_BYTES: usize = 8;

/// Returns the bytes of ring that a piece of `len` bytes takes: header, payload and padding.
#[must_use]
pub const fn record_cost(len: usize) -> usize {
    RECORD_HEADER_BYTES + len.next_multiple_of(8)
}

/// How the two ends of a ring order their stores of indices and armed words before the loads that
/// follow, so that no wake-up is lost; and which end pays for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMode {
    /// A full fence at each publish and each release. It needs nothing from the peer and is the
    /// only choice across a VM boundary.
    Fence,
    /// No fence at publish or release. Instead, the end that is about to sleep issues the kernel's
    /// global expedited barrier. Both processes must have called `carina_sys::membarrier_register`
    /// successfully.
    Light,
    /// No barrier at either end. This mode loses wake-ups; it exists to test that the loom models
    /// detect that.
    #[cfg(feature = "loom")]
    Unordered,
}

impl WakeMode {
    /// Orders the preceding store of an index before the following load of the peer's armed word.
    #[inline]
    pub(crate) fn order_before_look(self) {
        match self {
            Self::Fence => primitive::fence_full(),
            Self::Light => primitive::fence_of_compiler(),
            #[cfg(feature = "loom")]
            Self::Unordered => {}
        }
    }

    /// Orders the preceding store of the armed word before the following load of the peer's index.
    /// Returns `false` if the kernel refused the barrier.
    #[must_use]
    pub(crate) fn order_before_sleep(self) -> bool {
        match self {
            Self::Fence => {
                primitive::fence_full();
                true
            }
            Self::Light => primitive::fence_of_everyone(),
            #[cfg(feature = "loom")]
            Self::Unordered => true,
        }
    }
}
