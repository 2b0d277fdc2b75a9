//! The fields of IPv4 packets that an AFTR needs: of whole packets, and of the beginnings of
//! packets that ICMP errors quote.

use carina_wire::inet::{Ipv4Header, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP, checksum};

use crate::config::Rules;

/// An IPv4 packet, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet4<'a> {
    /// The bytes that are present, from the IPv4 header on.
    pub bytes: &'a [u8],
    /// Length of the header, in bytes.
    pub header_bytes: usize,
    /// Protocol number of the payload.
    pub protocol: u8,
    /// Whether the packet is a fragment other than the first.
    pub is_later_fragment: bool,
    /// Source address.
    pub source: [u8; 4],
    /// Destination address.
    pub destination: [u8; 4],
}

/// Direction of a packet through a softwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketDirection {
    /// The packet goes to the B4 that owns its destination address.
    ToB4,
    /// The packet comes from the B4 that owns its source address.
    FromB4,
}

/// Protocols whose header begins with the source and the destination port.
const WITH_PORTS: [u8; 5] = [PROTOCOL_TCP, PROTOCOL_UDP, DCCP, SCTP, UDP_LITE];
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// ICMP type of an echo reply. (RFC 792)
const ECHO_REPLY: u8 = 0;
/// ICMP type of an echo request.
const ECHO_REQUEST: u8 = 8;

impl<'a> Packet4<'a> {
    /// Describes a whole packet whose header has been checked.
    #[must_use]
    #[inline]
    pub fn checked(bytes: &'a [u8], header: &Ipv4Header) -> Packet4<'a> {
        Packet4 {
            bytes,
            header_bytes: header.header_bytes,
            protocol: header.protocol,
            is_later_fragment: bytes[6] & 0x1f != 0 || bytes[7] != 0,
            source: header.source,
            destination: header.destination,
        }
    }

    /// Describes the beginning of a packet, as an ICMP error quotes it; does not check its length
    /// and checksum. `None` if the header is incomplete or is not IPv4.
    #[must_use]
    pub fn quoted(bytes: &'a [u8]) -> Option<Packet4<'a>> {
        let head = bytes.first_chunk::<20>()?;
        let header_bytes = usize::from(head[0] & 0x0f) * 4;
        if head[0] >> 4 != 4 || header_bytes < 20 || bytes.len() < header_bytes {
            return None;
        }
        Some(Packet4 {
            bytes,
            header_bytes,
            protocol: head[9],
            is_later_fragment: head[6] & 0x1f != 0 || head[7] != 0,
            source: [head[12], head[13], head[14], head[15]],
            destination: [head[16], head[17], head[18], head[19]],
        })
    }

    /// The bytes behind the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_bytes..]
    }

    /// Whether the packet is ICMP.
    #[must_use]
    pub fn is_icmp(&self) -> bool {
        self.protocol == PROTOCOL_ICMP
    }

    /// Whether the packet is ICMP with a wrong checksum.
    #[must_use]
    pub fn is_damaged_icmp(&self) -> bool {
        self.is_icmp() && checksum(self.payload(), 0) != 0
    }

    /// The port by which to look up the packet's softwire, `None` if it has no port. Towards a B4
    /// it is the destination port, from a B4 the source port. Of an ICMP echo it is the identifier
    /// (RFC 7596 §8.1). Of an ICMP error it is the port of the quoted packet, which went in the
    /// other direction (RFC 5508 REQ-3).
    #[must_use]
    #[inline]
    pub fn port(&self, direction: PacketDirection, rules: &Rules) -> Option<u16> {
        if self.is_later_fragment {
            return None;
        }
        let at = |at: usize| {
            let port = self.payload().get(at..at + 2)?;
            Some(u16::from_be_bytes([port[0], port[1]]))
        };
        if WITH_PORTS.contains(&self.protocol) {
            return at(if direction == PacketDirection::ToB4 {
                2
            } else {
                0
            });
        }
        if !self.is_icmp() {
            // Only Snabb treats protocols without ports as if they had some.
            let place = if direction == PacketDirection::ToB4 {
                2
            } else {
                0
            };
            return at(place).filter(|_| !rules.knows_protocols_with_ports);
        }
        let kind = *self.payload().first()?;
        match kind {
            ECHO_REPLY | ECHO_REQUEST => {
                let has_port_0 = match direction {
                    PacketDirection::ToB4 => kind == ECHO_REQUEST,
                    PacketDirection::FromB4 => kind == ECHO_REPLY,
                };
                if has_port_0 && !rules.has_ports_of_icmp {
                    Some(0)
                } else {
                    at(4)
                }
            }
            _ if is_error(kind) => {
                let quoted = Packet4::quoted(self.payload().get(8..)?)?;
                let by_source = direction == PacketDirection::ToB4 || !rules.has_ports_of_icmp;
                quoted.own_port(if by_source {
                    PacketDirection::FromB4
                } else {
                    PacketDirection::ToB4
                })
            }
            _ => None,
        }
    }

    /// The port of a quoted packet. `None` if that packet is itself an ICMP error: its own
    /// quotation is not examined.
    fn own_port(&self, direction: PacketDirection) -> Option<u16> {
        let is_echo = matches!(self.payload().first(), Some(&(ECHO_REPLY | ECHO_REQUEST)));
        if self.is_icmp() && !is_echo {
            None
        } else {
            self.port(direction, &Rules::RFC)
        }
    }

    /// Whether an ICMP error about this packet may be sent. It may not about ICMP errors, fragments
    /// other than the first, packets to multicast or broadcast addresses, and packets whose source
    /// is not a single host. (RFC 1812 §4.3.2.7)
    #[must_use]
    pub fn may_be_answered(&self) -> bool {
        let is_error = self.is_icmp() && self.payload().first().is_none_or(|kind| is_error(*kind));
        let is_host = |address: [u8; 4]| !matches!(address[0], 0 | 127 | 224..=255);
        let is_group = self.destination[0] >= 224;
        !is_error && !self.is_later_fragment && !is_group && is_host(self.source)
    }
}

/// Whether an ICMP type is an error, which quotes a packet. All types are, except the known queries
/// and their replies.
fn is_error(kind: u8) -> bool {
    !matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43)
}

/// Decrements the TTL in an IPv4 header, which must not be 0, and updates the checksum. (RFC 1624)
#[inline]
pub fn count_hop(header: &mut [u8]) {
    header[8] -= 1;
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x0100;
    // One's complement addition. The sum of a header that is not all zeros is never 0xffff.
    let sum = (sum + u32::from(sum >= 0xffff)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Sets identification, flags and fragment offset of a reassembled packet to 0, and updates its
/// checksum.
pub fn clear_identification(packet: &mut [u8]) {
    packet[4..8].fill(0);
    renew_sum(packet);
}

/// Sets the identification of a fragment, and updates its checksum.
pub fn set_identification(packet: &mut [u8], identification: u16) {
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    renew_sum(packet);
}

/// Recomputes the checksum of an IPv4 header, whose length must be valid.
fn renew_sum(packet: &mut [u8]) {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header_bytes], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}
