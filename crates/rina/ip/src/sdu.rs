//! How a packet is written in an SDU.
//!
//! An SDU is one IP packet. A packet that lacks its checksum, or that holds several segments, has a
//! header of 10 bytes in front: a `virtio_net_hdr` (VIRTIO 1.2 §5.1.6) in little-endian order.
//! The first four bits tell both apart: 4 or 6 in a packet, 0 in the header.

use carina_netdev::{VNET_HEADER_BYTES, VnetHeader, VnetSegments};

/// A packet of an SDU, and the work that its sender has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sdu<'a> {
    /// The IP packet.
    pub packet: &'a [u8],
    /// Missing checksum and pending segmentation.
    pub header: VnetHeader,
}

/// Reads an SDU. `None` if it has neither form, or if the header does not suit the packet.
#[must_use]
pub fn read(sdu: &[u8]) -> Option<Sdu<'_>> {
    let (header, from) = read_head(sdu, sdu.len())?;
    let packet = &sdu[from..];
    Some(Sdu { packet, header })
}

/// Reads the beginning of an SDU of `length` bytes. Returns the work that the sender has left, and
/// the offset of the packet. `None` as for [`read`].
#[must_use]
pub fn read_head(head: &[u8], length: usize) -> Option<(VnetHeader, usize)> {
    if head.first()? >> 4 != 0 {
        return Some((VnetHeader::default(), 0));
    }
    let (header, packet) = head.split_first_chunk::<VNET_HEADER_BYTES>()?;
    let packet_bytes = length.checked_sub(VNET_HEADER_BYTES)?;
    // The receiver's kernel verifies checksums that a peer claims to have verified.
    let header = VnetHeader {
        is_checksum_valid: false,
        ..VnetHeader::read(&swapped(*header))?
    };
    let fits = |at: usize| at <= packet_bytes;
    let sum_fits = header.checksum.is_none_or(|(start, offset)| {
        fits(usize::from(start) + usize::from(offset) + CHECKSUM_BYTES)
    });
    let version = packet.first()? >> 4;
    let cut_fits = header.segments.is_none_or(|(kind, size, headers)| {
        let is_right = match kind {
            VnetSegments::Tcp4 => version == 4,
            VnetSegments::Tcp6 => version == 6,
            VnetSegments::Udp => is_of_datagrams(header.checksum, size, packet_bytes),
        };
        // A receiver cuts only packets whose checksum it computes as well.
        is_right && size > 0 && fits(usize::from(headers)) && header.checksum.is_some()
    });
    (sum_fits && cut_fits).then_some((header, VNET_HEADER_BYTES))
}

/// Whether a packet of `length` bytes with several datagrams of `size` bytes lacks a UDP checksum,
/// and has no more datagrams than a kernel sends at once: each costs its receiver as much as a
/// packet.
fn is_of_datagrams(checksum: Option<(u16, u16)>, size: u16, length: usize) -> bool {
    let Some((udp, UDP_CHECKSUM_AT)) = checksum else {
        return false;
    };
    let payload = length.saturating_sub(usize::from(udp) + UDP_BYTES);
    payload <= usize::from(size) * DATAGRAMS_MAX
}

/// The encoded `header`, which precedes the packet in the SDU. `None` if `header` leaves the
/// receiver no work (checksum or segmentation): the SDU then has no header, and consists of the
/// packet alone.
#[must_use]
pub fn header_bytes(header: &VnetHeader) -> Option<[u8; VNET_HEADER_BYTES]> {
    let has_work = header.checksum.is_some() || header.segments.is_some();
    has_work.then(|| swapped(header.bytes()))
}

/// Changes between the byte order of this machine and little-endian order.
fn swapped(mut header: [u8; VNET_HEADER_BYTES]) -> [u8; VNET_HEADER_BYTES] {
    if cfg!(target_endian = "big") {
        for pair in header[2..].chunks_exact_mut(2) {
            pair.swap(0, 1);
        }
    }
    header
}

const CHECKSUM_BYTES: usize = 2;
/// Offset of the checksum in a UDP header. (RFC 768)
const UDP_CHECKSUM_AT: u16 = 6;
const UDP_BYTES: usize = 8;
/// Largest number of datagrams in a packet: Linux's `UDP_MAX_SEGMENTS`.
const DATAGRAMS_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[0] = 0x45;
        packet
    }

    #[test]
    fn plain_packet_is_its_own_sdu() {
        let packet = packet();
        let sdu = read(&packet).unwrap();
        assert_eq!(
            (sdu.packet, sdu.header),
            (&packet[..], VnetHeader::default())
        );
        assert_eq!(header_bytes(&sdu.header), None);
    }

    #[test]
    fn pending_work_is_read_as_it_was_written() {
        let header = VnetHeader {
            checksum: Some((20, 16)),
            is_checksum_valid: false,
            segments: Some((VnetSegments::Tcp4, 1000, 40)),
        };
        let bytes = header_bytes(&header).unwrap();
        assert_eq!(bytes, [1, 1, 40, 0, 0xe8, 3, 20, 0, 16, 0]);
        let sdu = [&bytes[..], &packet()].concat();
        assert_eq!(read(&sdu).unwrap().header, header);
    }

    #[test]
    fn header_that_does_not_suit_its_packet_is_refused() {
        let with = |header: [u8; 10]| [&header[..], &packet()].concat();
        let right = [1, 1, 40, 0, 0xe8, 3, 20, 0, 16, 0];
        assert!(read(&with(right)).is_some());
        // The checksum beyond the end, headers beyond the end, IPv6, no size, an unknown kind, and
        // segments whose checksums are complete.
        for (at, value) in [(6, 50), (2, 61), (1, 4), (4, 0), (1, 9), (0, 0)] {
            let mut wrong = right;
            wrong[at] = value;
            if at == 4 {
                wrong[5] = 0;
            }
            assert_eq!(read(&with(wrong)), None, "byte {at} is {value}");
        }
        assert_eq!(read(&right[..9]), None);
        let datagrams = |size: u8, checksum_at: u8, length: usize| {
            let header = [1, 5, 28, 0, size, 0, 20, 0, checksum_at, 0];
            let mut packet = packet();
            packet.resize(length, 0);
            read(&[&header[..], &packet].concat()).is_some()
        };
        assert!(datagrams(10, 6, 28 + 1280) && datagrams(1, 6, 60));
        assert!(
            !datagrams(10, 6, 28 + 1281),
            "more datagrams than a kernel sends"
        );
        assert!(!datagrams(10, 16, 60), "the checksum of TCP");
        assert_eq!(read(&right), None);
        assert_eq!(read(&[]), None);
    }
}
