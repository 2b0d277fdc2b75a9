//! Headers of IP packets, as far as a link must read them. (RFC 791 §3.1, RFC 8200 §3)

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use carina_wire::inet::checksum_after;

/// The fields of an IP packet that decide where it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Address of the sender.
    pub source: IpAddr,
    /// Address of the receiver.
    pub destination: IpAddr,
    /// Differentiated services code point, 0 to 63. (RFC 2474)
    pub dscp: u8,
}

impl Packet {
    /// Reads the header. `None` if the bytes are not exactly one packet of IPv4 or IPv6.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Packet> {
        Packet::read_head(bytes, bytes.len())
    }

    /// Reads the header of a packet of `length` bytes, of which `bytes` are the first.
    #[must_use]
    pub fn read_head(bytes: &[u8], length: usize) -> Option<Packet> {
        match bytes.first()? >> 4 {
            4 => Packet::read_v4(bytes, length),
            6 => Packet::read_v6(bytes, length),
            _ => None,
        }
    }

    fn read_v4(bytes: &[u8], length: usize) -> Option<Packet> {
        let header = bytes.first_chunk::<V4_BYTES>()?;
        let header_bytes = usize::from(header[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_bytes < V4_BYTES || header_bytes > total || total != length {
            return None;
        }
        let address = |at: usize| {
            Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]).into()
        };
        Some(Packet {
            source: address(12),
            destination: address(16),
            dscp: header[1] >> 2,
        })
    }

    fn read_v6(bytes: &[u8], length: usize) -> Option<Packet> {
        let header = bytes.first_chunk::<V6_BYTES>()?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if V6_BYTES + payload != length {
            return None;
        }
        let address = |at: usize| {
            let octets: [u8; 16] = std::array::from_fn(|n| header[at + n]);
            Ipv6Addr::from(octets).into()
        };
        Some(Packet {
            source: address(8),
            destination: address(24),
            dscp: (header[0] & 0xf) << 2 | header[1] >> 6,
        })
    }

    /// Whether the packet is for several receivers: multicast, or the broadcast of the local link.
    #[must_use]
    pub fn is_to_many(&self) -> bool {
        match self.destination {
            IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_multicast(),
        }
    }
}

/// Lowers the option *maximum segment size* of a TCP SYN to what an MTU of `mtu` bytes carries, and
/// adjusts the checksum unless `lacks_checksum`. Leaves other packets as they are. Returns whether
/// it changed the packet. (RFC 9293 §3.7.1)
pub fn clamp_mss(packet: &mut [u8], mtu: usize, lacks_checksum: bool) -> bool {
    let Some((transport, header_bytes)) = tcp_of(packet) else {
        return false;
    };
    let mss_max = mtu.saturating_sub(header_bytes + TCP_BYTES);
    let Ok(mss_max) = u16::try_from(mss_max) else {
        return false;
    };
    let tcp = &mut packet[transport..];
    if tcp.len() < TCP_BYTES || tcp[13] & TCP_SYN == 0 {
        return false;
    }
    let options_end = usize::from(tcp[12] >> 4) * 4;
    let Some(at) = mss_option(tcp, options_end) else {
        return false;
    };
    let mss = u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    if mss <= mss_max {
        return false;
    }
    tcp[at..at + 2].copy_from_slice(&mss_max.to_be_bytes());
    if !lacks_checksum {
        // An option at an odd offset contributes its bytes in the other order.
        let swap = |value: u16| {
            if at % 2 == 0 {
                value
            } else {
                value.swap_bytes()
            }
        };
        let checksum = u16::from_be_bytes([tcp[16], tcp[17]]);
        let checksum = checksum_after(checksum, swap(mss), swap(mss_max));
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
    true
}

/// Whether a packet, of which `head` are the first bytes, may have a *maximum segment size* that
/// [`clamp_mss`] lowers: it is a TCP SYN.
#[must_use]
pub fn is_tcp_syn(head: &[u8]) -> bool {
    let flags = tcp_of(head).and_then(|(transport, _)| head.get(transport + 13));
    flags.is_some_and(|flags| flags & TCP_SYN != 0)
}

/// The offset of the TCP header of an unfragmented packet, and the length of an IP header without
/// options.
fn tcp_of(packet: &[u8]) -> Option<(usize, usize)> {
    match packet.first()? >> 4 {
        4 => {
            let header = packet.first_chunk::<V4_BYTES>()?;
            let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
            let at = usize::from(header[0] & 0xf) * 4;
            let is_tcp = header[9] == TCP && !is_fragment && at <= packet.len();
            is_tcp.then_some((at, V4_BYTES))
        }
        6 => {
            let header = packet.first_chunk::<V6_BYTES>()?;
            (header[6] == TCP).then_some((V6_BYTES, V6_BYTES))
        }
        _ => None,
    }
}

/// The offset of the value of the option *maximum segment size* in a TCP header.
fn mss_option(tcp: &[u8], options_end: usize) -> Option<usize> {
    let options_end = options_end.min(tcp.len());
    let mut at = TCP_BYTES;
    while at < options_end {
        match tcp[at] {
            0 => return None,
            1 => at += 1,
            kind => {
                let length = usize::from(*tcp.get(at + 1)?);
                if length < 2 || at + length > options_end {
                    return None;
                }
                if kind == 2 && length == 4 {
                    return Some(at + 2);
                }
                at += length;
            }
        }
    }
    None
}

const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const TCP: u8 = 6;
const TCP_SYN: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// A SYN of IPv4 from 10.9.1.1 to 10.9.1.2 with an MSS of 1460 after `padding` options that do
    /// nothing, with its checksum.
    fn syn(padding: usize) -> Vec<u8> {
        let options = (4 + padding).next_multiple_of(4);
        let length = 40 + options;
        let mut packet = vec![0; length];
        packet[0] = 0x45;
        packet[1] = 46 << 2;
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        packet[9] = TCP;
        packet[12..20].copy_from_slice(&[10, 9, 1, 1, 10, 9, 1, 2]);
        packet[32] = ((20 + options) / 4) as u8 * 16;
        packet[33] = TCP_SYN;
        packet[40..40 + padding].fill(1);
        packet[40 + padding..44 + padding].copy_from_slice(&[2, 4, 5, 180]);
        let sum = checksum(&packet);
        packet[36..38].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    /// The checksum of the TCP segment as if its field were zero.
    fn checksum(packet: &[u8]) -> u16 {
        let mut copy = packet.to_vec();
        copy[36..38].fill(0);
        let mut sum = u32::from(TCP) + (packet.len() - 20) as u32;
        for pair in copy[12..].chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair[1]]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    #[test]
    fn header_of_both_versions_is_read() {
        let packet = Packet::read(&syn(0)).unwrap();
        assert_eq!(packet.source.to_string(), "10.9.1.1");
        assert_eq!(packet.destination.to_string(), "10.9.1.2");
        assert_eq!(packet.dscp, 46);
        let mut v6 = vec![0; 48];
        v6[..6].copy_from_slice(&[0x6b, 0x80, 0, 0, 0, 8]);
        v6[23] = 1;
        v6[24] = 0xff;
        let packet = Packet::read(&v6).unwrap();
        assert_eq!(packet.source.to_string(), "::1");
        assert_eq!(packet.dscp, 46);
        assert!(packet.is_to_many());
    }

    #[test]
    fn bytes_that_are_no_whole_packet_are_refused() {
        let whole = syn(0);
        for length in 0..whole.len() {
            assert_eq!(Packet::read(&whole[..length]), None, "{length}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(Packet::read(&longer), None);
        let mut short_header = whole.clone();
        short_header[0] = 0x44;
        assert_eq!(Packet::read(&short_header), None);
    }

    #[test]
    fn mss_is_lowered_and_the_checksum_stays_right() {
        for padding in 0..4 {
            let mut packet = syn(padding);
            assert!(clamp_mss(&mut packet, 1300, false), "{padding}");
            let found = u16::from_be_bytes([packet[42 + padding], packet[43 + padding]]);
            assert_eq!(found, 1260);
            let stated = u16::from_be_bytes([packet[36], packet[37]]);
            assert_eq!(stated, checksum(&packet), "{padding}");
            assert!(!clamp_mss(&mut packet, 1300, false));
        }
        let mut partial = syn(0);
        assert!(clamp_mss(&mut partial, 1300, true));
        assert_eq!(partial[36..38], syn(0)[36..38]);
    }

    #[test]
    fn damaged_options_change_nothing() {
        for (at, value) in [(41, 0), (41, 1), (41, 200), (32, 0), (32, 0xf0), (33, 0)] {
            let mut packet = syn(0);
            packet[at] = value;
            let before = packet.clone();
            // A header that claims more options than there are bytes still has this one.
            let changes = (at, value) == (32, 0xf0);
            assert_eq!(clamp_mss(&mut packet, 1300, false), changes, "{at} {value}");
            assert_eq!(packet == before, !changes);
        }
    }
}
