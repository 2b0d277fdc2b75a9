//! The trait of driver halves, for rings of either layout.

use crate::fault::Fault;

/// Description of a buffer that a driver gives to a device: address, length and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverBuffer {
    /// Address of the buffer, as the device uses it.
    pub address: u64,
    /// Length of the buffer in bytes.
    pub len: u32,
    /// Whether the device writes the buffer. Otherwise the device reads it.
    pub is_writable: bool,
}

impl DriverBuffer {
    /// Describes a buffer that the device reads.
    #[must_use]
    pub const fn readable(address: u64, len: u32) -> DriverBuffer {
        DriverBuffer {
            address,
            len,
            is_writable: false,
        }
    }

    /// Describes a buffer that the device writes.
    #[must_use]
    pub const fn writable(address: u64, len: u32) -> DriverBuffer {
        DriverBuffer {
            address,
            len,
            is_writable: true,
        }
    }
}

/// A chain that the device has returned to the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The id that [`DriverRing::add`] returned. A later `add` may use it again.
    pub id: u16,
    /// Number of bytes that the device reports to have written. It is unchecked and may exceed the
    /// chain.
    pub written: u32,
}

/// Error: the ring has too few free descriptors for the chain. It is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too few free descriptors")]
pub struct RingFull;

/// The driver half of a ring: it makes buffers available to the device.
///
/// It does not access the buffers. It only knows the addresses that the device uses. The owner of
/// the buffers keeps them until [`DriverRing::poll`] returns the chain.
pub trait DriverRing {
    /// Returns the number of free descriptors.
    fn room(&self) -> usize;

    /// Makes a chain of buffers available; readable buffers come first. Returns the chain's id: a
    /// number below the ring's size that no other chain of the device has. The device sees the
    /// chain after [`DriverRing::publish`].
    ///
    /// # Errors
    /// There are fewer free descriptors than buffers.
    ///
    /// # Panics
    /// `buffers` is empty.
    fn add(&mut self, buffers: &[DriverBuffer]) -> Result<u16, RingFull>;

    /// Like [`DriverRing::add`], with one descriptor that refers to an indirect table. The table is
    /// at a guest address, a multiple of 16, with 16 bytes for each buffer. It must stay until the
    /// chain is returned.
    ///
    /// # Errors
    /// No descriptor is free.
    ///
    /// # Panics
    /// `buffers` is empty, or the table is not in the memory of the ring.
    fn add_indirect(&mut self, table: u64, buffers: &[DriverBuffer]) -> Result<u16, RingFull>;

    /// Makes the added chains visible to the device.
    fn publish(&mut self);

    /// Whether the device asked for a kick about the chains that were published since the last
    /// call.
    fn wants_kick(&mut self) -> bool;

    /// Takes the next chain that the device has returned, or `None`.
    ///
    /// # Errors
    /// The device broke the rules. The ring must not be used again.
    fn poll(&mut self) -> Result<Option<Completion>, Fault>;

    /// Asks the device to signal when it returns a chain. Returns false if one is returned already.
    fn arm(&mut self) -> bool;

    /// Asks the device not to signal when it returns chains.
    fn disarm(&mut self);
}
