//! Reads UDP in IPv4 and IPv6, as far as needed to find RINA in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use carina_wire::ipv6::{IPV6_BYTES, Upper};

use super::layer::Layer;

/// An IP address and a UDP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Endpoint(SocketAddr);

impl Endpoint {
    /// Whether the port is the port of RINA over UDP.
    pub(crate) fn is_rina(&self) -> bool {
        self.0.port() == RINA_PORT
    }
}

/// Header of a UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Datagram {
    pub from: Endpoint,
    pub to: Endpoint,
    /// Length of the payload when it was sent, in bytes.
    pub bytes: usize,
}

impl Datagram {
    /// Reads an IP packet, of which the capture may hold only the first of `original` bytes.
    /// Returns the datagram and its captured payload. `None` for fragments, and for packets that
    /// are not UDP.
    pub(crate) fn decode(
        ethertype: u16,
        packet: &[u8],
        original: usize,
    ) -> Option<(Datagram, &[u8])> {
        let (from, to, header, length) = match ethertype {
            ETHERTYPE_IPV4 => ipv4(packet)?,
            ETHERTYPE_IPV6 => ipv6(packet)?,
            _ => return None,
        };
        // Bytes behind the packet are the padding of a short frame.
        let end = length.min(original);
        let udp = packet.get(header..end.min(packet.len()))?;
        let (&[s0, s1, d0, d1, l0, l1, _, _], payload) = udp.split_first_chunk()?;
        let bytes = usize::from(u16::from_be_bytes([l0, l1])).checked_sub(UDP_HEADER)?;
        if header + UDP_HEADER + bytes > end {
            return None;
        }
        let datagram = Datagram {
            from: Endpoint(SocketAddr::new(from, u16::from_be_bytes([s0, s1]))),
            to: Endpoint(SocketAddr::new(to, u16::from_be_bytes([d0, d1]))),
            bytes,
        };
        Some((datagram, &payload[..bytes.min(payload.len())]))
    }

    pub(crate) fn layer(&self) -> Layer {
        let (from, to) = (self.from.0, self.to.0);
        let mut layer = Layer::new("udp", format!("{from} > {to}"));
        layer.field("src", from.to_string());
        layer.field("dst", to.to_string());
        layer.field("bytes", self.bytes);
        layer
    }
}

/// Source and destination, length of the header, length of the packet. `None` if the packet is a
/// fragment or is not UDP.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, usize, usize)> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0;
    let words = header[0] & 0x0f;
    if header[0] >> 4 != 4 || words < 5 || header[9] != UDP || is_fragment {
        return None;
    }
    let address = |at: usize| {
        let bytes = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        IpAddr::V4(Ipv4Addr::from(bytes))
    };
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    Some((address(12), address(16), usize::from(words) * 4, length))
}

fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, usize, usize)> {
    let header: &[u8; IPV6_BYTES] = packet.first_chunk()?;
    let upper = Upper::seen(packet)?;
    if upper.protocol != UDP || upper.part.is_some_and(|part| !part.is_whole()) {
        return None;
    }
    let address = |at: usize| {
        let bytes = header[at..].first_chunk::<16>();
        bytes.map(|bytes| IpAddr::V6(Ipv6Addr::from(*bytes)))
    };
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    Some((
        address(8)?,
        address(24)?,
        upper.start,
        header.len() + length,
    ))
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Protocol number of UDP.
const UDP: u8 = 17;
const UDP_HEADER: usize = 8;
/// Port of RINA over UDP.
const RINA_PORT: u16 = 3359;
