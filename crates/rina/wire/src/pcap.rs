//! Capture files in the older format, pcap, as `tcpdump -w` writes them (draft-ietf-opsawg-pcap).
//!
//! ```text
//!   magic 4 | version 2 + 2 | 0 4 | 0 4 | snap length 4 | FCS and link type 4
//!   then for each packet:
//!   seconds 4 | fraction 4 | captured 4 | original 4 | bytes
//!
//!   FCS and link type:  n 4 bits | 0 1 | f 1 | 0 10 | link type 16
//! ```
//!
//! The magic determines the byte order, the unit of the fraction and the length of the record
//! header. If bit f is set, each packet ends with an FCS of 2n bytes. [`Reader`] accepts the file
//! in portions of any size, and keeps at most one packet, of at most [`BLOCK_BYTES_MAX`].

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::pcapng::{BLOCK_BYTES_MAX, Direction, Interface, Item, LinkType, Packet};

/// Length of the file header in bytes.
pub const FILE_HEADER_BYTES: usize = 24;
/// Bytes of the record header that [`record`] makes for each packet.
pub const RECORD_BYTES: usize = 16;
/// Longest packet that `tcpdump` writes, in bytes.
pub const PACKET_BYTES_MAX: u32 = 262_144;

/// Reads a pcap file; the caller feeds its bytes in portions of any size.
#[derive(Debug)]
pub struct Reader {
    kind: Kind,
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that were already processed.
    done: usize,
    interface: Option<Interface>,
    fcs_bytes: u32,
    is_announced: bool,
    packets: u64,
}

/// What the magic determines.
#[derive(Clone, Copy, Debug)]
struct Kind {
    is_big: bool,
    fraction_ns: u64,
    record_bytes: usize,
}

impl Kind {
    fn of_magic(magic: [u8; 4]) -> Option<Kind> {
        let kind = |fraction_ns, record_bytes| Kind {
            is_big: false,
            fraction_ns,
            record_bytes,
        };
        let known = |word| match word {
            MICROS => Some(kind(1000, RECORD_BYTES)),
            NANOS => Some(kind(1, RECORD_BYTES)),
            // Format of old Linux distributions: the record header also has interface, protocol and
            // packet type.
            KUZNETZOV => Some(kind(1000, RECORD_BYTES + 8)),
            _ => None,
        };
        known(u32::from_le_bytes(magic)).or_else(|| {
            let big = known(u32::from_be_bytes(magic))?;
            Some(Kind {
                is_big: true,
                ..big
            })
        })
    }

    fn word(self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes[at..].first_chunk().copied().unwrap_or_default();
        if self.is_big {
            u32::from_be_bytes(word)
        } else {
            u32::from_le_bytes(word)
        }
    }
}

impl Reader {
    /// Makes a reader for a file that starts with `magic`; `None` if no pcap file starts so. The
    /// caller must also feed the magic to the reader.
    #[must_use]
    pub fn of_magic(magic: [u8; 4]) -> Option<Reader> {
        let kind = Kind::of_magic(magic)?;
        Some(Reader {
            kind,
            buffer: Vec::new(),
            done: 0,
            interface: None,
            fcs_bytes: 0,
            is_announced: false,
            packets: 0,
        })
    }

    /// Adds the next bytes of the file; [`Reader::poll`] then returns the items in them.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.done);
        self.done = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Number of unprocessed bytes. If the file ends here, they are a part of a packet.
    #[must_use]
    pub fn rest(&self) -> usize {
        self.buffer.len() - self.done
    }

    /// Whether the file may end here: after its header and not inside a packet.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.interface.is_some() && self.rest() == 0
    }

    /// Returns the next item; `None` when it needs more bytes.
    ///
    /// # Errors
    /// A packet has an impossible length.
    pub fn poll(&mut self) -> Result<Option<Item<'_>>, PcapError> {
        if self.interface.is_none() {
            let kind = self.kind;
            let Some(header) = self.take(FILE_HEADER_BYTES) else {
                return Ok(None);
            };
            let (snap_bytes, link) = (kind.word(header, 16), kind.word(header, 20));
            self.fcs_bytes = match link & FCS_IS_KNOWN {
                0 => 0,
                _ => 2 * (link >> 28),
            };
            self.interface = Some(Interface {
                link: LinkType((link & 0xffff) as u16),
                name: "0".to_owned(),
                description: String::new(),
                snap_bytes,
            });
            return Ok(Some(Item::Section));
        }
        if !core::mem::replace(&mut self.is_announced, true) {
            return Ok(self.interface.as_ref().map(Item::Interface));
        }
        self.packet().map(|packet| packet.map(Item::Packet))
    }

    fn packet(&mut self) -> Result<Option<Packet<'_>>, PcapError> {
        let (kind, front) = (self.kind, self.done);
        let Some(header) = self.take(kind.record_bytes) else {
            return Ok(None);
        };
        let bytes = kind.word(header, 8);
        let original_bytes = kind.word(header, 12);
        let seconds = u64::from(kind.word(header, 0));
        let fraction = u64::from(kind.word(header, 4)) * kind.fraction_ns;
        let fcs_bytes = self.fcs_bytes;
        if bytes as usize > BLOCK_BYTES_MAX {
            let number = self.packets + 1;
            return Err(PcapError { number, bytes });
        }
        if self.rest() < bytes as usize {
            self.done = front;
            return Ok(None);
        }
        self.packets += 1;
        let bytes = self.take(bytes as usize).unwrap_or_default();
        let packet = Packet {
            interface: 0,
            time_ns: seconds * 1_000_000_000 + fraction,
            direction: Direction::Unknown,
            bytes,
            original_bytes,
        };
        Ok(Some(packet.without_fcs(fcs_bytes)))
    }

    fn take(&mut self, length: usize) -> Option<&[u8]> {
        let bytes = self.buffer[self.done..].get(..length)?;
        self.done += length;
        Some(bytes)
    }
}

/// Error: a packet has an impossible length, so the rest of the file cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapError {
    /// Number of the packet in the file, from 1.
    pub number: u64,
    /// Length of the packet in bytes, as the file states it.
    pub bytes: u32,
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PcapError { number, bytes } = self;
        write!(
            f,
            "packet {number} of the pcap file has {bytes} bytes: at most {BLOCK_BYTES_MAX} are \
             possible"
        )
    }
}

impl core::error::Error for PcapError {}

/// Makes the header of a file for Ethernet frames with times in nanoseconds. The file keeps at most
/// `snap` bytes of each frame.
#[must_use]
pub fn file_header(snap: u32) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..4].copy_from_slice(&NANOS.to_le_bytes());
    (header[4], header[6]) = (2, 4);
    header[16..20].copy_from_slice(&snap.to_le_bytes());
    header[20..22].copy_from_slice(&LinkType::ETHERNET.0.to_le_bytes());
    header
}

/// Makes the header of a pcap record. `nanos` is the capture time in ns since 1970, `length` the
/// frame's original length. The file keeps its first `captured` bytes, right after this header.
#[must_use]
pub fn record(nanos: u64, captured: usize, length: usize) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    let words = [
        nanos / 1_000_000_000,
        nanos % 1_000_000_000,
        captured as u64,
        length as u64,
    ];
    for (place, word) in record.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&(word as u32).to_le_bytes());
    }
    record
}

const MICROS: u32 = 0xa1b2_c3d4;
const NANOS: u32 = 0xa1b2_3c4d;
const KUZNETZOV: u32 = 0xa1b2_cd34;
/// Bit f of the word with the link type.
const FCS_IS_KNOWN: u32 = 1 << 26;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    /// A big-endian file: magic, word with the link type, and packets with original length and
    /// bytes.
    fn big(magic: u32, link: u32, packets: &[(u32, &[u8])]) -> Vec<u8> {
        let mut file = magic.to_be_bytes().to_vec();
        file.extend([0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        file.extend(link.to_be_bytes());
        for (original, bytes) in packets {
            for word in [1, 5, bytes.len() as u32, *original] {
                file.extend(word.to_be_bytes());
            }
            if magic == KUZNETZOV {
                file.extend([0xee; 8]);
            }
            file.extend(*bytes);
        }
        file
    }

    /// Link type, and time, original length and bytes of each packet.
    type Found = (LinkType, Vec<(u64, u32, Vec<u8>)>);

    fn read(file: &[u8], step: usize) -> Result<Found, PcapError> {
        let mut reader = Reader::of_magic(*file.first_chunk().unwrap()).unwrap();
        let mut found = (LinkType(0), Vec::new());
        for portion in file.chunks(step) {
            reader.feed(portion);
            while let Some(item) = reader.poll()? {
                match item {
                    Item::Section => {}
                    Item::Interface(interface) => found.0 = interface.link,
                    Item::Packet(packet) => {
                        found
                            .1
                            .push((packet.time_ns, packet.original_bytes, packet.bytes.to_vec()))
                    }
                }
            }
        }
        assert!(reader.is_at_end());
        Ok(found)
    }

    #[test]
    fn files_read_as_they_were_written() {
        let mut file = file_header(65535).to_vec();
        for (nanos, bytes, length) in [(1_500_000_001, &b"first"[..], 9), (2_000_000_000, b"", 0)] {
            file.extend(record(nanos, bytes.len(), length));
            file.extend(bytes);
        }
        let expected = vec![
            (1_500_000_001, 9, b"first".to_vec()),
            (2_000_000_000, 0, vec![]),
        ];
        for step in [1, 7, file.len()] {
            assert_eq!(
                read(&file, step),
                Ok((LinkType::ETHERNET, expected.clone()))
            );
        }
    }

    #[test]
    fn every_byte_order_and_unit_of_time_is_read() {
        for (magic, nanos) in [
            (MICROS, 1_000_005_000),
            (NANOS, 1_000_000_005),
            (KUZNETZOV, 1_000_005_000),
        ] {
            let file = big(magic, 101, &[(3, b"abc"), (4, b"ab")]);
            let expected = vec![(nanos, 3, b"abc".to_vec()), (nanos, 4, b"ab".to_vec())];
            assert_eq!(read(&file, 5), Ok((LinkType(101), expected)), "{magic:#x}");
        }
        assert!(Reader::of_magic(*b"\x0a\x0d\x0d\x0a").is_none());
    }

    #[test]
    fn check_sequences_behind_frames_are_cut_off() {
        let frame = b"frame and FCS.";
        let packets: [(u32, &[u8]); 3] = [(14, frame), (14, &frame[..12]), (14, &frame[..7])];
        let lengths = |link| {
            let (found, packets) = read(&big(MICROS, link, &packets), 64).unwrap();
            assert_eq!(found, LinkType::ETHERNET, "{link:#x}");
            let lengths = packets
                .iter()
                .map(|(_, original, bytes)| (*original, bytes.len()));
            lengths.collect::<Vec<_>>()
        };
        // The FCS has four bytes; the third packet lacks more than its FCS.
        assert_eq!(lengths(0x2400_0001), [(10, 10), (10, 10), (10, 7)]);
        assert_eq!(lengths(0x1400_0001), [(12, 12), (12, 12), (12, 7)]);
        // Without bit f the length of the FCS has no meaning. Reserved bits are ignored.
        assert_eq!(lengths(0x2bff_0001), [(14, 14), (14, 12), (14, 7)]);
        assert_eq!(lengths(0x0000_0001), [(14, 14), (14, 12), (14, 7)]);
    }

    #[test]
    fn a_packet_of_impossible_length_ends_the_file() {
        let mut file = big(MICROS, 1, &[(1, b"a"), (1, b"b")]);
        file[24 + 17 + 8] = 0x10;
        let error = read(&file, 64).unwrap_err();
        assert_eq!((error.number, error.bytes), (2, 0x1000_0001));
        assert!(error.to_string().starts_with("packet 2 of the pcap file"));
    }
}
