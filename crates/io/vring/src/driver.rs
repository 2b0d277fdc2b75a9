//! The driver half of a ring, of either layout.

use crate::fault::Fault;

/// A buffer that a driver gives to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverBuffer {
    /// Its address, as the device knows it.
    pub address: u64,
    /// Its bytes.
    pub len: u32,
    /// The device writes it, instead of reading it.
    pub is_writable: bool,
}

impl DriverBuffer {
    /// A buffer that the device reads.
    #[must_use]
    pub const fn readable(address: u64, len: u32) -> DriverBuffer {
        DriverBuffer {
            address,
            len,
            is_writable: false,
        }
    }

    /// A buffer that the device writes.
    #[must_use]
    pub const fn writable(address: u64, len: u32) -> DriverBuffer {
        DriverBuffer {
            address,
            len,
            is_writable: true,
        }
    }
}

/// A chain that the device has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What [`DriverRing::add`] returned. It may be returned again by a later `add`.
    pub id: u16,
    /// Bytes that the device says it has written. Nothing vouches for it: it may be more than the
    /// chain has.
    pub written: u32,
}

/// The ring has too few free descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too few free descriptors")]
pub struct RingFull;

/// The end of a ring that makes buffers available.
///
/// It does not touch the buffers: their addresses are what the device knows them by, and their
/// owner keeps them until [`DriverRing::poll`] returns the chain.
pub trait DriverRing {
    /// Descriptors that are free.
    fn room(&self) -> usize;

    /// Makes a chain of buffers available, readable ones first; returns its identity, which is
    /// below the ring's size and of no other chain that the device has. The device sees it after
    /// [`DriverRing::publish`].
    ///
    /// # Errors
    /// Fewer descriptors are free than there are buffers.
    ///
    /// # Panics
    /// Without a buffer.
    fn add(&mut self, buffers: &[DriverBuffer]) -> Result<u16, RingFull>;

    /// As [`DriverRing::add`], by one descriptor that leads to a table. The table lies at a guest's
    /// address, a multiple of 16, has 16 bytes for each buffer, and must stay until the chain is
    /// returned.
    ///
    /// # Errors
    /// No descriptor is free.
    ///
    /// # Panics
    /// Without a buffer, or when the table is not in the memory of the ring.
    fn add_indirect(&mut self, table: u64, buffers: &[DriverBuffer]) -> Result<u16, RingFull>;

    /// Shows the device what was added.
    fn publish(&mut self);

    /// Whether the device is to be kicked for what was published since the last call.
    fn wants_kick(&mut self) -> bool;

    /// The next chain that the device has returned.
    ///
    /// # Errors
    /// What the device did wrong. The ring must not be used again.
    fn poll(&mut self) -> Result<Option<Completion>, Fault>;

    /// Asks the device to signal when it returns a chain. False when one is there already.
    fn arm(&mut self) -> bool;

    /// Asks the device not to signal.
    fn disarm(&mut self);
}
