//! The channel: a single-producer single-consumer message ring for an untrusted peer.
//!
//! One ring carries records in one direction through memory that both ends map. A record is a
//! *piece*: a whole SDU, or a part of one with the MORE mark when further pieces follow. Two
//! rings and four doorbells make a duplex [`channel`]. Threads of one process, which trust each
//! other, have the queue of [`between`].
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
//! The peer may be a hostile guest or application: every word it can write is read once into a
//! local, checked, and only the local is used. A violation is [`Corrupt`], which names it. The
//! payload may change while it is read, so the safe accessors only copy.
//!
//! # Sleeping
//! An end that wants to sleep sets its armed word, orders that before a last look at the peer's
//! index, and sleeps only when that look still shows nothing. The peer moves its index, orders
//! that before a look at the armed word, and rings the doorbell when it is set. [`WakeMode`] says
//! which end pays for the ordering.

mod consumer;
mod copy;
mod fault;
mod few;
mod lease;
mod map;
mod primitive;
mod producer;
mod sdus;
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
pub use crate::few::Few;
pub use crate::lease::{Lease, PieceRef};
pub use crate::map::{HEADER_BYTES, RingMap, State, region_bytes};
pub use crate::producer::{Producer, Slot};
pub use crate::sdus::Sdus;
pub use crate::stretch::{Run, Stretch};

/// Bytes of the header before each payload.
pub const RECORD_HEADER_BYTES: usize = 8;

/// Bytes of ring that a piece of `len` bytes takes: header, payload, padding.
#[must_use]
pub const fn record_cost(len: usize) -> usize {
    RECORD_HEADER_BYTES + len.next_multiple_of(8)
}

/// Which end pays for the order between an index and an armed word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMode {
    /// A full fence at each publish and each release. Needs nothing from the peer; the only
    /// choice across a VM boundary.
    Fence,
    /// No fence at publish or release; the end that is about to sleep issues the kernel's global
    /// expedited barrier instead. Both processes must have called
    /// `carina_sys::membarrier_register` with success.
    Light,
    /// No barrier at either end: loses wakes, which the models must notice.
    #[cfg(feature = "loom")]
    Unordered,
}

impl WakeMode {
    /// Orders the index just stored before the peer's armed word loaded next.
    #[inline]
    pub(crate) fn order_before_look(self) {
        match self {
            Self::Fence => primitive::fence_full(),
            Self::Light => primitive::fence_of_compiler(),
            #[cfg(feature = "loom")]
            Self::Unordered => {}
        }
    }

    /// Orders the armed word just stored before the peer's index loaded next. `false`: could not.
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
