//! Capture files of either kind, pcap and pcapng, and the Ethernet frames in them.
//!
//! [`Reader`] reads what is in a file: sections, interfaces, packets. [`FrameReader`] makes
//! Ethernet frames of the packets of the link types for which that is possible ([`Encapsulation`]),
//! and says of each other packet why it is not one ([`NoFrame`]). Both take bytes in portions of
//! any size and keep at most one packet.

mod encapsulation;
mod frames;

use core::fmt;

use crate::pcap::{self, PcapError};
use crate::pcapng::{self, Item};

pub use encapsulation::{Encapsulation, Stations};
pub use frames::{FrameReader, NoFrame, Record, Skipped};

/// Reads a file of either kind, portion by portion.
#[derive(Debug, Default)]
pub struct Reader {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Not known before the fourth byte.
    Unknown([u8; 4], usize),
    Pcap(pcap::Reader),
    Pcapng(pcapng::Reader),
}

impl Default for Kind {
    fn default() -> Kind {
        Kind::Unknown([0; 4], 0)
    }
}

impl Reader {
    /// A reader that has seen nothing.
    #[must_use]
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Takes the next bytes of the file.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if let Kind::Unknown(magic, there) = &mut self.kind {
            while let (true, Some((byte, rest))) = (*there < 4, bytes.split_first()) {
                magic[*there] = *byte;
                *there += 1;
                bytes = rest;
            }
            if *there < 4 {
                return;
            }
            let magic = *magic;
            self.kind = match pcap::Reader::of_magic(magic) {
                Some(reader) => Kind::Pcap(reader),
                None if magic == PCAPNG => Kind::Pcapng(pcapng::Reader::new()),
                None => return,
            };
            self.feed(&magic);
        }
        match &mut self.kind {
            Kind::Unknown(..) => {}
            Kind::Pcap(reader) => reader.feed(bytes),
            Kind::Pcapng(reader) => reader.feed(bytes),
        }
    }

    /// The next item; `None` when more bytes are needed.
    ///
    /// # Errors
    /// What is wrong with the file; nothing can be read behind it.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, CaptureError> {
        match &mut self.kind {
            Kind::Unknown(magic, 4) => Err(CaptureError::Foreign(*magic)),
            Kind::Unknown(..) => Ok(None),
            Kind::Pcap(reader) => reader.poll().map_err(CaptureError::Pcap),
            Kind::Pcapng(reader) => reader.poll().map_err(CaptureError::Pcapng),
        }
    }

    /// Says that no more bytes follow.
    ///
    /// # Errors
    /// The file ends within its header, a block or a packet.
    pub fn end(&self) -> Result<(), CaptureError> {
        let (is_at_end, rest) = match &self.kind {
            Kind::Unknown(_, 0) => return Err(CaptureError::Empty),
            Kind::Unknown(_, there) => (false, *there),
            Kind::Pcap(reader) => (reader.is_at_end(), reader.rest()),
            Kind::Pcapng(reader) => (reader.is_at_end(), reader.rest()),
        };
        if is_at_end {
            Ok(())
        } else {
            Err(CaptureError::Cut(rest))
        }
    }
}

/// The first bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why bytes are no capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file begins with these bytes, as neither kind does.
    Foreign([u8; 4]),
    /// There are no bytes.
    Empty,
    /// A packet of a pcap file is impossible.
    Pcap(PcapError),
    /// A block of a pcapng file is malformed.
    Pcapng(pcapng::CaptureError),
    /// The file ends within its header, a block or a packet, of which so many bytes are there.
    Cut(usize),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Foreign([0x1f, 0x8b, ..]) => {
                f.write_str("a gzip file: unpack it with gunzip")
            }
            CaptureError::Foreign([0x28, 0xb5, 0x2f, 0xfd]) => {
                f.write_str("a zstd file: unpack it with unzstd")
            }
            CaptureError::Foreign([a, b, c, d]) => write!(
                f,
                "neither a pcap nor a pcapng file: it begins with {a:02x} {b:02x} {c:02x} \
                 {d:02x}; convert other formats with `editcap -F pcapng`"
            ),
            CaptureError::Pcap(error) => error.fmt(f),
            CaptureError::Pcapng(error) => error.fmt(f),
            CaptureError::Empty => f.write_str("the file is empty"),
            CaptureError::Cut(rest) => write!(
                f,
                "the file is cut: it ends within a packet or block, of which {rest} bytes are there"
            ),
        }
    }
}

impl core::error::Error for CaptureError {}

#[cfg(test)]
mod tests;
