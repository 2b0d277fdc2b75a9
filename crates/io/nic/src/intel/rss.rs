//! Receive-side scaling: a hash over addresses and ports chooses the queue of a frame. (82574
//! datasheet, §7.1.11; 82576, §7.1.2.10; 82599, §7.1.2.8)

use crate::registers::Registers;

/// Offset of the table of queues: 128 entries of 8 bits, at the same offset in all three devices.
const RETA: u32 = 0x5c00;
const RETA_WORDS: u32 = 32;

/// Offset of the hash key of 40 bytes.
const RSSRK: u32 = 0x5c80;
const RSSRK_WORDS: u32 = 10;

/// Offset of the register "multiple receive queues command".
const MRQC: u32 = 0x5818;

/// Fields to hash: TCP and IP, over IPv4 and IPv6.
const FIELDS: u32 = 1 << 16 | 1 << 17 | 1 << 20 | 1 << 21;

/// A repeated word of the key, by which both directions of a flow get the same hash.
const KEY_WORD: u32 = 0x6d5a_6d5a;

/// Distributes frames over `queues`. `entry` encodes a queue's number for the table, and `mode` is
/// the command value that enables the distribution.
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

/// Sends all frames to the first queue.
pub(super) fn gather(registers: &impl Registers) {
    registers.write(MRQC, 0);
}
