//! The 82574 (e1000e), by "Intel 82574 GbE Controller Family Datasheet", revision 3.4: registers in
//! chapter 10, initialization in section 4.6. QEMU emulates it as `-device e1000e`.

use std::time::Duration;

use super::rss;
use super::{Link, Places, Settings};
use crate::registers::{Registers, wait_for};

const CTRL: u32 = 0x0;
const CTRL_LINK_UP: u32 = 1 << 6;
const CTRL_AUTO_SPEED: u32 = 1 << 5;
const CTRL_RESET: u32 = 1 << 26;
/// Bits of CTRL to clear: forced speed and duplex, inverted loss of signal, removal of tags.
const CTRL_UNWANTED: u32 = 1 << 11 | 1 << 12 | 1 << 7 | 1 << 30;
const STATUS: u32 = 0x8;
const STATUS_LINK: u32 = 1 << 1;
const EECD: u32 = 0x10;
const EECD_READ: u32 = 1 << 9;
const CTRL_EXT: u32 = 0x18;
const CTRL_EXT_DRIVER: u32 = 1 << 28;
const ICR: u32 = 0xc0;
const IMC: u32 = 0xd8;
const RCTL: u32 = 0x100;
const TCTL: u32 = 0x400;
const RXCSUM: u32 = 0x5000;
/// The device writes the hash in place of a checksum.
const RXCSUM_HASH: u32 = 1 << 13;
const RFCTL: u32 = 0x5008;
const RFCTL_EXTENDED: u32 = 1 << 15;
const TXDCTL: u32 = 0x28;
/// Thresholds count descriptors, and a bit that must be set.
const TXDCTL_BITS: u32 = 1 << 24 | 1 << 22;
const MTA: u32 = 0x5200;
const MTA_WORDS: u32 = 128;
const RAL: u32 = 0x5400;
const RAH: u32 = 0x5404;

// Bits of RCTL.
const RCTL_ENABLE: u32 = 1 << 1;
const RCTL_ALL_UNICAST: u32 = 1 << 3;
const RCTL_ALL_MULTICAST: u32 = 1 << 4;
const RCTL_LONG: u32 = 1 << 5;
const RCTL_BROADCAST: u32 = 1 << 15;
const RCTL_NO_FCS: u32 = 1 << 26;

// Bits of TCTL: enable, padding of short frames; collision retries, collision distance and late
// collisions of half duplex.
const TCTL_BITS: u32 = 1 << 1 | 1 << 3 | 0xf << 4 | 0x3f << 12 | 1 << 24;

/// Offset of the registers of a receive ring.
pub(super) const fn receive(queue: u32) -> u32 {
    0x2800 + 0x100 * queue
}

/// Offset of the registers of a send ring.
pub(super) const fn send(queue: u32) -> u32 {
    0x3800 + 0x100 * queue
}

/// Resets the device, whatever its state. Returns false if it does not complete the reset.
pub(super) fn reset(registers: &impl Registers) -> bool {
    registers.write(IMC, u32::MAX);
    registers.write(RCTL, 0);
    registers.write(TCTL, 0);
    registers.set(CTRL, CTRL_RESET);
    // No register may be read during this time. (§4.3.1)
    std::thread::sleep(Duration::from_millis(2));
    if !wait_for(registers, CTRL, CTRL_RESET, 0, RESET) {
        return false;
    }
    // A device without an EEPROM never sets the bit.
    wait_for(registers, EECD, EECD_READ, EECD_READ, RESET);
    registers.write(IMC, u32::MAX);
    registers.read(ICR);
    true
}

/// The MAC address that the device read from its EEPROM.
pub(super) fn mac(registers: &impl Registers) -> [u8; 6] {
    let (low, high) = (registers.read(RAL), registers.read(RAH));
    let [a, b, c, d] = low.to_le_bytes();
    let [e, f, ..] = high.to_le_bytes();
    [a, b, c, d, e, f]
}

/// Sets the registers that the whole family needs before the rings.
pub(super) fn prepare(registers: &impl Registers) {
    registers.clear(CTRL, CTRL_UNWANTED);
    registers.set(CTRL, CTRL_LINK_UP | CTRL_AUTO_SPEED);
    registers.set(CTRL_EXT, CTRL_EXT_DRIVER);
    for word in 0..MTA_WORDS {
        registers.write(MTA + 4 * word, 0);
    }
}

/// Bits of RCTL that select the frames to receive, without the size of buffers.
pub(super) fn filter(settings: &Settings) -> u32 {
    let mut bits = RCTL_ENABLE | RCTL_BROADCAST | RCTL_NO_FCS;
    if settings.is_promiscuous {
        bits |= RCTL_ALL_UNICAST | RCTL_ALL_MULTICAST;
    }
    if settings.frame_bytes > STANDARD_BYTES {
        bits |= RCTL_LONG;
    }
    bits
}

/// Writes the registers that every ring has: address, size, head and tail.
pub(super) fn place_ring(registers: &impl Registers, at: u32, (address, bytes): (u64, u32)) {
    registers.write(at, address as u32);
    registers.write(at + 4, (address >> 32) as u32);
    registers.write(at + 8, bytes);
    registers.write(at + 0x10, 0);
    registers.write(at + 0x18, 0);
}

/// Starts a device after a reset.
pub(super) fn start(registers: &impl Registers, settings: &Settings, places: &Places) {
    prepare(registers);
    registers.write(RFCTL, RFCTL_EXTENDED);
    registers.write(RXCSUM, RXCSUM_HASH);
    match places.len() as u32 {
        1 => rss::gather(registers),
        // The highest bit of a table entry is the queue.
        queues => rss::spread(registers, queues, 1, |queue| queue << 7),
    }
    for (queue, place) in (0..).zip(places) {
        place_ring(registers, receive(queue), place.receive);
        place_ring(registers, send(queue), place.send);
        registers.set(send(queue) + TXDCTL, TXDCTL_BITS);
    }
    registers.write(TCTL, TCTL_BITS);
    registers.write(RCTL, filter(settings) | size_bits(settings.buffer_bytes));
    for (queue, place) in (0..).zip(places) {
        registers.write(receive(queue) + 0x18, place.receive_tail);
    }
}

/// Bits of RCTL for a size of buffers. (§10.2.5.1)
fn size_bits(bytes: usize) -> u32 {
    const EXTENDED: u32 = 1 << 25;
    match bytes {
        4096 => 3 << 16 | EXTENDED,
        8192 => 2 << 16 | EXTENDED,
        16_384 => 1 << 16 | EXTENDED,
        _ => 0,
    }
}

/// Whether the device is set to receive.
pub(super) fn is_running(registers: &impl Registers) -> bool {
    registers.read(RCTL) & RCTL_ENABLE != 0
}

/// Reads whether the link is up, and its speed, from the device.
pub(super) fn link(registers: &impl Registers) -> Link {
    let status = registers.read(STATUS);
    let speed_mbps = match status >> 6 & 3 {
        0 => 10,
        1 => 100,
        _ => 1000,
    };
    Link {
        is_up: status & STATUS_LINK != 0,
        speed_mbps,
    }
}

/// Number of frames since the last call for which there was no buffer, and of frames with errors.
/// Reading clears the counters.
pub(super) fn missed_and_wrong(registers: &impl Registers) -> (u64, u64) {
    const MISSED: u32 = 0x4010;
    /// Counters of errors: FCS, symbol, receive, undersize, fragment, oversize, jabber.
    const WRONG: [u32; 7] = [0x4000, 0x4008, 0x400c, 0x40a4, 0x40a8, 0x40ac, 0x40b0];
    let wrong = WRONG.map(|at| u64::from(registers.read(at)));
    (registers.read(MISSED).into(), wrong.into_iter().sum())
}

/// Longest frame with its tag that is received without enabling long frames, in bytes.
pub(super) const STANDARD_BYTES: usize = 1518;

/// Longest time that a reset may take.
const RESET: Duration = Duration::from_millis(100);
