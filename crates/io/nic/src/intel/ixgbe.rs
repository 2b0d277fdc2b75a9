//! The 82599 (ixgbe), by "Intel 82599 10 GbE Controller Datasheet", revision 3.4: registers in
//! chapter 8, initialization in section 4.6.
//!
//! **It has not been run on silicon.** No emulator has this device. Tests against a model of the
//! registers check the rings, and that the steps come in the order of section 4.6.

use std::time::Duration;

use super::advanced::{DCTL, LIMIT, RXCSUM, RXCSUM_HASH, TAIL, buffers, enable};
use super::e1000e::place_ring;
use super::rss;
use super::{Link, Places, Settings};
use crate::registers::{Registers, wait_for};

const CTRL: u32 = 0x0;
/// Bits of CTRL that reset the link and the device.
const CTRL_RESET: u32 = 1 << 3 | 1 << 26;
const CTRL_EXT: u32 = 0x18;
const CTRL_EXT_NO_SNOOP_OFF: u32 = 1 << 16;
const CTRL_EXT_DRIVER: u32 = 1 << 28;
const EIMC: u32 = 0x888;
const EEC: u32 = 0x1_0010;
const EEC_READ: u32 = 1 << 9;
const RDRXCTL: u32 = 0x2f00;
const RDRXCTL_STRIP_FCS: u32 = 1 << 1;
const RDRXCTL_READY: u32 = 1 << 3;
const RXCTRL: u32 = 0x3000;
const RXCTRL_ENABLE: u32 = 1 << 0;
const RXPBSIZE: u32 = 0x3c00;
const HLREG0: u32 = 0x4240;
/// Bits of HLREG0: add FCS, strip FCS, pad short frames.
const HLREG0_BITS: u32 = 1 << 0 | 1 << 1 | 1 << 10;
const HLREG0_JUMBO: u32 = 1 << 2;
const MAXFRS: u32 = 0x4268;
const AUTOC: u32 = 0x42a0;
const AUTOC_MODE: u32 = 7 << 13;
/// Link mode 10 GbE by SFI, for an SFP+ module.
const AUTOC_SFI: u32 = 3 << 13;
const AUTOC_RESTART: u32 = 1 << 12;
const LINKS: u32 = 0x42a4;
const LINKS_UP: u32 = 1 << 30;
const RTTDCS: u32 = 0x4900;
const RTTDCS_STOPPED: u32 = 1 << 6;
const DMATXCTL: u32 = 0x4a80;
const DMATXCTL_ENABLE: u32 = 1 << 0;
const FCTRL: u32 = 0x5080;
const FCTRL_BROADCAST: u32 = 1 << 10;
const FCTRL_ALL: u32 = 1 << 8 | 1 << 9;
const RAL: u32 = 0x5400;
const DTXMXSZRQ: u32 = 0x8100;
const TXPBSIZE: u32 = 0xcc00;
// Registers of a ring.
const SRRCTL: u32 = 0x14;
const SRRCTL_DROP: u32 = 1 << 28;
/// Prefetch threshold of 36 descriptors, host threshold of 8; descriptors are written back one by
/// one.
const TXDCTL_THRESHOLDS: u32 = 36 | 8 << 8;
/// The receive ring's DCA control register, in which a bit must be cleared. (§8.2.3.11.1)
const DCA_RXCTRL: u32 = 0xc;
const DCA_RXCTRL_RESERVED: u32 = 1 << 12;

/// Number of bytes of the BAR that the driver uses.
pub(super) const BAR_BYTES: usize = 0x2_0000;

const fn receive(queue: u32) -> u32 {
    if queue < 64 {
        0x1000 + 0x40 * queue
    } else {
        0xd000 + 0x40 * (queue - 64)
    }
}

const fn send(queue: u32) -> u32 {
    0x6000 + 0x40 * queue
}

const fn srrctl(queue: u32) -> u32 {
    if queue < 16 {
        0x2100 + 4 * queue
    } else {
        receive(queue) + SRRCTL
    }
}

/// Offset of a receive ring's tail register.
pub(super) const fn receive_tail(queue: u32) -> u32 {
    receive(queue) + TAIL
}

/// Offset of a send ring's tail register.
pub(super) const fn send_tail(queue: u32) -> u32 {
    send(queue) + TAIL
}

/// Resets the device, and waits until it has read its EEPROM and initialized its memory. (§4.6.3)
pub(super) fn reset(registers: &impl Registers) -> bool {
    registers.write(EIMC, u32::MAX);
    registers.clear(RXCTRL, RXCTRL_ENABLE);
    registers.set(CTRL, CTRL_RESET);
    std::thread::sleep(Duration::from_millis(10));
    let is_back = wait_for(registers, CTRL, CTRL_RESET, 0, LIMIT);
    registers.write(EIMC, u32::MAX);
    is_back
        && wait_for(registers, EEC, EEC_READ, EEC_READ, LIMIT)
        && wait_for(registers, RDRXCTL, RDRXCTL_READY, RDRXCTL_READY, LIMIT)
}

/// The MAC address that the device read from its EEPROM.
pub(super) fn mac(registers: &impl Registers) -> [u8; 6] {
    let [a, b, c, d] = registers.read(RAL).to_le_bytes();
    let [e, f, ..] = registers.read(RAL + 4).to_le_bytes();
    [a, b, c, d, e, f]
}

/// Starts a device after a reset. Returns false if a ring does not start.
pub(super) fn start(registers: &impl Registers, settings: &Settings, places: &Places) -> bool {
    registers.write(AUTOC, registers.read(AUTOC) & !AUTOC_MODE | AUTOC_SFI);
    registers.set(AUTOC, AUTOC_RESTART);
    registers.set(CTRL_EXT, CTRL_EXT_DRIVER);
    start_receiving(registers, settings, places);
    start_sending(registers, places);
    let mut is_started = true;
    for (queue, place) in (0..).zip(places) {
        for at in [receive(queue), send(queue)] {
            is_started &= enable(registers, at);
        }
        // A ring takes buffers only after it was enabled. (§4.6.7)
        registers.write(receive_tail(queue), place.receive_tail);
    }
    is_started
}

/// Starts to receive, by §4.6.7.
fn start_receiving(registers: &impl Registers, settings: &Settings, places: &Places) {
    registers.clear(RXCTRL, RXCTRL_ENABLE);
    registers.write(RXPBSIZE, 128 << 10);
    for buffer in 1..8 {
        registers.write(RXPBSIZE + 4 * buffer, 0);
    }
    registers.set(HLREG0, HLREG0_BITS);
    registers.set(RDRXCTL, RDRXCTL_STRIP_FCS);
    let all = if settings.is_promiscuous {
        FCTRL_ALL
    } else {
        0
    };
    registers.write(FCTRL, FCTRL_BROADCAST | all);
    registers.set(RXCSUM, RXCSUM_HASH);
    registers.write(MAXFRS, (settings.frame_bytes as u32 + 4) << 16);
    registers.set(HLREG0, HLREG0_JUMBO);
    match places.len() as u32 {
        1 => rss::gather(registers),
        queues => rss::spread(registers, queues, 1, |queue| queue),
    }
    for (queue, place) in (0..).zip(places) {
        place_ring(registers, receive(queue), place.receive);
        registers.write(srrctl(queue), buffers(settings) | SRRCTL_DROP);
        registers.clear(receive(queue) + DCA_RXCTRL, DCA_RXCTRL_RESERVED);
    }
    registers.set(CTRL_EXT, CTRL_EXT_NO_SNOOP_OFF);
    registers.set(RXCTRL, RXCTRL_ENABLE);
}

/// Starts to send, by §4.6.8.
fn start_sending(registers: &impl Registers, places: &Places) {
    registers.write(TXPBSIZE, 40 << 10);
    for buffer in 1..8 {
        registers.write(TXPBSIZE + 4 * buffer, 0);
    }
    registers.write(DTXMXSZRQ, 0xffff);
    registers.clear(RTTDCS, RTTDCS_STOPPED);
    for (queue, place) in (0..).zip(places) {
        place_ring(registers, send(queue), place.send);
        registers.write(send(queue) + DCTL, TXDCTL_THRESHOLDS);
    }
    registers.set(DMATXCTL, DMATXCTL_ENABLE);
}

/// Whether the device is set to receive.
pub(super) fn is_running(registers: &impl Registers) -> bool {
    registers.read(RXCTRL) & RXCTRL_ENABLE != 0
}

/// Reads whether the link is up, and its speed, from the device.
pub(super) fn link(registers: &impl Registers) -> Link {
    let links = registers.read(LINKS);
    let speed_mbps = match links >> 28 & 3 {
        1 => 100,
        2 => 1000,
        _ => 10_000,
    };
    Link {
        is_up: links & LINKS_UP != 0,
        speed_mbps,
    }
}

/// Number of frames since the last call that were missed in each of 8 packet buffers, and of frames
/// with errors of FCS, bytes and lengths.
pub(super) fn missed_and_wrong(registers: &impl Registers) -> (u64, u64) {
    const MISSED: u32 = 0x3fa0;
    const WRONG: [u32; 6] = [0x4000, 0x4004, 0x4040, 0x40a4, 0x40ac, 0x40b0];
    let missed = (0..8).map(|buffer| u64::from(registers.read(MISSED + 4 * buffer)));
    let wrong = WRONG.map(|at| u64::from(registers.read(at)));
    (missed.sum(), wrong.into_iter().sum())
}
