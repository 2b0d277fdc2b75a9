//! The configuration of a ring: its addresses, and the negotiated features.

use std::ptr::NonNull;

use crate::memory::GuestMemory;

/// Largest number of descriptors of a ring. (VIRTIO 1.2 §2.7, §2.8.10.1)
pub const SIZE_MAX: u16 = 1 << 15;

/// The address space in which the addresses of a ring are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    /// Addresses of the guest.
    Guest,
    /// Addresses of the process that manages the guest, as in messages of vhost-user.
    User,
}

/// The configuration of a virtqueue of either layout: addresses and negotiated features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Number of descriptors of the ring: at most [`SIZE_MAX`], and a power of two for a split
    /// ring.
    pub size: u16,
    /// Address of the ring's descriptor table, in the address space `space`.
    pub descriptors: u64,
    /// Address of the part that the driver writes: the available ring, or its event suppression.
    pub driver: u64,
    /// Address of the part that the device writes: the used ring, or its event suppression.
    pub device: u64,
    /// The address space in which the three addresses are given.
    pub space: AddressSpace,
    /// Whether driver and device have negotiated `VIRTIO_F_EVENT_IDX`.
    pub has_event_index: bool,
    /// Whether driver and device have negotiated `VIRTIO_F_INDIRECT_DESC`.
    pub has_indirect: bool,
    /// Whether driver and device have negotiated `VIRTIO_F_IN_ORDER`.
    pub is_in_order: bool,
    /// The position at which the device half begins: 0 for a new split ring,
    /// [`PackedPosition::START`](crate::PackedPosition) for a new packed ring, or a value that
    /// [`DeviceRing::position`](crate::DeviceRing) returned.
    pub position: u32,
}

/// Why a ring cannot be set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// This number of descriptors is not allowed for the ring.
    #[error("ring of {0} descriptors: must be 1 to {SIZE_MAX}, of a split ring a power of two")]
    Size(u16),
    /// A part of the ring is not within a single region of memory.
    #[error("{part} of {bytes} bytes at {address:#x}: not in the memory of the guest")]
    OutsideMemory {
        /// Name of the part of the ring, such as its descriptor table.
        part: &'static str,
        /// First address of the part, in the guest's or the user's address space.
        address: u64,
        /// Size of the part in bytes.
        bytes: u64,
    },
    /// A part of the ring is not aligned.
    #[error("{part} at {address:#x}: must be a multiple of {alignment}")]
    Alignment {
        /// Name of the part of the ring, such as its descriptor table.
        part: &'static str,
        /// First address of the part.
        address: u64,
        /// The required alignment in bytes.
        alignment: u64,
    },
    /// The position is not within the ring.
    #[error("position {0:#x} is not within the ring")]
    Position(u32),
}

/// A part of a ring: its address in this process and in the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) host: NonNull<u8>,
    pub(crate) guest: u64,
}

impl RingConfig {
    pub(crate) fn check_size(&self, is_split: bool) -> Result<(), SetupError> {
        let is_right =
            (1..=SIZE_MAX).contains(&self.size) && (!is_split || self.size.is_power_of_two());
        is_right.then_some(()).ok_or(SetupError::Size(self.size))
    }

    /// Finds a part of the ring in memory. The result is valid as long as `memory` lives.
    pub(crate) fn part(
        &self,
        memory: &GuestMemory,
        part: &'static str,
        address: u64,
        bytes: u64,
        alignment: u64,
    ) -> Result<Part, SetupError> {
        let found = match self.space {
            AddressSpace::Guest => memory
                .guest(address, bytes, &mut 0)
                .map(|host| (host, address)),
            AddressSpace::User => memory.user(address, bytes),
        };
        let (host, guest) = found.ok_or(SetupError::OutsideMemory {
            part,
            address,
            bytes,
        })?;
        if !(host.as_ptr().addr() as u64).is_multiple_of(alignment) {
            return Err(SetupError::Alignment {
                part,
                address,
                alignment,
            });
        }
        Ok(Part { host, guest })
    }
}
