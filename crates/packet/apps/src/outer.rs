//! The Ethernet and IP headers around the payload of a tunnel.
//!
//! ```text
//!   Ethernet 14 | IPv4 20, do not fragment, or IPv6 40 | the tunnel's header | its payload
//! ```
//!
//! A received packet may also have IPv4 options or IPv6 extension headers, such as the tunnel
//! encapsulation limit that Linux sends. (RFC 2473 §4.1.1)

use std::net::IpAddr;
use std::ops::Range;

use carina_frame::Frame;
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ipv4Error, Ipv4Header, checksum};
use carina_wire::ipv6::{DESTINATION_OPTIONS, FRAGMENT, Ipv6Error, Upper};

use crate::congestion::{class_of, set_class};
use crate::mac_text::MacText;

/// The outer headers of a tunnel's packets, which differ only in lengths and traffic class.
#[derive(Clone, Debug)]
pub struct Outer {
    /// Ethernet and IP header; the first `length` bytes are used.
    header: [u8; HEADER_MAX],
    length: usize,
    /// Sum over the IPv4 header with length 0, not complemented.
    sum: u16,
    local: IpAddr,
    remote: IpAddr,
    protocol: u8,
}

/// The addresses and the hop limit from which the outer headers of a tunnel are made ([`Outer`]).
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// IP address of this end of the tunnel.
    pub local: IpAddr,
    /// IP address of the other end of the tunnel.
    pub remote: IpAddr,
    /// TTL or hop limit of sent packets.
    pub hop_limit: u8,
    /// MAC address of this end. `None`: zeros, which an app `arp` or `nd` behind the tunnel
    /// replaces.
    pub mac: Option<MacText>,
    /// MAC address of the next hop. `None`: zeros, which an app `arp` or `nd` behind the tunnel
    /// replaces.
    pub next_mac: Option<MacText>,
}

/// Makes [`Ends`] from the configuration of a tunnel, which has the same fields.
macro_rules! ends {
    ($config:expr) => {
        $crate::outer::Ends {
            local: $config.local,
            remote: $config.remote,
            hop_limit: $config.hop_limit,
            mac: $config.mac,
            next_mac: $config.next_mac,
        }
    };
}
pub(crate) use ends;

/// Why the ends of a tunnel are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EndsError {
    /// One end has an IPv4 address, the other an IPv6 address.
    #[error("remote = {remote}: must have the same IP version as local = {local}")]
    Versions {
        /// Address of this end.
        local: IpAddr,
        /// Address of the other end.
        remote: IpAddr,
    },
    /// Both ends have the same address.
    #[error("remote = {0}: must differ from local")]
    Same(IpAddr),
    /// The hop limit is 0, so no packet would leave.
    #[error("hop_limit = 0: must be 1 to 255")]
    HopLimit,
}

/// Why a received packet does not belong to a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotOurs {
    /// The packet has other addresses, another protocol or another IP version.
    Other,
    /// The packet is truncated, or its header is malformed.
    Length,
    /// The checksum of the IP header is wrong.
    Checksum,
    /// The packet is a fragment; tunnels do not reassemble.
    Fragment,
    /// The packet has too many extension headers, or one that must be refused. (RFC 8200 §4)
    Extensions,
}

/// A packet received from the other end of a tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The bytes of the frame that are the payload; the bytes behind it are padding.
    pub place: Range<usize>,
    /// Traffic class of the outer header.
    pub class: u8,
}

const HEADER_MAX: usize = 54;
const ETHER: usize = 14;

impl Outer {
    /// Makes the headers between these ends, for a protocol over IP.
    ///
    /// # Errors
    /// The ends are invalid.
    pub fn new(ends: &Ends, protocol: u8) -> Result<Outer, EndsError> {
        let Ends { local, remote, .. } = *ends;
        if local == remote {
            return Err(EndsError::Same(remote));
        }
        if ends.hop_limit == 0 {
            return Err(EndsError::HopLimit);
        }
        let mut header = [0; HEADER_MAX];
        let mac = |mac: Option<MacText>| mac.map_or([0; 6], |mac| mac.0.0);
        header[..6].copy_from_slice(&mac(ends.next_mac));
        header[6..12].copy_from_slice(&mac(ends.mac));
        let (length, ethertype) = match (local, remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                // A packet with DF set needs no identification. (RFC 6864 §4.1)
                (header[14], header[20]) = (0x45, 0x40);
                (header[22], header[23]) = (ends.hop_limit, protocol);
                header[26..30].copy_from_slice(&local.octets());
                header[30..34].copy_from_slice(&remote.octets());
                (34, ETHERTYPE_IPV4)
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                header[14] = 0x60;
                (header[20], header[21]) = (protocol, ends.hop_limit);
                header[22..38].copy_from_slice(&local.octets());
                header[38..54].copy_from_slice(&remote.octets());
                (54, ETHERTYPE_IPV6)
            }
            _ => return Err(EndsError::Versions { local, remote }),
        };
        header[12..14].copy_from_slice(&ethertype.to_be_bytes());
        let sum = !checksum(&header[ETHER..34], 0);
        Ok(Outer {
            header,
            length,
            sum,
            local,
            remote,
            protocol,
        })
    }

    /// Whether the tunnel runs over IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.length == HEADER_MAX
    }

    /// The sum over the pseudo header of a packet of this tunnel with `payload` bytes of payload,
    /// in either direction. (RFC 768, RFC 8200 §8.1)
    #[must_use]
    pub fn pseudo_sum(&self, payload: usize) -> u32 {
        let addresses = &self.header[if self.is_ipv6() { 22 } else { 26 }..self.length];
        u32::from(!checksum(addresses, 0)) + u32::from(self.protocol) + payload as u32
    }

    /// Adds the headers in front of a frame's bytes, with this traffic class. Returns `false` if
    /// the frame has no room, or the packet is too long for IP.
    #[must_use]
    #[inline]
    pub fn wrap(&self, frame: &mut Frame, class: u8) -> bool {
        let (payload, is_ipv6) = (frame.len(), self.is_ipv6());
        let Ok(length) = u16::try_from(if is_ipv6 { payload } else { payload + 20 }) else {
            return false;
        };
        if !frame.prepend(&self.header[..self.length]) {
            return false;
        }
        let bytes = frame.bytes_mut();
        if is_ipv6 {
            bytes[18..20].copy_from_slice(&length.to_be_bytes());
        } else {
            bytes[16..18].copy_from_slice(&length.to_be_bytes());
            let sum = u32::from(self.sum) + u32::from(length);
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            bytes[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        if class != 0 {
            set_class(&mut bytes[ETHER..], class);
        }
        true
    }

    /// Parses a packet from the other end to this end.
    ///
    /// # Errors
    /// The packet is not for this tunnel.
    #[inline]
    pub fn unwrap(&self, frame: &[u8]) -> Result<Arrived, NotOurs> {
        if frame.get(12..ETHER) != Some(&self.header[12..ETHER]) {
            return Err(NotOurs::Other);
        }
        match (self.local, self.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                let header = Ipv4Header::decode(&frame[ETHER..]).map_err(|error| match error {
                    Ipv4Error::Checksum => NotOurs::Checksum,
                    _ => NotOurs::Length,
                })?;
                let is_ours = header.source == remote.octets()
                    && header.destination == local.octets()
                    && header.protocol == self.protocol;
                if !is_ours {
                    return Err(NotOurs::Other);
                }
                if header.is_fragment {
                    return Err(NotOurs::Fragment);
                }
                Ok(Arrived {
                    place: ETHER + header.header_bytes..ETHER + header.total_bytes,
                    class: class_of(&frame[ETHER..]),
                })
            }
            (IpAddr::V6(local), IpAddr::V6(remote)) => {
                let ends = [remote, local].map(|end| end.octets());
                unwrap6(frame, ends, self.protocol)
            }
            _ => Err(NotOurs::Other),
        }
    }
}

/// Parses a packet in an IPv6 frame: it must go from `source` to `destination`, and have this
/// protocol behind its extension headers.
///
/// # Errors
/// The packet is another one, or must be refused.
#[inline]
pub(crate) fn unwrap6(
    frame: &[u8],
    [source, destination]: [[u8; 16]; 2],
    protocol: u8,
) -> Result<Arrived, NotOurs> {
    let head = frame.first_chunk::<HEADER_MAX>().ok_or(NotOurs::Length)?;
    let is_ours = head[ETHER] >> 4 == 6 && head[22..38] == source && head[38..54] == destination;
    if !is_ours {
        return Err(NotOurs::Other);
    }
    let packet = &frame[ETHER..];
    let upper = Upper::of(packet).map_err(|error| match error {
        Ipv6Error::Malformed => NotOurs::Length,
        _ => NotOurs::Extensions,
    })?;
    match (upper.protocol, upper.part) {
        (found, _) if found == protocol => Ok(Arrived {
            place: ETHER + upper.start..ETHER + upper.end,
            class: class_of(packet),
        }),
        (FRAGMENT, Some(part)) if [protocol, DESTINATION_OPTIONS].contains(&part.next) => {
            Err(NotOurs::Fragment)
        }
        _ => Err(NotOurs::Other),
    }
}
