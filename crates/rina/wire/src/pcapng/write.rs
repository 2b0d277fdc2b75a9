//! Encodes blocks.

use alloc::vec::Vec;

use super::{
    INTERFACE, Interface, MAGIC, OPTION_CAME, OPTION_DESCRIPTION, OPTION_END, OPTION_FLAGS,
    OPTION_MISSED, OPTION_NAME, OPTION_TIME_UNIT, PACKET, Packet, SECTION, STATISTICS, Statistics,
    padded,
};

/// Writes one section. It appends the blocks to vectors of the caller.
#[derive(Debug, Default)]
pub struct Writer {
    interfaces: u32,
}

impl Writer {
    /// Starts a file: appends the block that begins a section to `out`.
    pub fn begin(out: &mut Vec<u8>) -> Writer {
        block(out, SECTION, |out| {
            out.extend_from_slice(&MAGIC.to_le_bytes());
            out.extend_from_slice(&1u16.to_le_bytes());
            out.extend_from_slice(&0u16.to_le_bytes());
            out.extend_from_slice(&u64::MAX.to_le_bytes());
        });
        Writer::default()
    }

    /// Adds an interface and returns its number, which packets refer to. Texts that are too long
    /// for an option are truncated.
    pub fn interface(&mut self, out: &mut Vec<u8>, interface: &Interface) -> u32 {
        block(out, INTERFACE, |out| {
            out.extend_from_slice(&interface.link.0.to_le_bytes());
            out.extend_from_slice(&0u16.to_le_bytes());
            out.extend_from_slice(&interface.snap_bytes.to_le_bytes());
            option(out, OPTION_NAME, interface.name.as_bytes());
            option(out, OPTION_DESCRIPTION, interface.description.as_bytes());
            option(out, OPTION_TIME_UNIT, &[9]);
            option(out, OPTION_END, &[]);
        });
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Adds a packet. Returns false and writes nothing when the interface does not exist or the
    /// packet is too long for a reader.
    #[must_use]
    pub fn packet(&self, out: &mut Vec<u8>, packet: &Packet<'_>) -> bool {
        let captured = u32::try_from(packet.bytes.len()).ok();
        let Some(captured) = captured.filter(|_| packet.bytes.len() <= PACKET_BYTES_MAX) else {
            return false;
        };
        if packet.interface >= self.interfaces {
            return false;
        }
        let [high, low] = halves(packet.time_ns);
        block(out, PACKET, |out| {
            let words = [
                packet.interface,
                high,
                low,
                captured,
                packet.original_bytes.max(captured),
            ];
            for word in words {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.extend_from_slice(packet.bytes);
            out.resize(
                out.len() + padded(packet.bytes.len()) - packet.bytes.len(),
                0,
            );
            option(out, OPTION_FLAGS, &packet.direction.bits().to_le_bytes());
            option(out, OPTION_END, &[]);
        });
        true
    }

    /// Appends a statistics block to `out`: the number of packets of an interface so far.
    pub fn statistics(&self, out: &mut Vec<u8>, statistics: &Statistics) {
        let [high, low] = halves(statistics.time_ns);
        block(out, STATISTICS, |out| {
            for word in [statistics.interface, high, low] {
                out.extend_from_slice(&word.to_le_bytes());
            }
            option(out, OPTION_CAME, &statistics.packets.to_le_bytes());
            option(out, OPTION_MISSED, &statistics.missed.to_le_bytes());
            option(out, OPTION_END, &[]);
        });
    }
}

/// Splits a time into two words as files have them, the high word first in either byte order.
fn halves(time_ns: u64) -> [u32; 2] {
    [(time_ns >> 32) as u32, time_ns as u32]
}

/// Longest packet, in bytes: the longest block minus its other fields.
const PACKET_BYTES_MAX: usize = super::BLOCK_BYTES_MAX - 64;

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&length.to_le_bytes());
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(OPTION_BYTES_MAX)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len() + padded(value.len()) - value.len(), 0);
}

const OPTION_BYTES_MAX: usize = 4096;
