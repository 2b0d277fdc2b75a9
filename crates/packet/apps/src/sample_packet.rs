//! The packet that sources send: UDP over IPv4 over Ethernet, with correct checksums.

use std::ops::RangeInclusive;

use carina_wire::inet::checksum;

/// Length of the Ethernet, IPv4 and UDP headers, in bytes.
pub const HEADER_BYTES: usize = 14 + 20 + 8;

/// Lengths of frames that [`udp_packet`] can make, in bytes without FCS: from no payload to an MTU
/// of 9000.
pub const SIZES: RangeInclusive<usize> = HEADER_BYTES..=9014;

/// Lengths of frames with an MTU of at most 1500, in bytes without FCS.
pub const ETHERNET_SIZES: RangeInclusive<usize> = HEADER_BYTES..=1514;

/// A frame of `size` bytes from 198.18.0.1 to 198.18.0.2, a network for benchmarks (RFC 2544,
/// appendix C.2.2), with port 9 (discard). `size` must be within [`SIZES`].
///
/// # Panics
/// If the size is out of range.
#[must_use]
pub fn udp_packet(size: usize) -> Vec<u8> {
    udp_packet_of(size, ENDS)
}

/// Source and destination of [`udp_packet`]: address and port.
pub const ENDS: [([u8; 4], u16); 2] = [([198, 18, 0, 1], 9), ([198, 18, 0, 2], 9)];

/// Like [`udp_packet`], with another source and destination.
///
/// # Panics
/// If the size is out of range.
#[must_use]
pub fn udp_packet_of(size: usize, [source, destination]: [([u8; 4], u16); 2]) -> Vec<u8> {
    assert!(SIZES.contains(&size), "a packet of {size} bytes");
    let mut frame = vec![0; size];
    frame[..6].copy_from_slice(&[0x02, 0, 0, 0, 0, 2]);
    frame[6..12].copy_from_slice(&[0x02, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let mut addresses = [0; 8];
    addresses[..4].copy_from_slice(&source.0);
    addresses[4..].copy_from_slice(&destination.0);
    let (ip_length, udp_length) = ((size - 14) as u16, (size - 34) as u16);
    let ip = &mut frame[14..];
    (ip[0], ip[8], ip[9]) = (0x45, 64, 17);
    ip[2..4].copy_from_slice(&ip_length.to_be_bytes());
    ip[12..20].copy_from_slice(&addresses);
    let sum = checksum(&ip[..20], 0);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = &mut ip[20..];
    udp[..2].copy_from_slice(&source.1.to_be_bytes());
    udp[2..4].copy_from_slice(&destination.1.to_be_bytes());
    udp[4..6].copy_from_slice(&udp_length.to_be_bytes());
    for (at, byte) in udp[8..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    let pseudo = u32::from(!checksum(&addresses, 17 + u32::from(udp_length)));
    // 0 would mean that there is no checksum. (RFC 768)
    let sum = match checksum(udp, pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
    frame
}
