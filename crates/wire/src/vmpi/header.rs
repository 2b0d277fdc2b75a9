//! The four bytes in front of every record.
//!
//! ```text
//!  bit 0            15 16                        30   31
//! +-------------------+----------------------------+------+
//! | channel: u16      | zero                       | MORE |   u32, little endian
//! +-------------------+----------------------------+------+
//! ```

use core::fmt;

use super::HEADER_BYTES;

/// A channel of the VMPI: 0 is control, 1 to 65535 carry SDUs. The host opens even channels, the
/// guest odd ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(u16);

impl Channel {
    /// The channel of the control messages.
    pub const CONTROL: Channel = Channel(0);

    /// The channel with this number.
    pub const fn new(number: u16) -> Channel {
        Channel(number)
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether this is channel 0.
    pub const fn is_control(self) -> bool {
        self.0 == 0
    }

    /// Its number as an index of a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The header of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// The channel that the payload belongs to.
    pub channel: Channel,
    /// The next record of this channel continues the SDU. Never set on channel 0.
    pub more: bool,
}

const MORE: u32 = 1 << 31;

impl DataHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// When a bit that must be zero is set, or a control message claims to continue.
    pub const fn decode(bytes: [u8; HEADER_BYTES]) -> Result<DataHeader, HeaderError> {
        let word = u32::from_le_bytes(bytes);
        let channel = Channel((word & 0xffff) as u16);
        let more = word & MORE != 0;
        if word & !(MORE | 0xffff) != 0 || (channel.is_control() && more) {
            return Err(HeaderError { word });
        }
        Ok(DataHeader { channel, more })
    }

    /// Encodes the header.
    pub const fn encode(self) -> [u8; HEADER_BYTES] {
        let more = if self.more { MORE } else { 0 };
        (self.channel.0 as u32 | more).to_le_bytes()
    }
}

/// A header with bits set that must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderError {
    /// The whole header, as read.
    pub word: u32,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "VMPI header {:#010x}: bits 16 to 30 must be 0, and bit 31 on channel 0",
            self.word
        )
    }
}

impl core::error::Error for HeaderError {}
