//! The header of a VMPI record: four bytes, or eight for a bundle.
//!
//! ```text
//!  bit 0            15 16                    29   30    31
//! +-------------------+-------------------------+-----+------+
//! | channel: u16      | zero                    | BUNDLE | MORE |   u32, little endian
//! +-------------------+-------------------------+-----+------+
//! ```

use core::fmt;

use super::HEADER_BYTES;

/// Number of a VMPI channel: 0 carries control messages, each other channel carries the SDUs of one
/// flow. The host opens even channels, the guest odd channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Channel(u16);

impl Channel {
    /// Channel 0, which carries control messages.
    pub const CONTROL: Channel = Channel(0);

    /// Returns the channel with this number.
    pub const fn new(number: u16) -> Channel {
        Channel(number)
    }

    /// Returns the number of the channel.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether this is channel 0, which carries control messages.
    pub const fn is_control(self) -> bool {
        self.0 == 0
    }

    /// Returns the number of the channel as a `usize`, to index a table of channels.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The header of a record with a control message or a piece of an SDU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataHeader {
    /// Channel to which the payload belongs.
    pub channel: Channel,
    /// Whether the next record of this channel continues the SDU. Never set on channel 0.
    pub more: bool,
}

const MORE: u32 = 1 << 31;

impl DataHeader {
    /// Decodes the first four bytes of a record.
    ///
    /// # Errors
    /// A bit that must be zero is set, or a control message is marked as continued.
    pub const fn decode(bytes: [u8; HEADER_BYTES]) -> Result<DataHeader, HeaderError> {
        let word = u32::from_le_bytes(bytes);
        let channel = Channel((word & 0xffff) as u16);
        let more = word & MORE != 0;
        if word & !(MORE | 0xffff) != 0 || (channel.is_control() && more) {
            return Err(HeaderError { word });
        }
        Ok(DataHeader { channel, more })
    }

    /// Encodes the header as the first four bytes of a record.
    pub const fn encode(self) -> [u8; HEADER_BYTES] {
        let more = if self.more { MORE } else { 0 };
        (self.channel.0 as u32 | more).to_le_bytes()
    }
}

/// The header of a record with a bundle: several whole SDUs of one channel, each in the format of a
/// ring record (`docs/explanation/ring-layout.md`). After the common four bytes come four zero
/// bytes, so that the SDUs are aligned to 8 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BundleHeader {
    /// Channel of all SDUs in the bundle; never 0.
    pub channel: Channel,
}

/// Length in bytes of the header in front of a bundle.
pub const BUNDLE_HEADER_BYTES: usize = 8;

const BUNDLE: u32 = 1 << 30;

impl BundleHeader {
    /// Whether the first bytes of a record mark it as a bundle.
    pub const fn is_in(bytes: [u8; HEADER_BYTES]) -> bool {
        u32::from_le_bytes(bytes) & BUNDLE != 0
    }

    /// Decodes the header of a bundle.
    ///
    /// # Errors
    /// A bit that must be zero is set, or the channel is 0.
    pub const fn decode(bytes: [u8; BUNDLE_HEADER_BYTES]) -> Result<BundleHeader, HeaderError> {
        let word = u64::from_le_bytes(bytes);
        let channel = Channel((word & 0xffff) as u16);
        if word & !0xffff != BUNDLE as u64 || channel.is_control() {
            return Err(HeaderError { word: word as u32 });
        }
        Ok(BundleHeader { channel })
    }

    /// Encodes the header of a bundle.
    pub const fn encode(self) -> [u8; BUNDLE_HEADER_BYTES] {
        (self.channel.0 as u64 | BUNDLE as u64).to_le_bytes()
    }
}

/// Error: bits of a header are set that must be zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderError {
    /// The first four bytes of the header.
    pub word: u32,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "VMPI header {:#010x}: bits 16 to 29 must be 0, and bits 30 and 31 on channel 0; of a bundle \
             also bit 31 and the next four bytes",
            self.word
        )
    }
}

impl core::error::Error for HeaderError {}
