//! The 82576 (igb), by "Intel 82576EB Gigabit Ethernet Controller Datasheet": registers in chapter
//! 8, initialization in section 4.5. QEMU emulates it as `-device igb` from version 8.0 on.
//!
//! [`super::e1000e`] has what it has in common with the 82574.

use super::advanced::{LIMIT, RXCSUM, RXCSUM_HASH, TAIL, buffers, enable};
use super::e1000e::{self, place_ring};
use super::rss;
use super::{Places, Settings};
use crate::registers::{Registers, wait_for};

const CTRL_EXT: u32 = 0x18;
const CTRL_EXT_DRIVER: u32 = 1 << 28;
const MDIC: u32 = 0x20;
const MDIC_READY: u32 = 1 << 28;
/// Value of MDIC that writes 0x1200 (enable and restart autonegotiation) to register 0 of PHY 1.
const MDIC_NEGOTIATE: u32 = 1 << 26 | 1 << 21 | 0x1200;
const EIMC: u32 = 0x1528;
const RCTL: u32 = 0x100;
const TCTL: u32 = 0x400;
/// Enable, padding of short frames, retries and collision distance.
const TCTL_BITS: u32 = 1 << 1 | 1 << 3 | 0xf << 4 | 0x3f << 12;
/// Register for the longest frame with FCS.
const RLPML: u32 = 0x5004;
const RCTL_LONG: u32 = 1 << 5;
// Registers of a ring.
const SRRCTL: u32 = 0xc;
const SRRCTL_DROP: u32 = 1 << 31;

const fn receive(queue: u32) -> u32 {
    0xc000 + 0x40 * queue
}

const fn send(queue: u32) -> u32 {
    0xe000 + 0x40 * queue
}

/// Offset of a receive ring's tail register.
pub(super) const fn receive_tail(queue: u32) -> u32 {
    receive(queue) + TAIL
}

/// Offset of a send ring's tail register.
pub(super) const fn send_tail(queue: u32) -> u32 {
    send(queue) + TAIL
}

/// Resets the device. Returns false if it does not complete the reset.
pub(super) fn reset(registers: &impl Registers) -> bool {
    registers.write(EIMC, u32::MAX);
    let is_back = e1000e::reset(registers);
    registers.write(EIMC, u32::MAX);
    is_back
}

/// Starts a device after a reset. Returns false if a ring does not start.
pub(super) fn start(registers: &impl Registers, settings: &Settings, places: &Places) -> bool {
    e1000e::prepare(registers);
    registers.set(CTRL_EXT, CTRL_EXT_DRIVER);
    registers.write(MDIC, MDIC_NEGOTIATE);
    // On real hardware, firmware has done this already.
    wait_for(registers, MDIC, MDIC_READY, MDIC_READY, LIMIT);
    registers.write(RXCSUM, RXCSUM_HASH);
    match places.len() as u32 {
        1 => rss::gather(registers),
        queues => rss::spread(registers, queues, 2, |queue| queue),
    }
    let mut is_started = true;
    for (queue, place) in (0..).zip(places) {
        let at = receive(queue);
        place_ring(registers, at, place.receive);
        // With several queues, a full queue must drop frames so that it does not block the others.
        let drop = if places.len() > 1 { SRRCTL_DROP } else { 0 };
        registers.write(at + SRRCTL, buffers(settings) | drop);
        is_started &= enable(registers, at);
        place_ring(registers, send(queue), place.send);
        is_started &= enable(registers, send(queue));
    }
    registers.write(RLPML, settings.frame_bytes as u32 + FCS_BYTES);
    registers.write(TCTL, TCTL_BITS);
    registers.write(RCTL, e1000e::filter(settings) | RCTL_LONG);
    for (queue, place) in (0..).zip(places) {
        registers.write(receive_tail(queue), place.receive_tail);
    }
    is_started
}

const FCS_BYTES: u32 = 4;
