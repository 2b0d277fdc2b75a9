//! Why a capture file, or what it says of an interface, cannot be read.

use carina_wire::pcapng::{BLOCK_BYTES_MAX, CaptureError};

/// Why a capture file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The first bytes are those of neither kind of capture file.
    #[error("{0}, nor pcap; convert other formats with `editcap -F pcapng`")]
    Foreign(CaptureError),
    /// A block of a pcapng file is damaged.
    #[error("{0}")]
    Block(CaptureError),
    /// A packet of a pcap file has an impossible length.
    #[error("a packet of {0} bytes; the limit is {BLOCK_BYTES_MAX}")]
    PacketTooLong(usize),
}

/// Why a text says nothing sound of a DIF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A dialect of another name.
    #[error("dialect={0}: should be native, rlite or irati")]
    Dialect(String),
    /// A width that is not a number.
    #[error("{key}={value}: not a number of bytes")]
    Width {
        /// The field.
        key: String,
        /// What was given.
        value: String,
    },
    /// Delimiting of another name.
    #[error("delimiting={0}: neither standard nor none")]
    Delimiting(String),
    /// A word without `=`.
    #[error("{0}: should be KEY=VALUE")]
    NotAPair(String),
    /// A key of no meaning.
    #[error(
        "{0}: should be address, cep, qos, seq, ctrl_seq, length, rate, frame, delimiting or \
         dialect"
    )]
    UnknownKey(String),
    /// Widths that no DIF of the dialect has.
    #[error("{0}")]
    Widths(&'static str),
}
