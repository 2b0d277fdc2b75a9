//! Answers echo requests to the access point's own address.

use carina_wire::inet::{Ipv4Header, PROTOCOL_ICMP, checksum};

/// The reply to an ICMP echo request (RFC 792); `None` if the packet is not a valid one.
pub(super) fn echo_reply(packet: &[u8], header: &Ipv4Header) -> Option<Vec<u8>> {
    let is_echo = header.protocol == PROTOCOL_ICMP && !header.is_fragment;
    let at = header.header_bytes;
    let icmp = packet.get(at..).filter(|_| is_echo)?;
    if icmp.len() < 8 || icmp[..2] != [8, 0] || checksum(icmp, 0) != 0 {
        return None;
    }
    let mut reply = packet.to_vec();
    reply[12..16].copy_from_slice(&header.destination);
    reply[16..20].copy_from_slice(&header.source);
    reply[8] = 64;
    put_checksum(&mut reply[..at], 10);
    reply[at] = 0;
    put_checksum(&mut reply[at..], 2);
    Some(reply)
}

pub(super) fn put_checksum(bytes: &mut [u8], at: usize) {
    bytes[at..at + 2].fill(0);
    let sum = checksum(bytes, 0);
    bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
}
