//! What the rings of the 82576 and the 82599 share: a descriptor form of their own, called
//! advanced, and an enable bit that answers. (82576 datasheet, §8.10 and §8.12; 82599 datasheet,
//! §8.2.3.8)

use std::time::Duration;

use super::Settings;
use crate::registers::{Registers, wait_for};

/// Where a ring has its tail.
pub(super) const TAIL: u32 = 0x18;

/// Where a ring has its control register, and the bit that enables it.
pub(super) const DCTL: u32 = 0x28;
pub(super) const DCTL_ENABLE: u32 = 1 << 25;

/// The hash is written in place of a checksum, of RXCSUM.
pub(super) const RXCSUM: u32 = 0x5000;
pub(super) const RXCSUM_HASH: u32 = 1 << 13;

/// How long a device may take for a bit.
pub(super) const LIMIT: Duration = Duration::from_millis(100);

/// What a receive ring's SRRCTL says: advanced descriptors, and the size of buffers in KiB.
pub(super) fn buffers(settings: &Settings) -> u32 {
    const ADVANCED: u32 = 1 << 25;
    ADVANCED | (settings.buffer_bytes / 1024) as u32
}

/// Enables a ring; false when the device does not say that it runs.
pub(super) fn enable(registers: &impl Registers, ring: u32) -> bool {
    registers.set(ring + DCTL, DCTL_ENABLE);
    wait_for(registers, ring + DCTL, DCTL_ENABLE, DCTL_ENABLE, LIMIT)
}
