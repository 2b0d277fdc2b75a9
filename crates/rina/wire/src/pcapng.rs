//! Capture files in the newer format, pcapng, as far as captures of packets need it
//! (draft-ietf-opsawg-pcapng). [`crate::capture`] also reads the older format.
//!
//! A file is a sequence of blocks. The length of a block is a multiple of four bytes:
//!
//! ```text
//!  0      4        8                      n-4      n
//!  +------+--------+----------------------+--------+
//!  | type | length | body, options        | length |
//!  +------+--------+----------------------+--------+
//!
//!  section header 0A0D0D0A   magic 1A2B3C4D, version 1.0, section length; begins everything anew
//!  interface      00000001   link type 2, 0 2, snap length 4
//!                            options: 2 name, 3 description, 9 time unit, 13 FCS bits,
//!                            14 seconds to add to each time
//!  packet         00000006   interface 4, time 8 (high, low), captured 4, original 4, bytes
//!                            option: 2 flags, with the direction and the bytes of the FCS
//!  packet of old     00000002   interface 2, drops 2, time 8 and the rest as above
//!  simple packet     00000003   original 4, bytes
//!  statistics     00000005   interface 4, time 8 (high, low)
//!                            options: 4 packets that came, 5 of them not in the file
//! ```
//!
//! [`Writer`] writes little-endian blocks with times in nanoseconds. [`Reader`] accepts both byte
//! orders, any unit of time, and bytes in portions of any size. It skips blocks of unknown types,
//! of any length, and keeps at most one block, of at most [`BLOCK_BYTES_MAX`].

mod read;
mod write;

use core::fmt;

pub use read::{CaptureError, Item, Reader};
pub use write::Writer;

/// Longest block of a known type that a reader accepts, in bytes.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;

/// Largest number of interfaces in one section that a reader accepts.
pub const INTERFACES_MAX: usize = 1024;

/// Link type: the format of an interface's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

impl LinkType {
    /// Ethernet frames without checksum.
    pub const ETHERNET: LinkType = LinkType(1);
    /// PDUs of a normal DIF (USER0).
    pub const PDU: LinkType = LinkType(147);
    /// Records of the VMPI: header and payload (USER1).
    pub const VMPI: LinkType = LinkType(148);
    /// SDUs of a flow of a shim DIF: PDUs of the DIF above, or SDUs of an application (USER2).
    pub const SDU: LinkType = LinkType(149);
}

impl fmt::Display for LinkType {
    /// Writes the number and, if it is a common one, the name: `101 (RAW)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = LINK_NAMES.iter().find(|(number, _)| *number == self.0);
        match known {
            Some((number, name)) => write!(f, "{number} ({name})"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Names of common link types, from the registry of IANA.
const LINK_NAMES: &[(u16, &str)] = &[
    (0, "NULL"),
    (1, "ETHERNET"),
    (9, "PPP"),
    (12, "RAW"),
    (14, "RAW"),
    (50, "PPP_HDLC"),
    (51, "PPP_ETHER"),
    (101, "RAW"),
    (104, "C_HDLC"),
    (105, "IEEE802_11"),
    (107, "FRELAY"),
    (108, "LOOP"),
    (113, "LINUX_SLL"),
    (119, "IEEE802_11_PRISM"),
    (127, "IEEE802_11_RADIOTAP"),
    (147, "USER0"),
    (148, "USER1"),
    (149, "USER2"),
    (187, "BLUETOOTH_HCI_H4"),
    (192, "PPI"),
    (195, "IEEE802_15_4_WITHFCS"),
    (220, "USB_LINUX_MMAPPED"),
    (227, "CAN_SOCKETCAN"),
    (228, "IPV4"),
    (229, "IPV6"),
    (239, "NFLOG"),
    (249, "USBPCAP"),
    (253, "NETLINK"),
    (276, "LINUX_SLL2"),
];

/// Direction of a captured packet, as seen by the system or IPCP that captured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// The direction is unknown.
    #[default]
    Unknown,
    /// The system or IPCP has received the packet.
    In,
    /// The system or IPCP has sent the packet.
    Out,
}

impl Direction {
    /// The two low bits of a packet's flags that encode the direction.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Direction::Unknown => 0,
            Direction::In => 1,
            Direction::Out => 2,
        }
    }

    pub(crate) fn from_bits(flags: u32) -> Direction {
        match flags & 3 {
            1 => Direction::In,
            2 => Direction::Out,
            _ => Direction::Unknown,
        }
    }
}

/// An interface on which packets were captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type: the format of the packets.
    pub link: LinkType,
    /// Name of the interface, for people to read.
    pub name: alloc::string::String,
    /// Information that a reader needs to decode the packets; see `docs/how-to/capture.md`.
    pub description: alloc::string::String,
    /// Largest number of bytes that the file keeps of a packet; 0 for all.
    pub snap_bytes: u32,
}

/// A packet in a file, without the frame check sequence (FCS) that follows it in some files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Number of the packet's interface within its section of the file, from 0.
    pub interface: u32,
    /// Time of capture, in nanoseconds since 1970 (Unix time).
    pub time_ns: u64,
    /// Whether the packet was received or sent, if known.
    pub direction: Direction,
    /// The captured bytes of the packet, from its start.
    pub bytes: &'a [u8],
    /// Length of the whole packet in bytes, including bytes that were not captured.
    pub original_bytes: u32,
}

impl<'a> Packet<'a> {
    /// Removes the `fcs` bytes at the end of the frame. A capture truncates the end first, so a
    /// frame is complete if only its FCS is missing.
    pub(crate) fn without_fcs(self, fcs: u32) -> Packet<'a> {
        let original = self.original_bytes.max(self.bytes.len() as u32);
        if fcs == 0 || original < fcs {
            return self;
        }
        let original_bytes = original - fcs;
        let length = self.bytes.len().min(original_bytes as usize);
        Packet {
            bytes: &self.bytes[..length],
            original_bytes,
            ..self
        }
    }
}

/// Contents of a statistics block: the number of packets of an interface, from the start of the
/// file to this block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Number of the interface within its section of the file, from 0.
    pub interface: u32,
    /// Time of the count, in nanoseconds since 1970 (Unix time).
    pub time_ns: u64,
    /// Number of packets that arrived at the interface.
    pub packets: u64,
    /// Number of packets that arrived but are not in the file, because there was no room for them.
    pub missed: u64,
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const OLD_PACKET: u32 = 2;
const PACKET: u32 = 6;
const MAGIC: u32 = 0x1a2b_3c4d;

const OPTION_END: u16 = 0;
const OPTION_NAME: u16 = 2;
const OPTION_DESCRIPTION: u16 = 3;
const OPTION_TIME_UNIT: u16 = 9;
const OPTION_FCS: u16 = 13;
const OPTION_TIME_OFFSET: u16 = 14;
const OPTION_FLAGS: u16 = 2;
const OPTION_CAME: u16 = 4;
const OPTION_MISSED: u16 = 5;

/// Rounds a length up to a multiple of four.
fn padded(length: usize) -> usize {
    length.div_ceil(4) * 4
}

#[cfg(test)]
mod tests;
