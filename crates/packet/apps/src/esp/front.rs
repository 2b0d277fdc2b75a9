//! The headers that stay in front of ESP in transport mode. (RFC 4303 §3.1.1)
//!
//! For IPv6 these are the extension headers that routers on the path read. A received packet may
//! have further extension headers in front of ESP, which also stay.

use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, checksum_after};
use carina_wire::ipv6::{Boundary, IPV6_BYTES, Upper};

const ETHER: usize = 14;

/// The Ethernet and IP headers of a packet that is not fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// Length of the headers in bytes, IPv4 options and IPv6 extension headers included.
    pub bytes: usize,
    /// Length of the payload in bytes; the frame is at least that long.
    pub payload: usize,
    /// Protocol number of the payload.
    pub next: u8,
    /// Offset in an IPv6 packet of the field that has this number; `None` for IPv4.
    named_at: Option<usize>,
}

/// Where in an IPv6 packet the ESP header begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind the extension headers that routers on the path read.
    BehindTheWay,
    /// Behind all extension headers.
    BehindAll,
}

/// Why a frame has no such headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    /// The frame is not an IP packet.
    NotIp,
    /// The frame is shorter than its headers say.
    Length,
    /// The packet is a fragment.
    Fragment,
}

impl Front {
    /// Reads the headers of a frame.
    #[inline]
    pub(super) fn of(frame: &[u8], place: Place) -> Result<Front, Other> {
        let ethertype = frame.get(12..ETHER).ok_or(Other::NotIp)?;
        let packet = &frame[ETHER..];
        let version = packet.first().ok_or(Other::NotIp)? >> 4;
        let front = match (version, u16::from_be_bytes([ethertype[0], ethertype[1]])) {
            (4, ETHERTYPE_IPV4) => Front::of_ipv4(packet)?,
            (6, ETHERTYPE_IPV6) => Front::of_ipv6(packet, place)?,
            _ => return Err(Other::NotIp),
        };
        let is_whole = frame.len() >= front.bytes + front.payload;
        is_whole.then_some(front).ok_or(Other::Length)
    }

    fn of_ipv4(packet: &[u8]) -> Result<Front, Other> {
        let header = packet.first_chunk::<20>().ok_or(Other::Length)?;
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_bytes < 20 || total < header_bytes {
            return Err(Other::Length);
        }
        // The flag "more fragments" or an offset is set. (RFC 791 §3.1)
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(Other::Fragment);
        }
        Ok(Front {
            bytes: ETHER + header_bytes,
            payload: total - header_bytes,
            next: header[9],
            named_at: None,
        })
    }

    fn of_ipv6(packet: &[u8], place: Place) -> Result<Front, Other> {
        let header = packet.first_chunk::<IPV6_BYTES>().ok_or(Other::Length)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let upper = Upper::seen(packet).ok_or(Other::Length)?;
        if upper.part.is_some_and(|part| !part.is_whole()) {
            return Err(Other::Fragment);
        }
        let Boundary { next, named_at, at } = match place {
            Place::BehindTheWay => upper.path_boundary,
            Place::BehindAll => Boundary {
                next: upper.protocol,
                named_at: upper.named_at,
                at: upper.start,
            },
        };
        let payload = (IPV6_BYTES + length).checked_sub(at);
        Ok(Front {
            bytes: ETHER + at,
            payload: payload.ok_or(Other::Length)?,
            next,
            named_at: Some(named_at),
        })
    }

    /// Writes the length and protocol of a new payload into the headers at the front of `frame`.
    /// Returns `false` if the packet would be too long for IP.
    #[must_use]
    #[inline]
    pub(super) fn say(&self, frame: &mut [u8], payload: u16, next: u8) -> bool {
        let packet = &mut frame[ETHER..];
        if let Some(named_at) = self.named_at {
            let extensions = (self.bytes - ETHER - IPV6_BYTES) as u16;
            let Some(length) = payload.checked_add(extensions) else {
                return false;
            };
            packet[4..6].copy_from_slice(&length.to_be_bytes());
            packet[named_at] = next;
            return true;
        }
        let Some(total) = payload.checked_add((self.bytes - ETHER) as u16) else {
            return false;
        };
        // Updates the checksum incrementally, so that a wrong checksum stays wrong.
        let half = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let sum = checksum_after(half(10), half(2), total);
        let sum = checksum_after(sum, packet[9].into(), next.into());
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[9] = next;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        true
    }
}
