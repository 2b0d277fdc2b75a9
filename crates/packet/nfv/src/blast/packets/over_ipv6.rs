//! Generated packets over IPv6.
//!
//! ```text
//!   Ethernet 14 | IPv6 40 | UDP 8 | trial u16, number u64, time u64 (ns) | fill
//! ```
//!
//! UDP over IPv6 needs a checksum (RFC 8200 §8.1), so making a packet reads all of its bytes.

use std::net::Ipv6Addr;

use carina_apps::prefix::Prefix6;
use carina_wire::inet::{ETHERTYPE_IPV6, PROTOCOL_UDP, checksum, pseudo_sum6};

use super::{FLOW_PORT, Stamp, Synthesis};

/// Bytes in front of the stamp.
pub(super) const HEADERS: usize = 62;
const IP: usize = 14;
const UDP: usize = 54;

/// A packet of `bytes` bytes, still without destination address and stamp.
pub(super) fn packet(bytes: usize, synthesis: &Synthesis, source: Ipv6Addr) -> Vec<u8> {
    let mut frame = vec![0; bytes];
    frame[..6].copy_from_slice(&synthesis.destination_mac.0);
    frame[6..12].copy_from_slice(&synthesis.source_mac.0);
    frame[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
    let length = ((bytes - UDP) as u16).to_be_bytes();
    frame[IP] = 0x60;
    frame[18..20].copy_from_slice(&length);
    (frame[20], frame[21]) = (PROTOCOL_UDP, 64);
    frame[22..38].copy_from_slice(&source.octets());
    frame[UDP..UDP + 2].copy_from_slice(&FLOW_PORT.to_be_bytes());
    frame[UDP + 2..UDP + 4].copy_from_slice(&synthesis.port.to_be_bytes());
    frame[UDP + 4..UDP + 6].copy_from_slice(&length);
    for (at, byte) in frame[HEADERS..].iter_mut().enumerate() {
        *byte = at as u8;
    }
    frame
}

/// Writes flow, destination, stamp and checksum into a copy of [`packet`].
pub(super) fn stamp(frame: &mut [u8], flows: u16, destinations: Prefix6, stamp: Stamp) {
    if flows > 1 {
        let port = FLOW_PORT + (stamp.number % u64::from(flows)) as u16;
        frame[UDP..UDP + 2].copy_from_slice(&port.to_be_bytes());
    }
    let first = destinations.address().to_bits();
    let host = match 128 - u32::from(destinations.bits()) {
        bits @ 0..64 => u128::from(stamp.number % (1 << bits)),
        _ => u128::from(stamp.number),
    };
    frame[38..UDP].copy_from_slice(&(first + host).to_be_bytes());
    stamp.write(&mut frame[HEADERS..]);
    frame[UDP + 6..UDP + 8].fill(0);
    let (head, udp) = frame.split_at_mut(UDP);
    let Some(addresses) = head.last_chunk() else {
        return;
    };
    let pseudo = pseudo_sum6(addresses, udp.len(), PROTOCOL_UDP);
    let sum = match checksum(udp, pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    udp[6..8].copy_from_slice(&sum.to_be_bytes());
}

/// Whether the bytes behind the MAC addresses and tags are a UDP packet over IPv6, without
/// extension headers.
pub(super) fn is_udp(packet: &[u8]) -> bool {
    packet.first().is_some_and(|first| first >> 4 == 6) && packet.get(6) == Some(&PROTOCOL_UDP)
}
