//! Where a ring lies, and what was negotiated.

use std::ptr::NonNull;

use crate::memory::GuestMemory;

/// Descriptors of the longest ring. (VIRTIO 1.2 §2.7, §2.8.10.1)
pub const SIZE_MAX: u16 = 1 << 15;

/// What an address of a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    /// An address of the guest.
    Guest,
    /// One of the process that manages the guest, as messages of vhost-user have it.
    User,
}

/// A ring of either layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Number of descriptors: up to [`SIZE_MAX`], of a split ring a power of two.
    pub size: u16,
    /// Address of the descriptors.
    pub descriptors: u64,
    /// Address of what the driver writes: the available ring, or its event suppression.
    pub driver: u64,
    /// Address of what the device writes: the used ring, or its event suppression.
    pub device: u64,
    /// What these addresses are.
    pub space: AddressSpace,
    /// `VIRTIO_F_EVENT_IDX` was negotiated.
    pub has_event_index: bool,
    /// `VIRTIO_F_INDIRECT_DESC` was negotiated.
    pub has_indirect: bool,
    /// `VIRTIO_F_IN_ORDER` was negotiated.
    pub is_in_order: bool,
    /// Where the device half begins: 0, or what [`DeviceRing::position`](crate::DeviceRing) gave
    /// before. For a new packed ring it is [`PackedPosition::START`](crate::PackedPosition).
    pub position: u32,
}

/// Why there is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The number of descriptors.
    #[error("ring of {0} descriptors: must be 1 to {SIZE_MAX}, of a split ring a power of two")]
    Size(u16),
    /// A part of the ring is not within one region of memory.
    #[error("{part} of {bytes} bytes at {address:#x}: not in the memory of the guest")]
    OutsideMemory {
        /// Which part.
        part: &'static str,
        /// Where it begins.
        address: u64,
        /// Its bytes.
        bytes: u64,
    },
    /// A part of the ring is not aligned.
    #[error("{part} at {address:#x}: must be a multiple of {alignment}")]
    Alignment {
        /// Which part.
        part: &'static str,
        /// Where it begins.
        address: u64,
        /// What it must be a multiple of.
        alignment: u64,
    },
    /// The position is not within the ring.
    #[error("position {0:#x} is not within the ring")]
    Position(u32),
}

/// A part of a ring: where it is here, and in the guest.
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

    /// Where a part of the ring is. The result is valid as long as `memory` lives.
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
