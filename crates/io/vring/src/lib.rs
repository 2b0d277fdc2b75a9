//! Virtqueues, split and packed, for a peer that is not trusted. (VIRTIO 1.2 §2.7, §2.8)
//!
//! ```text
//!   driver half                                   device half
//!   SplitDriver, PackedDriver                     SplitDevice, PackedDevice
//!     add       buffers become available            take      a burst of chains
//!     publish   the device sees them                complete  one chain, in the order of taking
//!     poll      what the device has used            publish   the driver sees them
//! ```
//!
//! Both layouts of a half implement one trait ([`DeviceRing`], [`DriverRing`]), so that code for
//! them is written once and compiled twice. Both ends work in bursts: an index, or the flags of a
//! first descriptor, is published once for all chains of a burst, and the peer is notified at most
//! once, if it asked for it ([`DeviceRing::wants_signal`], [`DriverRing::wants_kick`]).
//!
//! A ring is in [`GuestMemory`], a table of the regions that the peer shares. A half keeps the
//! table that it was created with; memory stays mapped as long as a half uses it.
//!
//! # Trust
//! The peer may be a hostile guest. Each word that it can write is read once into a local variable,
//! the local value is checked, and only the local value is used. Each half keeps private copies of
//! what it wrote to the ring itself. A violation is a [`Fault`]; afterwards the half must not be
//! used again. Payload may change while it is read: the accessors of [`Taken`] only copy.
//!
//! # Completion
//! The device half completes chains in the order in which it took them, even if the driver did not
//! negotiate that (`VIRTIO_F_IN_ORDER`). The successor of a device that died can therefore continue
//! from the index of the used ring alone. [`SplitInflight`] also records the chains in memory of
//! the front end, as the vhost-user protocol specifies. A packed ring has no such index;
//! [`PackedProgress`] records the position instead. If the driver of a packed ring negotiated
//! in-order use, one used descriptor stands for a burst of chains that were only read.

mod device;
mod dirty;
mod driver;
mod fault;
mod inflight;
mod memory;
mod packed_device;
mod packed_driver;
mod packed_layout;
mod packed_progress;
mod setup;
mod split_device;
mod split_driver;
mod split_layout;
mod taken;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;

pub use carina_ring::SmallBytes;

pub use crate::device::DeviceRing;
pub use crate::dirty::DirtyLog;
pub use crate::driver::{Completion, DriverBuffer, DriverRing, RingFull};
pub use crate::fault::Fault;
pub use crate::inflight::{InflightError, SplitInflight};
pub use crate::memory::{GuestMemory, MemoryError, REGIONS_MAX, Region};
pub use crate::packed_device::PackedDevice;
pub use crate::packed_driver::PackedDriver;
pub use crate::packed_layout::{PackedPosition, packed_bytes};
pub use crate::packed_progress::PackedProgress;
pub use crate::setup::{AddressSpace, RingConfig, SIZE_MAX, SetupError};
pub use crate::split_device::SplitDevice;
pub use crate::split_driver::SplitDriver;
pub use crate::split_layout::split_bytes;
pub use crate::taken::Taken;
