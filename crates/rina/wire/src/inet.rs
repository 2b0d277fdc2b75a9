//! Internet headers, as far as apps of frames need them: IPv4 (RFC 791), its checksum (RFC 1071),
//! and ARP for IPv4 (RFC 826).

/// Ethertype of IPv4.
pub const ETHERTYPE_IPV4: u16 = 0x0800;
/// Ethertype of IPv6.
pub const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// Protocol number of IPv4 inside an IP packet.
pub const PROTOCOL_IPV4: u8 = 4;
/// Protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// Protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// Protocol number of IPv6 inside an IP packet.
pub const PROTOCOL_IPV6: u8 = 41;
/// Protocol number of GRE.
pub const PROTOCOL_GRE: u8 = 47;
/// Protocol number of ESP.
pub const PROTOCOL_ESP: u8 = 50;
/// Protocol number of ICMPv6.
pub const PROTOCOL_ICMP6: u8 = 58;
/// Protocol number of L2TPv3.
pub const PROTOCOL_L2TP: u8 = 115;

/// Computes the Internet checksum over `bytes`. `start` is the sum of further words, such as those
/// of a pseudo header. (RFC 1071)
#[must_use]
pub fn checksum(bytes: &[u8], start: u32) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u64::from(u16::from_be_bytes([word[0], low]))
    });
    let mut sum = words.sum::<u64>() + u64::from(start);
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

/// Updates the checksum `sum` after one word changed from `old` to `new`. A wrong checksum stays
/// wrong. (RFC 1624 §3)
#[must_use]
#[inline]
pub fn checksum_after(sum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!sum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// Returns the unfolded sum over the IPv6 pseudo header: source and destination addresses, length
/// of the upper-layer packet, and protocol. (RFC 8200 §8.1)
#[must_use]
pub fn pseudo_sum6(addresses: &[u8; 32], length: usize, protocol: u8) -> u32 {
    u32::from(!checksum(addresses, 0)) + length as u32 + u32::from(protocol)
}

/// A decoded and checked IPv4 header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Header {
    /// Length of the IPv4 header in bytes, 20 to 60.
    pub header_bytes: usize,
    /// Length of header and payload in bytes, as the header states it; at most the length of the
    /// bytes given to the decoder.
    pub total_bytes: usize,
    /// Time to live: the number of routers that the packet may still pass.
    pub ttl: u8,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Whether the packet is a fragment: the first, a middle or the last one.
    pub is_fragment: bool,
    /// Source IPv4 address.
    pub source: [u8; 4],
    /// Destination IPv4 address.
    pub destination: [u8; 4],
}

/// Why bytes are not an IPv4 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ipv4Error {
    /// There are fewer bytes than the header says, or than the shortest header has.
    Short,
    /// The version is not 4, or the length of the header is impossible.
    Header,
    /// The header's checksum is wrong.
    Checksum,
}

impl Ipv4Header {
    /// Decodes and checks the IPv4 header at the start of `packet`.
    ///
    /// # Errors
    /// The packet is truncated or malformed, or the header checksum is wrong.
    pub fn decode(packet: &[u8]) -> Result<Ipv4Header, Ipv4Error> {
        let head = packet.first_chunk::<20>().ok_or(Ipv4Error::Short)?;
        let header_bytes = usize::from(head[0] & 0x0f) * 4;
        if head[0] >> 4 != 4 || header_bytes < 20 {
            return Err(Ipv4Error::Header);
        }
        let total_bytes = usize::from(u16::from_be_bytes([head[2], head[3]]));
        if total_bytes < header_bytes {
            return Err(Ipv4Error::Header);
        }
        if packet.len() < total_bytes {
            return Err(Ipv4Error::Short);
        }
        if checksum(&packet[..header_bytes], 0) != 0 {
            return Err(Ipv4Error::Checksum);
        }
        let flags = u16::from_be_bytes([head[6], head[7]]);
        Ok(Ipv4Header {
            header_bytes,
            total_bytes,
            ttl: head[8],
            protocol: head[9],
            is_fragment: flags & 0x3fff != 0,
            source: [head[12], head[13], head[14], head[15]],
            destination: [head[16], head[17], head[18], head[19]],
        })
    }
}

/// An ARP message between Ethernet and IPv4. (RFC 826)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp4 {
    /// Whether this is a reply; otherwise a request.
    pub is_reply: bool,
    /// MAC and IPv4 address of the sender.
    pub sender: ([u8; 6], [u8; 4]),
    /// MAC and IPv4 address of the target. In a request the MAC address has no meaning.
    pub target: ([u8; 6], [u8; 4]),
}

/// Length of an encoded [`Arp4`] in bytes, without the Ethernet header.
pub const ARP4_BYTES: usize = 28;

impl Arp4 {
    /// Decodes the bytes after the Ethernet header; `None` for any other kind of ARP.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Arp4> {
        let bytes = bytes.first_chunk::<ARP4_BYTES>()?;
        let is_reply = match bytes[..8] {
            [0, 1, 8, 0, 6, 4, 0, 1] => false,
            [0, 1, 8, 0, 6, 4, 0, 2] => true,
            _ => return None,
        };
        let pair = |at: usize| {
            let (mut mac, mut ip) = ([0; 6], [0; 4]);
            mac.copy_from_slice(&bytes[at..at + 6]);
            ip.copy_from_slice(&bytes[at + 6..at + 10]);
            (mac, ip)
        };
        Some(Arp4 {
            is_reply,
            sender: pair(8),
            target: pair(18),
        })
    }

    /// Encodes the message as the bytes that follow the Ethernet header.
    #[must_use]
    pub fn encode(&self) -> [u8; ARP4_BYTES] {
        let mut bytes = [0; ARP4_BYTES];
        bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1 + u8::from(self.is_reply)]);
        for (at, (mac, ip)) in [(8, self.sender), (18, self.target)] {
            bytes[at..at + 6].copy_from_slice(&mac);
            bytes[at + 6..at + 10].copy_from_slice(&ip);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header from a capture, with a known checksum; many texts on RFC 1071 use it.
    const HEADER: [u8; 20] = [
        0x45, 0x00, 0x00, 0x14, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x80, 0xc0, 0xa8, 0x00,
        0x01, 0xc0, 0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn sum_of_a_right_header_is_zero() {
        assert_eq!(
            checksum(&HEADER, 0),
            checksum(&[], u32::from(!checksum(&HEADER, 0)))
        );
        assert_eq!(
            checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7], 0),
            0x220d
        );
        assert_eq!(checksum(&[0xff], 0), 0x00ff);
    }

    #[test]
    fn sum_follows_a_word_and_a_wrong_one_stays_wrong() {
        let mut header = HEADER;
        header[10..12].fill(0);
        for (at, value) in [(0, 0x45b8), (8, 0x3f11), (2, 0xffff), (4, 0)] {
            let right = checksum(&header, 0);
            let old = u16::from_be_bytes([header[at], header[at + 1]]);
            header[at..at + 2].copy_from_slice(&u16::to_be_bytes(value));
            assert_eq!(checksum_after(right, old, value), checksum(&header, 0));
            assert_ne!(checksum_after(right ^ 1, old, value), checksum(&header, 0));
        }
    }

    #[test]
    fn damaged_headers_are_refused() {
        let mut header = HEADER;
        header[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum(&header, 0).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        let decoded = Ipv4Header::decode(&header).unwrap();
        assert_eq!(
            (decoded.ttl, decoded.protocol, decoded.total_bytes),
            (64, 17, 20)
        );
        assert!(!decoded.is_fragment);
        assert_eq!(Ipv4Header::decode(&header[..19]), Err(Ipv4Error::Short));
        for (at, value, error) in [
            (0, 0x65, Ipv4Error::Header),
            (0, 0x44, Ipv4Error::Header),
            (3, 19, Ipv4Error::Header),
            (3, 21, Ipv4Error::Short),
            (8, 63, Ipv4Error::Checksum),
        ] {
            let mut bad = header;
            bad[at] = value;
            assert_eq!(Ipv4Header::decode(&bad), Err(error), "byte {at}");
        }
    }

    #[test]
    fn arp_reads_what_it_writes() {
        let arp = Arp4 {
            is_reply: true,
            sender: ([1, 2, 3, 4, 5, 6], [10, 0, 0, 1]),
            target: ([6, 5, 4, 3, 2, 1], [10, 0, 0, 2]),
        };
        let mut bytes = arp.encode();
        assert_eq!(Arp4::decode(&bytes), Some(arp));
        bytes[1] = 6;
        assert_eq!(Arp4::decode(&bytes), None);
        assert_eq!(Arp4::decode(&bytes[..27]), None);
    }
}
