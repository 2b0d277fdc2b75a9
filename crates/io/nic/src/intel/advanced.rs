//! What the rings of the 82576 and the 82599 have in common: the advanced descriptor format, and an
//! enable bit that the device confirms. (82576 datasheet, §8.10 and §8.12; 82599 datasheet,
//! §8.2.3.8)

use std::time::Duration;

use super::Settings;
use crate::registers::{Registers, wait_for};

/// Offset of a ring's tail register.
pub(super) const TAIL: u32 = 0x18;

/// Offset of a ring's control register, and the bit that enables the ring.
pub(super) const DCTL: u32 = 0x28;
pub(super) const DCTL_ENABLE: u32 = 1 << 25;

/// Register RXCSUM, and the bit by which the device writes the hash in place of a checksum.
pub(super) const RXCSUM: u32 = 0x5000;
pub(super) const RXCSUM_HASH: u32 = 1 << 13;

/// Longest time that a device may take to set a bit.
pub(super) const LIMIT: Duration = Duration::from_millis(100);

/// Value of a receive ring's SRRCTL: advanced descriptors, and the size of buffers in KiB.
pub(super) fn buffers(settings: &Settings) -> u32 {
    const ADVANCED: u32 = 1 << 25;
    ADVANCED | (settings.buffer_bytes / 1024) as u32
}

/// Enables a ring. Returns false if the device does not confirm it.
pub(super) fn enable(registers: &impl Registers, ring: u32) -> bool {
    registers.set(ring + DCTL, DCTL_ENABLE);
    wait_for(registers, ring + DCTL, DCTL_ENABLE, DCTL_ENABLE, LIMIT)
}
