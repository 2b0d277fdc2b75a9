//! Receive side scaling: a hash over addresses and ports chooses the queue. (82574 datasheet,
//! §7.1.11; 82576, §7.1.2.10; 82599, §7.1.2.8)

use crate::registers::Registers;

/// Table of queues: 128 entries of 8 bits, the same place in all three devices.
const RETA: u32 = 0x5c00;
const RETA_WORDS: u32 = 32;

/// Key of the hash: 40 bytes.
const RSSRK: u32 = 0x5c80;
const RSSRK_WORDS: u32 = 10;

/// Multiple receive queues command.
const MRQC: u32 = 0x5818;

/// TCP and IP over IPv4 and IPv6 are hashed.
const FIELDS: u32 = 1 << 16 | 1 << 17 | 1 << 20 | 1 << 21;

/// A key of which both directions of a flow get the same hash.
const KEY_WORD: u32 = 0x6d5a_6d5a;

/// Spreads frames over `queues`; `entry` is how the device writes a queue's number into the table,
/// and `mode` the value of the command that says so.
pub(super) fn spread(registers: &impl Registers, queues: u32, mode: u32, entry: fn(u32) -> u32) {
    for word in 0..RSSRK_WORDS {
        registers.write(RSSRK + 4 * word, KEY_WORD);
    }
    for word in 0..RETA_WORDS {
        let entries = (0..4).map(|byte| entry((4 * word + byte) % queues) << (8 * byte));
        registers.write(RETA + 4 * word, entries.sum());
    }
    registers.write(MRQC, mode | FIELDS);
}

/// All frames go to the first queue.
pub(super) fn gather(registers: &impl Registers) {
    registers.write(MRQC, 0);
}
