//! The headers that stay in front in transport mode, and what they say about what follows.
//! (RFC 4303 §3.1.1)

use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};

const ETHER: usize = 14;
const IPV6: usize = 40;

/// The headers of Ethernet and IP of a packet that is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Front {
    /// Their bytes, options of IPv4 included.
    pub bytes: usize,
    /// Bytes of the payload, which are there.
    pub payload: usize,
    /// Protocol of the payload.
    pub next: u8,
    is_ipv4: bool,
}

/// Why a frame has no such headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Other {
    /// It is no packet of IP.
    NotIp,
    /// It is shorter than its header says.
    Length,
    /// It is a part of a packet of IPv4.
    Fragment,
}

impl Front {
    /// Those of a frame.
    #[inline]
    pub fn of(frame: &[u8]) -> Result<Front, Other> {
        let ethertype = frame.get(12..ETHER).ok_or(Other::NotIp)?;
        let packet = &frame[ETHER..];
        let version = packet.first().ok_or(Other::NotIp)? >> 4;
        let front = match (version, u16::from_be_bytes([ethertype[0], ethertype[1]])) {
            (4, ETHERTYPE_IPV4) => Front::of_ipv4(packet)?,
            (6, ETHERTYPE_IPV6) => Front::of_ipv6(packet)?,
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
        // More fragments, or an offset. (RFC 791 §3.1)
        if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
            return Err(Other::Fragment);
        }
        Ok(Front {
            bytes: ETHER + header_bytes,
            payload: total - header_bytes,
            next: header[9],
            is_ipv4: true,
        })
    }

    fn of_ipv6(packet: &[u8]) -> Result<Front, Other> {
        let header = packet.first_chunk::<IPV6>().ok_or(Other::Length)?;
        Ok(Front {
            bytes: ETHER + IPV6,
            payload: usize::from(u16::from_be_bytes([header[4], header[5]])),
            next: header[6],
            is_ipv4: false,
        })
    }

    /// Writes length and protocol of another payload into the headers, which begin the frame.
    /// False when no packet of IP is so long.
    #[must_use]
    #[inline]
    pub fn say(&self, frame: &mut [u8], payload: u16, next: u8) -> bool {
        let packet = &mut frame[ETHER..];
        if !self.is_ipv4 {
            packet[4..6].copy_from_slice(&payload.to_be_bytes());
            packet[6] = next;
            return true;
        }
        let Some(total) = payload.checked_add((self.bytes - ETHER) as u16) else {
            return false;
        };
        // The checksum changes by what changes, so that a wrong one stays wrong. (RFC 1624)
        let half = |at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
        let old = [half(2), u32::from(packet[9])];
        let new = [u32::from(total), u32::from(next)];
        let mut sum = u32::from(!(half(10) as u16));
        for (old, new) in old.into_iter().zip(new) {
            sum += u32::from(!(old as u16)) + new;
        }
        sum = (sum & 0xffff) + (sum >> 16);
        sum = (sum & 0xffff) + (sum >> 16);
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[9] = next;
        packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        true
    }
}
