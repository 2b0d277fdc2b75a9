//! The 82576 (igb), as of "Intel 82576EB Gigabit Ethernet Controller Datasheet": chapter 8 for
//! registers, section 4.5 for bringing it up. QEMU has it as `-device igb` from version 8.0 on.
//!
//! What it shares with the 82574 is in [`super::e1000e`].

use super::advanced::{LIMIT, RXCSUM, RXCSUM_HASH, TAIL, buffers, enable};
use super::e1000e::{self, place_ring};
use super::rss;
use super::{Places, Settings};
use crate::registers::{Registers, wait_for};

const CTRL_EXT: u32 = 0x18;
const CTRL_EXT_DRIVER: u32 = 1 << 28;
const MDIC: u32 = 0x20;
const MDIC_READY: u32 = 1 << 28;
/// Writes 0x1200 (negotiate, from the start) to register 0 of PHY 1.
const MDIC_NEGOTIATE: u32 = 1 << 26 | 1 << 21 | 0x1200;
const EIMC: u32 = 0x1528;
const RCTL: u32 = 0x100;
const TCTL: u32 = 0x400;
/// Enabled, short ones filled up.
const TCTL_BITS: u32 = 1 << 1 | 1 << 3 | 0xf << 4 | 0x3f << 12;
/// The longest frame with FCS.
const RLPML: u32 = 0x5004;
const RCTL_LONG: u32 = 1 << 5;
// Of a ring.
const SRRCTL: u32 = 0xc;
const SRRCTL_DROP: u32 = 1 << 31;

const fn receive(queue: u32) -> u32 {
    0xc000 + 0x40 * queue
}

const fn send(queue: u32) -> u32 {
    0xe000 + 0x40 * queue
}

/// Where the tail of a receive ring is.
pub(super) const fn receive_tail(queue: u32) -> u32 {
    receive(queue) + TAIL
}

/// Where the tail of a send ring is.
pub(super) const fn send_tail(queue: u32) -> u32 {
    send(queue) + TAIL
}

/// Stops the device.
pub(super) fn reset(registers: &impl Registers) -> bool {
    registers.write(EIMC, u32::MAX);
    let is_back = e1000e::reset(registers);
    registers.write(EIMC, u32::MAX);
    is_back
}

/// Starts a device that was reset; false when a ring does not start.
pub(super) fn start(registers: &impl Registers, settings: &Settings, places: &Places) -> bool {
    e1000e::prepare(registers);
    registers.set(CTRL_EXT, CTRL_EXT_DRIVER);
    registers.write(MDIC, MDIC_NEGOTIATE);
    // On silicon firmware has done that already.
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
        // With several queues one that is full must not hold up the others.
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
