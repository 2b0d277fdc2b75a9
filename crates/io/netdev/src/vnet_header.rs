//! The header in front of a frame that states the remaining offload work (`virtio_net_hdr`).
//!
//! ```text
//!   flags u8 (1 checksum missing, 2 checksums are right),
//!   type u8 (0 none, 1 TCPv4, 3 UDP fragments, 4 TCPv6, 5 UDP datagrams; 0x80 with ECN),
//!   header length u16, segment size u16, checksum from u16, checksum at u16   (host byte order)
//! ```

use crate::packet::VNET_HEADER_BYTES;

/// How a large frame must be cut into segments before it is sent on a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VnetSegments {
    /// The frame has TCP over IPv4; each segment becomes a TCP segment.
    Tcp4,
    /// The frame has TCP over IPv6; each segment becomes a TCP segment.
    Tcp6,
    /// The frame has UDP; each segment becomes a datagram of its own.
    Udp,
}

/// A decoded `virtio_net_hdr`: the checksum and segmentation work that remains for a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// A missing checksum: the offset in the frame at which the sum begins, and the offset from
    /// there at which to write it. `None` if no checksum is missing.
    pub checksum: Option<(u16, u16)>,
    /// Whether the sender of the header has verified all checksums of the frame.
    pub is_checksum_valid: bool,
    /// Segmentation that remains to be done: protocol, payload bytes of each segment, bytes of
    /// headers. `None` if the frame need not be cut.
    pub segments: Option<(VnetSegments, u16, u16)>,
}

impl VnetHeader {
    /// Decodes a header; returns `None` for an unknown kind of segmentation.
    #[must_use]
    pub fn read(header: &[u8; VNET_HEADER_BYTES]) -> Option<VnetHeader> {
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let kind = match header[1] & !WITH_ECN {
            0 => None,
            1 => Some(VnetSegments::Tcp4),
            4 => Some(VnetSegments::Tcp6),
            5 => Some(VnetSegments::Udp),
            _ => return None,
        };
        Some(VnetHeader {
            checksum: (header[0] & NEEDS_CHECKSUM != 0).then(|| (half(6), half(8))),
            is_checksum_valid: header[0] & CHECKSUM_VALID != 0,
            segments: kind.map(|kind| (kind, half(4), half(2))),
        })
    }

    /// Encodes the header, as it goes in front of a frame.
    #[must_use]
    pub fn bytes(&self) -> [u8; VNET_HEADER_BYTES] {
        let mut header = [0; VNET_HEADER_BYTES];
        if let Some((start, offset)) = self.checksum {
            header[0] = NEEDS_CHECKSUM;
            header[6..8].copy_from_slice(&start.to_ne_bytes());
            header[8..10].copy_from_slice(&offset.to_ne_bytes());
        } else if self.is_checksum_valid {
            header[0] = CHECKSUM_VALID;
        }
        if let Some((kind, size, headers)) = self.segments {
            header[1] = match kind {
                VnetSegments::Tcp4 => 1,
                VnetSegments::Tcp6 => 4,
                VnetSegments::Udp => 5,
            };
            header[2..4].copy_from_slice(&headers.to_ne_bytes());
            header[4..6].copy_from_slice(&size.to_ne_bytes());
        }
        header
    }
}

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const WITH_ECN: u8 = 0x80;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let all = [
            VnetHeader::default(),
            VnetHeader {
                checksum: Some((34, 16)),
                is_checksum_valid: false,
                segments: Some((VnetSegments::Tcp4, 1448, 66)),
            },
            VnetHeader {
                checksum: None,
                is_checksum_valid: true,
                segments: Some((VnetSegments::Udp, 1000, 42)),
            },
        ];
        for header in all {
            assert_eq!(VnetHeader::read(&header.bytes()), Some(header));
        }
        assert_eq!(all[1].bytes()[..2], [1, 1]);
        let mut other = all[1].bytes();
        other[1] = 3;
        assert_eq!(VnetHeader::read(&other), None);
    }
}
