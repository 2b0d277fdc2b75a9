//! Capture files in the formats pcap and pcapng, and the Ethernet frames in them.
//!
//! [`Reader`] reads the contents of a file: sections, interfaces and packets. [`FrameReader`] makes
//! Ethernet frames of packets whose link type allows it ([`Encapsulation`]); for other packets it
//! reports why not ([`NoFrame`]). Both accept the file in portions of any size and keep at most one
//! packet in memory.

mod encapsulation;
mod frames;
mod no_frame;

use core::fmt;

use crate::pcap::{self, PcapError};
use crate::pcapng::{self, Item};

pub use encapsulation::{Encapsulation, Stations};
pub use frames::{FrameReader, Record, Skipped};
pub use no_frame::NoFrame;

/// Reads a capture file in either format. The caller feeds the bytes in portions of any size.
#[derive(Debug, Default)]
pub struct Reader {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The format is unknown before the fourth byte: the first bytes, and how many there are.
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
    /// Makes a reader at the beginning of a file.
    #[must_use]
    pub fn new() -> Reader {
        Reader::default()
    }

    /// Adds the next bytes of the file; [`Reader::poll`] then returns the items in them.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        if let Kind::Unknown(magic, length) = &mut self.kind {
            while let (true, Some((byte, rest))) = (*length < 4, bytes.split_first()) {
                magic[*length] = *byte;
                *length += 1;
                bytes = rest;
            }
            if *length < 4 {
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

    /// Returns the next item, such as a packet; `None` when the reader needs more bytes.
    ///
    /// # Errors
    /// The file is damaged; nothing after that point can be read.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, CaptureError> {
        match &mut self.kind {
            Kind::Unknown(magic, 4) => Err(CaptureError::Foreign(*magic)),
            Kind::Unknown(..) => Ok(None),
            Kind::Pcap(reader) => reader.poll().map_err(CaptureError::Pcap),
            Kind::Pcapng(reader) => reader.poll().map_err(CaptureError::Pcapng),
        }
    }

    /// Checks that the file may end after the bytes fed so far.
    ///
    /// # Errors
    /// The file ends within its header, a block or a packet.
    pub fn end(&self) -> Result<(), CaptureError> {
        let (is_at_end, rest) = match &self.kind {
            Kind::Unknown(_, 0) => return Err(CaptureError::Empty),
            Kind::Unknown(_, length) => (false, *length),
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

/// The first four bytes of a pcapng file.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// Why bytes are not a valid capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file starts with these bytes, which belong to neither format.
    Foreign([u8; 4]),
    /// The file is empty.
    Empty,
    /// A packet of a pcap file has an impossible length.
    Pcap(PcapError),
    /// A block of a pcapng file is malformed.
    Pcapng(pcapng::CaptureError),
    /// The file ends inside its header, a block or a packet, of which this many bytes are present.
    Cut(usize),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::Foreign([0x1f, 0x8b, ..]) => {
                f.write_str("the file is compressed with gzip: unpack it with gunzip")
            }
            CaptureError::Foreign([0x28, 0xb5, 0x2f, 0xfd]) => {
                f.write_str("the file is compressed with zstd: unpack it with unzstd")
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
                "the file is cut: it ends within a packet or block, of which {rest} bytes are \
                 present"
            ),
        }
    }
}

impl core::error::Error for CaptureError {}

#[cfg(test)]
mod tests;
