//! A cursor over the bytes of a control message, and its errors.

use core::fmt;

use crate::{FlowSpec, NameError, check_name};

/// Why bytes are not a valid control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The message ends inside a field.
    Truncated,
    /// Bytes remain after the last field.
    Trailing {
        /// Number of bytes after the last field.
        bytes: usize,
    },
    /// The type of the message is unknown; this is its number.
    UnknownType(u8),
    /// A hello has this other version. The rest of the message was not decoded.
    Version(u16),
    /// A string is not UTF-8.
    Utf8,
    /// A name violates the rules for names.
    Name(NameError),
    /// The field with this name has a value that is not allowed.
    Value(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => write!(f, "control message ends inside a field"),
            DecodeError::Trailing { bytes } => {
                write!(f, "control message has {bytes} bytes after its last field")
            }
            DecodeError::UnknownType(t) => write!(f, "control message of unknown type {t}"),
            DecodeError::Version(v) => {
                write!(
                    f,
                    "peer speaks VMPI version {v}, this system {}",
                    super::VERSION
                )
            }
            DecodeError::Utf8 => write!(f, "control message with a string that is not UTF-8"),
            DecodeError::Name(e) => write!(f, "control message with a bad name: {e}"),
            DecodeError::Value(field) => {
                write!(f, "control message with a forbidden value in `{field}`")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads fields from the front of a message.
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .0
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(u8::from_le_bytes(self.take()?))
    }

    pub(super) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// Reads a length byte, and that many bytes of UTF-8.
    pub(super) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let len = self.u8()? as usize;
        let (head, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.0 = rest;
        core::str::from_utf8(head).map_err(|_| DecodeError::Utf8)
    }

    /// Reads a text and checks that it is a valid name.
    pub(super) fn name(&mut self) -> Result<&'a str, DecodeError> {
        let text = self.text()?;
        check_name(text).map_err(DecodeError::Name)?;
        Ok(text)
    }

    pub(super) fn spec(&mut self) -> Result<FlowSpec, DecodeError> {
        let max_delay_us = self.u32()?;
        let max_jitter_us = self.u32()?;
        let max_sdu_gap = self.u64()?;
        let avg_bandwidth_bps = self.u64()?;
        let max_loss = self.u16()?;
        let flags = self.u8()?;
        if max_loss > FlowSpec::MAX_LOSS {
            return Err(DecodeError::Value("max_loss"));
        }
        if flags > 3 {
            return Err(DecodeError::Value("spec flags"));
        }
        Ok(FlowSpec {
            max_delay_us,
            max_sdu_gap,
            avg_bandwidth_bps,
            max_loss,
            in_order: flags & 1 != 0,
            msg_boundaries: flags & 2 != 0,
            max_jitter_us,
        })
    }

    pub(super) fn end(self) -> Result<(), DecodeError> {
        match self.0.len() {
            0 => Ok(()),
            bytes => Err(DecodeError::Trailing { bytes }),
        }
    }
}
