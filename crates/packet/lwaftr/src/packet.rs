//! What is read of packets of IPv4: whole ones, and the beginnings that ICMP errors quote.

use carina_wire::inet::{Ipv4Header, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP, checksum};

use crate::config::Rules;

/// A packet, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet4<'a> {
    /// All bytes that there are.
    pub bytes: &'a [u8],
    /// Length of the header.
    pub header_bytes: usize,
    /// What the payload is.
    pub protocol: u8,
    /// A fragment but the first.
    pub is_later_fragment: bool,
    /// Where it comes from.
    pub source: [u8; 4],
    /// Where it goes.
    pub destination: [u8; 4],
}

/// In which direction a packet goes through a softwire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the owner of its destination.
    ToB4,
    /// From the owner of its source.
    FromB4,
}

/// Protocols whose header begins with the source and the destination port.
const WITH_PORTS: [u8; 5] = [PROTOCOL_TCP, PROTOCOL_UDP, DCCP, SCTP, UDP_LITE];
const DCCP: u8 = 33;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Type of ICMP's echo replies. (RFC 792)
const ECHO_REPLY: u8 = 0;
/// Type of ICMP's echo requests.
const ECHO_REQUEST: u8 = 8;

impl<'a> Packet4<'a> {
    /// A packet whose header was checked.
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

    /// The beginning of a packet, as an ICMP error quotes it: its length and checksum are not
    /// looked at. `None` when not even the header is there.
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

    /// What follows the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[self.header_bytes..]
    }

    /// Whether it is a message of ICMP.
    #[must_use]
    pub fn is_icmp(&self) -> bool {
        self.protocol == PROTOCOL_ICMP
    }

    /// Whether it is a message of ICMP with a wrong checksum.
    #[must_use]
    pub fn is_damaged_icmp(&self) -> bool {
        self.is_icmp() && checksum(self.payload(), 0) != 0
    }

    /// The port by which its softwire is looked up, `None` if it has none: the destination port
    /// towards a B4, the source port from there; the identifier of an echo (RFC 7596 §8.1); of an
    /// error that of the packet which it quotes, which went the other way (RFC 5508 REQ-3).
    #[must_use]
    #[inline]
    pub fn port(&self, way: Way, rules: &Rules) -> Option<u16> {
        if self.is_later_fragment {
            return None;
        }
        let at = |at: usize| {
            let port = self.payload().get(at..at + 2)?;
            Some(u16::from_be_bytes([port[0], port[1]]))
        };
        if WITH_PORTS.contains(&self.protocol) {
            return at(if way == Way::ToB4 { 2 } else { 0 });
        }
        if !self.is_icmp() {
            // What has no ports is taken to have them by Snabb alone.
            let place = if way == Way::ToB4 { 2 } else { 0 };
            return at(place).filter(|_| !rules.knows_protocols_with_ports);
        }
        let kind = *self.payload().first()?;
        match kind {
            ECHO_REPLY | ECHO_REQUEST => {
                let has_port_0 = match way {
                    Way::ToB4 => kind == ECHO_REQUEST,
                    Way::FromB4 => kind == ECHO_REPLY,
                };
                if has_port_0 && !rules.has_ports_of_icmp {
                    Some(0)
                } else {
                    at(4)
                }
            }
            _ if is_error(kind) => {
                let quoted = Packet4::quoted(self.payload().get(8..)?)?;
                let by_source = way == Way::ToB4 || !rules.has_ports_of_icmp;
                quoted.own_port(if by_source { Way::FromB4 } else { Way::ToB4 })
            }
            _ => None,
        }
    }

    /// The port of a packet that is quoted, which is not looked into any deeper.
    fn own_port(&self, way: Way) -> Option<u16> {
        let is_echo = matches!(self.payload().first(), Some(&(ECHO_REPLY | ECHO_REQUEST)));
        if self.is_icmp() && !is_echo {
            None
        } else {
            self.port(way, &Rules::RFC)
        }
    }

    /// Whether an ICMP error about it may be sent: none is about errors, fragments but the first,
    /// groups, and sources that are no single host. (RFC 1812 §4.3.2.7)
    #[must_use]
    pub fn may_be_answered(&self) -> bool {
        let is_error = self.is_icmp() && self.payload().first().is_none_or(|kind| is_error(*kind));
        let is_host = |address: [u8; 4]| !matches!(address[0], 0 | 127 | 224..=255);
        let is_group = self.destination[0] >= 224;
        !is_error && !self.is_later_fragment && !is_group && is_host(self.source)
    }
}

/// Whether a type of ICMP quotes a packet: all do but queries and their answers, which are known.
fn is_error(kind: u8) -> bool {
    !matches!(kind, 0 | 8 | 9 | 10 | 13..=18 | 42 | 43)
}

/// Counts a hop in a header of IPv4, whose TTL must not be 0. The checksum follows. (RFC 1624)
#[inline]
pub fn count_hop(header: &mut [u8]) {
    header[8] -= 1;
    let sum = u32::from(u16::from_be_bytes([header[10], header[11]])) + 0x0100;
    // One's complement; 0xffff is never the sum of a header that is not zero.
    let sum = (sum + u32::from(sum >= 0xffff)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Gives a packet that was put together identification 0, without flags.
pub fn clear_identification(packet: &mut [u8]) {
    packet[4..8].fill(0);
    renew_sum(packet);
}

/// Gives a fragment another identification.
pub fn set_identification(packet: &mut [u8], identification: u16) {
    packet[4..6].copy_from_slice(&identification.to_be_bytes());
    renew_sum(packet);
}

/// Renews the checksum of a header of IPv4 that has its length.
fn renew_sum(packet: &mut [u8]) {
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    packet[10..12].fill(0);
    let sum = checksum(&packet[..header_bytes], 0);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}
