//! Reads from a frame what IPFIX measures.

use carina_frame::Frame;
use carina_wire::ether::{TPID_CUSTOMER, TPID_PROVIDER};
use carina_wire::inet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_ICMP, PROTOCOL_ICMP6, PROTOCOL_TCP, PROTOCOL_UDP,
};
use carina_wire::ipv6::{IPV6_BYTES, Upper};

/// The fields that identify a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// IP version.
    pub version: Version,
    /// Source address; zeros follow an IPv4 address.
    pub source: [u8; 16],
    /// Destination address; zeros follow an IPv4 address.
    pub destination: [u8; 16],
    /// Protocol number, found behind extension headers.
    pub protocol: u8,
    /// Source and destination port. Both are 0 for fragments other than the first. For ICMP they
    /// are 0, and type and code.
    pub ports: [u16; 2],
    /// VLAN of the outermost tag, or 0 without a tag.
    pub vlan: u16,
}

/// An IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The properties of one packet that a flow record sums up: its flow, length and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The flow that the packet belongs to.
    pub key: FlowKey,
    /// Length from the IP header on in bytes, as far as the packet is in the frame. (RFC 7012,
    /// octetDeltaCount)
    pub bytes: u64,
    /// The TCP flags; 0 for other protocols.
    pub tcp_flags: u16,
}

/// Why the app `ipfix` does not count a frame in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// The frame has no IP packet.
    NotIp,
    /// The packet is truncated, or its header is malformed.
    Malformed,
}

/// Largest number of VLAN tags that are skipped.
const TAGS_MAX: usize = 2;
/// SCTP. Like TCP and UDP, it begins with its ports.
const SCTP: u8 = 132;

impl Packet {
    /// Reads the packet of a frame.
    ///
    /// # Errors
    /// The frame cannot be measured.
    pub fn read(frame: &Frame) -> Result<Packet, Unmeasured> {
        let bytes = frame.bytes();
        let word = |at: usize| {
            let word = bytes.get(at..at + 2)?;
            Some(u16::from_be_bytes([word[0], word[1]]))
        };
        let mut vlan = frame.vlan().map(|control| control & 0x0fff);
        let mut at = 12;
        for _ in 0..TAGS_MAX {
            if !matches!(word(at), Some(TPID_CUSTOMER | TPID_PROVIDER)) {
                break;
            }
            vlan = vlan.or(word(at + 2).map(|control| control & 0x0fff));
            at += 4;
        }
        let ethertype = word(at).ok_or(Unmeasured::NotIp)?;
        let packet = &bytes[at + 2..];
        let mut read = match ethertype {
            ETHERTYPE_IPV4 => ipv4(packet),
            ETHERTYPE_IPV6 => ipv6(packet),
            _ => return Err(Unmeasured::NotIp),
        };
        if let Some(read) = &mut read {
            read.key.vlan = vlan.unwrap_or(0);
        }
        read.ok_or(Unmeasured::Malformed)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn ipv4(packet: &[u8]) -> Option<Packet> {
    let head = packet.first_chunk::<20>()?;
    let (header, total) = (usize::from(head[0] & 0x0f) * 4, half(head, 2));
    let is_good = head[0] >> 4 == 4 && header >= 20 && usize::from(total) >= header;
    // Ethernet padding may follow the packet, and a truncated frame may be shorter.
    let end = packet.len().min(total.into());
    if !is_good || end < header {
        return None;
    }
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source[..4].copy_from_slice(&head[12..16]);
    destination[..4].copy_from_slice(&head[16..20]);
    let is_later = head[6] & 0x1f != 0 || head[7] != 0;
    let key = FlowKey {
        version: Version::V4,
        source,
        destination,
        protocol: head[9],
        ports: [0; 2],
        vlan: 0,
    };
    let rest: &[u8] = if is_later { &[] } else { &packet[header..end] };
    Some(with_ports(key, rest, end))
}

fn ipv6(packet: &[u8]) -> Option<Packet> {
    let head = packet.first_chunk::<IPV6_BYTES>()?;
    let upper = Upper::seen(packet)?;
    let key = FlowKey {
        version: Version::V6,
        source: head[8..24].try_into().ok()?,
        destination: head[24..].try_into().ok()?,
        protocol: upper.protocol,
        ports: [0; 2],
        vlan: 0,
    };
    let transport = packet.get(upper.start..upper.end)?;
    Some(with_ports(key, transport, upper.end))
}

/// Reads ports, ICMP type and code, and TCP flags from the beginning of a transport header, as far
/// as it is present.
fn with_ports(mut key: FlowKey, transport: &[u8], bytes: usize) -> Packet {
    let mut tcp_flags = 0;
    match (key.protocol, transport) {
        (PROTOCOL_TCP | PROTOCOL_UDP | SCTP, [_, _, _, _, ..]) => {
            key.ports = [half(transport, 0), half(transport, 2)];
        }
        (PROTOCOL_ICMP | PROTOCOL_ICMP6, [_, _, ..]) => key.ports = [0, half(transport, 0)],
        _ => {}
    }
    if key.protocol == PROTOCOL_TCP && transport.len() >= 14 {
        // The flags and the reserved bits. (RFC 9293 §3.1)
        tcp_flags = half(transport, 12) & 0x0fff;
    }
    Packet {
        key,
        bytes: bytes as u64,
        tcp_flags,
    }
}

#[cfg(test)]
mod tests {
    use carina_frame::{Pool, PoolConfig};

    use super::*;

    fn bytes_of(ethertype: u16, packet: &[u8]) -> Option<u64> {
        let pool = Pool::new(PoolConfig::default()).unwrap();
        let frame = [&[0; 12][..], &ethertype.to_be_bytes(), packet].concat();
        let read = Packet::read(&pool.frame_of(&frame).unwrap());
        read.ok().map(|packet| packet.bytes)
    }

    #[test]
    fn bytes_are_those_that_are_there_whatever_the_header_says() {
        let mut four = [0; 30];
        (four[0], four[3]) = (0x45, 28);
        let mut six = [0; 60];
        (six[0], six[5], six[6]) = (0x60, 18, 17);
        let padded = [
            bytes_of(ETHERTYPE_IPV4, &four),
            bytes_of(ETHERTYPE_IPV6, &six),
        ];
        assert_eq!(padded, [Some(28), Some(58)]);
        four[2..4].fill(0xff);
        six[4..6].fill(0xff);
        let cut = [
            bytes_of(ETHERTYPE_IPV4, &four),
            bytes_of(ETHERTYPE_IPV6, &six),
        ];
        assert_eq!(cut, [Some(30), Some(60)]);
    }
}
