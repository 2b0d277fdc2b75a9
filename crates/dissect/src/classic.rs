//! Capture files of the older kind (pcap), with one interface.
//!
//! ```text
//!   magic 4 | version 2 + 2 | zone 4 | accuracy 4 | longest packet 4 | link type 4
//!   then as often as there are packets:
//!   seconds 4 | fraction 4 | bytes here 4 | bytes there were 4 | bytes
//! ```
//!
//! Byte order and unit of the fraction follow from the magic.

use carina_wire::pcapng::{BLOCK_BYTES_MAX, Direction, Interface, Item, LinkType, Packet};

use super::FileError;

/// Reads a file portion by portion.
pub struct Classic {
    is_big: bool,
    fraction_ns: u64,
    buffer: Vec<u8>,
    done: usize,
    interface: Option<Interface>,
    is_announced: bool,
}

impl Classic {
    /// A reader, when a file begins as one of this kind.
    pub fn of_magic(magic: [u8; 4]) -> Option<Classic> {
        let (is_big, fraction_ns) = match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000),
            [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000),
            [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1),
            [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1),
            _ => return None,
        };
        Some(Classic {
            is_big,
            fraction_ns,
            buffer: Vec::new(),
            done: 0,
            interface: None,
            is_announced: false,
        })
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are left: part of a packet when the file ends here.
    pub fn rest(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// The next item; `None` when more bytes are needed.
    ///
    /// # Errors
    /// A packet of a length that no packet has.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, FileError> {
        if self.interface.is_none() {
            let Some(header) = self.take::<HEADER_BYTES>() else {
                return Ok(None);
            };
            self.interface = Some(Interface {
                // The upper bits are about checksums.
                link: LinkType((self.word(&header, 20) & 0xffff) as u16),
                name: "0".to_owned(),
                description: String::new(),
                snap_bytes: self.word(&header, 16),
            });
            return Ok(Some(Item::Section));
        }
        if !std::mem::replace(&mut self.is_announced, true) {
            return Ok(self.interface.as_ref().map(Item::Interface));
        }
        let front = self.done;
        let Some(header) = self.take::<PACKET_BYTES>() else {
            return Ok(None);
        };
        let bytes = self.word(&header, 8) as usize;
        if bytes > BLOCK_BYTES_MAX {
            return Err(FileError::PacketTooLong(bytes));
        }
        let start = self.done;
        if self.rest() < bytes {
            self.done = front;
            return Ok(None);
        }
        self.done += bytes;
        let seconds = u64::from(self.word(&header, 0));
        let fraction = u64::from(self.word(&header, 4)) * self.fraction_ns;
        Ok(Some(Item::Packet(Packet {
            interface: 0,
            time_ns: seconds * 1_000_000_000 + fraction,
            direction: Direction::Unknown,
            original_bytes: self.word(&header, 12),
            bytes: &self.buffer[start..start + bytes],
        })))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = *self.buffer[self.done..].first_chunk()?;
        self.done += N;
        Some(bytes)
    }

    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes[at..].first_chunk().copied().unwrap_or_default();
        match self.is_big {
            true => u32::from_be_bytes(word),
            false => u32::from_le_bytes(word),
        }
    }
}

const HEADER_BYTES: usize = 24;
const PACKET_BYTES: usize = 16;
