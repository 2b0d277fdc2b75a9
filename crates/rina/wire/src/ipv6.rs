//! Extension headers of IPv6 (RFC 8200 §4). All code that looks behind them uses this module.
//!
//! ```text
//!   IPv6 40 | hop-by-hop options | destination options, routing, fragment, in any order | payload
//!   each but fragment: next header 1 | length 1, in 8 bytes beyond the first 8 | contents
//!   fragment: next header 1 | 0 1 | offset 13 bits, 0 2 bits, more follow 1 bit | identification 4
//! ```
//!
//! [`Upper::of`] reads a packet as its destination, which must refuse what it does not know.
//! [`Upper::seen`] reads as an observer, which reads as far as it can. Both read at most
//! [`EXTENSIONS_MAX`] headers, which limits the cost of a packet.

/// Length of the fixed IPv6 header in bytes.
pub const IPV6_BYTES: usize = 40;
/// Length of a fragment header in bytes.
pub const FRAGMENT_BYTES: usize = 8;
/// Largest number of extension headers in front of a payload. RFC 8200 §4.1 recommends one of each
/// kind, and two of destination options.
pub const EXTENSIONS_MAX: usize = 8;

/// Next header value of hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header value of a routing header.
pub const ROUTING: u8 = 43;
/// Next header value of a fragment header.
pub const FRAGMENT: u8 = 44;
/// Next header value of destination options.
pub const DESTINATION_OPTIONS: u8 = 60;

/// What follows the extension headers of an IPv6 packet: the protocol of the payload, and its place
/// in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper {
    /// Protocol of the payload. It can be [`FRAGMENT`], if [`Upper::of`] reads a fragment, and
    /// [`HOP_BY_HOP`], if that header is in a place where no node accepts it.
    pub protocol: u8,
    /// Offset in the packet of the next-header byte that names the protocol.
    pub named_at: usize,
    /// Offset in the packet of the first byte of the payload.
    pub start: usize,
    /// Offset in the packet of the end of the payload. Bytes after it are padding of Ethernet.
    pub end: usize,
    /// The boundary after the headers that nodes on the path read: after the last header of
    /// hop-by-hop options, routing or fragment. (RFC 8200 §4.5, RFC 4303 §3.1.1)
    pub path_boundary: Boundary,
    /// Contents of the last fragment header before `start`; `None` if no fragment header precedes
    /// it.
    pub part: Option<Part>,
}

/// The boundary between two headers of an IPv6 packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boundary {
    /// Next header value of the header or payload that follows.
    pub next: u8,
    /// Offset in the packet of the byte that holds this next header value.
    pub named_at: usize,
    /// Offset in the packet where the next header starts.
    pub at: usize,
}

/// Contents of a fragment header: which part of an original packet this packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of the fragment in the original packet, in bytes.
    pub offset: usize,
    /// Whether more fragments of the original packet follow.
    pub has_more: bool,
    /// Identification, which all fragments of the original packet have.
    pub id: u32,
    /// Next header value of the original packet's fragmentable part.
    pub next: u8,
}

/// Why a destination must discard a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ipv6Error {
    /// The packet is truncated, its version is not 6, or a header or option exceeds the space it is
    /// in.
    Malformed,
    /// The packet has more than [`EXTENSIONS_MAX`] extension headers.
    TooMany,
    /// An option is unknown and requires that such packets are discarded. (RFC 8200 §4.2)
    Option {
        /// Offset of the option in the packet.
        at: usize,
        /// Whether the sender gets an error message.
        answer: Answer,
    },
    /// The packet must first be forwarded to another node. (RFC 8200 §4.4)
    Routing {
        /// Offset of the routing type in the packet.
        at: usize,
    },
}

/// Whether the sender of a packet gets an error message about an unknown option, as the option's
/// two highest bits say. (RFC 8200 §4.2)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// No error message.
    Never,
    /// An error message to every sender.
    Always,
    /// An error message only if the packet was not sent to a multicast address.
    NotToGroups,
}

impl Part {
    /// Decodes a fragment header.
    #[must_use]
    fn decode(header: &[u8; FRAGMENT_BYTES]) -> Part {
        let word = u16::from_be_bytes([header[2], header[3]]);
        Part {
            offset: usize::from(word >> 3) * 8,
            has_more: word & 1 != 0,
            id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            next: header[0],
        }
    }

    /// Whether the packet is complete although it has a fragment header: offset 0 and no more
    /// fragments. (RFC 6946)
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.offset == 0 && !self.has_more
    }
}

/// An extension header.
struct Extension<'a> {
    kind: u8,
    at: usize,
    bytes: &'a [u8],
}

/// Walks over the extension headers of a packet until the payload.
struct Walk<'a> {
    packet: &'a [u8],
    place: Boundary,
    path_boundary: Boundary,
    part: Option<Part>,
    count: usize,
    /// Whether hop-by-hop options may still follow.
    is_first: bool,
}

impl<'a> Walk<'a> {
    fn of(packet: &'a [u8]) -> Option<Walk<'a>> {
        let header = packet.first_chunk::<IPV6_BYTES>()?;
        let place = Boundary {
            next: header[6],
            named_at: 6,
            at: IPV6_BYTES,
        };
        (header[0] >> 4 == 6).then_some(Walk {
            packet,
            place,
            path_boundary: place,
            part: None,
            count: 0,
            is_first: true,
        })
    }

    /// The next extension header; `None` at the payload.
    fn next(&mut self) -> Result<Option<Extension<'a>>, Ipv6Error> {
        let Boundary { next: kind, at, .. } = self.place;
        let is_extension = match kind {
            HOP_BY_HOP => self.is_first,
            ROUTING | FRAGMENT | DESTINATION_OPTIONS => true,
            _ => false,
        };
        if !is_extension {
            return Ok(None);
        }
        if self.count == EXTENSIONS_MAX {
            return Err(Ipv6Error::TooMany);
        }
        let rest = self.packet.get(at..).ok_or(Ipv6Error::Malformed)?;
        let head = rest.first_chunk::<8>().ok_or(Ipv6Error::Malformed)?;
        let length = match kind {
            FRAGMENT => FRAGMENT_BYTES,
            _ => 8 + usize::from(head[1]) * 8,
        };
        let bytes = rest.get(..length).ok_or(Ipv6Error::Malformed)?;
        self.count += 1;
        self.is_first &= kind == FRAGMENT;
        self.place = Boundary {
            next: head[0],
            named_at: at,
            at: at + length,
        };
        if kind == FRAGMENT {
            self.part = Some(Part::decode(head));
        }
        if kind != DESTINATION_OPTIONS {
            self.path_boundary = self.place;
        }
        Ok(Some(Extension { kind, at, bytes }))
    }

    fn upper(&self, place: Boundary) -> Upper {
        Upper {
            protocol: place.next,
            named_at: place.named_at,
            start: place.at.min(self.packet.len()),
            end: self.packet.len(),
            path_boundary: self.path_boundary,
            part: self.part,
        }
    }
}

impl Upper {
    /// Reads a packet as its destination. The walk stops at the fragment header of a fragment; it
    /// skips the fragment header of a complete packet ([`Part::is_whole`]).
    ///
    /// # Errors
    /// Why the packet must be discarded.
    #[inline]
    pub fn of(packet: &[u8]) -> Result<Upper, Ipv6Error> {
        let header = packet.first_chunk::<IPV6_BYTES>();
        let header = header.ok_or(Ipv6Error::Malformed)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let packet = packet.get(..IPV6_BYTES + length);
        Upper::of_all(packet.ok_or(Ipv6Error::Malformed)?)
    }

    /// Like [`Upper::of`], for a packet that occupies all of the bytes; ignores the length in its
    /// header.
    ///
    /// # Errors
    /// As for [`Upper::of`].
    #[inline]
    pub fn of_all(packet: &[u8]) -> Result<Upper, Ipv6Error> {
        let walk = Walk::of(packet).ok_or(Ipv6Error::Malformed)?;
        match walk.place.next {
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS => Upper::checked(walk),
            _ => Ok(walk.upper(walk.place)),
        }
    }

    fn checked(mut walk: Walk<'_>) -> Result<Upper, Ipv6Error> {
        loop {
            let (place, path_boundary) = (walk.place, walk.path_boundary);
            let Some(header) = walk.next()? else {
                return Ok(walk.upper(place));
            };
            match (header.kind, walk.part) {
                (FRAGMENT, Some(part)) if !part.is_whole() => {
                    let upper = walk.upper(place);
                    return Ok(Upper {
                        path_boundary,
                        ..upper
                    });
                }
                (FRAGMENT, _) => {}
                // A routing header of any type is skipped if no segments are left.
                (ROUTING, _) if header.bytes[3] != 0 => {
                    return Err(Ipv6Error::Routing { at: header.at + 2 });
                }
                (ROUTING, _) => {}
                _ => check_options(&header)?,
            }
        }
    }

    /// Reads a packet as an observer, which neither checks options nor reassembles fragments. The
    /// walk continues after the first fragment's header. It stops where the packet is truncated or
    /// has too many headers. For fragments other than the first, the payload is empty. `None` if
    /// there is no IPv6 header.
    #[must_use]
    #[inline]
    pub fn seen(packet: &[u8]) -> Option<Upper> {
        let header = packet.first_chunk::<IPV6_BYTES>()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let captured = packet.len().min(IPV6_BYTES + length);
        let mut walk = Walk::of(&packet[..captured])?;
        loop {
            let is_cut = match walk.next() {
                Ok(Some(_)) => walk.part.is_some_and(|part| part.offset > 0),
                Ok(None) => return Some(walk.upper(walk.place)),
                Err(_) => true,
            };
            if is_cut {
                let upper = walk.upper(walk.place);
                return Some(Upper {
                    start: upper.end,
                    ..upper
                });
            }
        }
    }
}

/// Checks hop-by-hop or destination options as a node that only knows padding. (RFC 8200 §4.2)
fn check_options(header: &Extension<'_>) -> Result<(), Ipv6Error> {
    let mut at = 2;
    while let Some(kind) = header.bytes.get(at) {
        if *kind == PAD1 {
            at += 1;
            continue;
        }
        let length = header.bytes.get(at + 1).ok_or(Ipv6Error::Malformed)?;
        let end = at + 2 + usize::from(*length);
        if end > header.bytes.len() {
            return Err(Ipv6Error::Malformed);
        }
        let answer = match kind >> 6 {
            0 => None,
            1 => Some(Answer::Never),
            2 => Some(Answer::Always),
            _ => Some(Answer::NotToGroups),
        };
        if let Some(answer) = answer {
            let at = header.at + at;
            return Err(Ipv6Error::Option { at, answer });
        }
        at = end;
    }
    Ok(())
}

/// The padding option of one byte. PadN and the tunnel encapsulation limit (RFC 2473 §4.1.1) need
/// no constants, because their two highest bits allow a node to skip them.
const PAD1: u8 = 0;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// A packet with these extension headers, each with its kind, and a UDP payload.
    fn packet(headers: &[(u8, &[u8])]) -> Vec<u8> {
        let mut packet = [0; IPV6_BYTES].to_vec();
        packet[0] = 0x60;
        let mut named_at = 6;
        for (kind, bytes) in headers {
            packet[named_at] = *kind;
            named_at = packet.len();
            packet.push(0);
            packet.extend_from_slice(bytes);
        }
        packet[named_at] = 17;
        packet.extend_from_slice(b"payload!");
        let length = (packet.len() - IPV6_BYTES) as u16;
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    /// The tunnel encapsulation limit as Linux sends it, after the next-header byte.
    const LIMIT: &[u8] = &[0, 4, 1, 4, 1, 1, 0];
    const LONG: &[u8] = &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const ROUTED: &[u8] = &[0, 0, 0, 0, 0, 0, 0];
    const WHOLE: &[u8] = &[0, 0, 0, 0, 0, 0, 9];

    fn part(word: u16) -> [u8; 7] {
        let [high, low] = word.to_be_bytes();
        [0, high, low, 0, 0, 0, 9]
    }

    #[test]
    fn payload_is_found_behind_headers_in_any_order() {
        for headers in [
            &[][..],
            &[(60, LIMIT)],
            &[
                (0, LONG),
                (60, LIMIT),
                (43, ROUTED),
                (44, WHOLE),
                (60, LONG),
            ],
            &[(44, WHOLE), (0, LIMIT), (60, LIMIT)],
            &[(43, ROUTED), (60, LIMIT), (60, LIMIT), (60, LONG)],
        ] {
            let mut packet = packet(headers);
            packet.extend_from_slice(b"padding");
            let upper = Upper::of(&packet).unwrap();
            assert_eq!(Upper::seen(&packet), Some(upper), "{headers:?}");
            assert_eq!(upper.protocol, 17, "{headers:?}");
            assert_eq!(packet[upper.named_at], 17);
            assert_eq!(&packet[upper.start..upper.end], b"payload!");
        }
    }

    #[test]
    fn headers_for_the_way_end_before_options_for_the_destination() {
        let packet = packet(&[(0, LIMIT), (60, LIMIT), (43, ROUTED), (60, LONG)]);
        let upper = Upper::of(&packet).unwrap();
        let expected = Boundary {
            next: 60,
            named_at: 56,
            at: 64,
        };
        assert_eq!((upper.path_boundary, upper.start), (expected, 80));
        let upper = Upper::of(&packet[..]).unwrap();
        assert_eq!(upper.part, None);
    }

    #[test]
    fn hop_by_hop_options_stand_first_or_are_no_header() {
        let upper = Upper::of(&packet(&[(60, LIMIT), (0, LIMIT)])).unwrap();
        assert_eq!((upper.protocol, upper.start), (0, 48));
    }

    #[test]
    fn destination_stops_at_a_part_where_an_observer_passes() {
        let first = packet(&[(60, LIMIT), (44, &part(1)), (60, LIMIT)]);
        let upper = Upper::of(&first).unwrap();
        assert_eq!((upper.protocol, upper.named_at, upper.start), (44, 40, 48));
        assert_eq!(upper.path_boundary.at, 40);
        let expected = Part {
            offset: 0,
            has_more: true,
            id: 9,
            next: 60,
        };
        assert_eq!(upper.part, Some(expected));
        let seen = Upper::seen(&first).unwrap();
        assert_eq!((seen.protocol, seen.start), (17, 64));
        let later = packet(&[(60, LIMIT), (44, &part(8))]);
        assert_eq!(Upper::of(&later).unwrap().part.unwrap().offset, 8);
        let seen = Upper::seen(&later).unwrap();
        assert_eq!((seen.protocol, seen.start), (17, seen.end));
    }

    #[test]
    fn headers_are_counted_and_bounded() {
        let headers = [(60, LIMIT); EXTENSIONS_MAX];
        assert_eq!(Upper::of(&packet(&headers)).unwrap().protocol, 17);
        let more = packet(&[(60, LIMIT); EXTENSIONS_MAX + 1]);
        assert_eq!(Upper::of(&more), Err(Ipv6Error::TooMany));
        let seen = Upper::seen(&more).unwrap();
        assert_eq!((seen.protocol, seen.start), (60, seen.end));
    }

    #[test]
    fn unknown_options_are_refused_as_they_ask() {
        for (kind, expected) in [
            (0x1e, None),
            (0x5e, Some(Answer::Never)),
            (0x9e, Some(Answer::Always)),
            (0xde, Some(Answer::NotToGroups)),
        ] {
            let options = [0, 1, 0, kind, 1, 0, 0];
            for header in [0, 60] {
                let found = Upper::of(&packet(&[(header, &options)]));
                let expected = expected.map(|answer| Ipv6Error::Option { at: 44, answer });
                assert_eq!(found.err(), expected, "{kind:#x}");
            }
        }
        let over = [0, 1, 0, 0x1e, 3, 0, 0];
        let found = Upper::of(&packet(&[(60, &over)]));
        assert_eq!(found, Err(Ipv6Error::Malformed));
    }

    #[test]
    fn routes_that_are_not_done_are_refused() {
        let found = Upper::of(&packet(&[(43, &[0, 0, 1, 0, 0, 0, 0])]));
        assert_eq!(found, Err(Ipv6Error::Routing { at: 42 }));
    }

    #[test]
    fn every_cut_and_every_wrong_byte_stays_within_the_packet() {
        let packet = packet(&[(0, LONG), (44, WHOLE), (43, ROUTED), (60, LIMIT)]);
        for length in 0..packet.len() {
            assert_eq!(Upper::of(&packet[..length]), Err(Ipv6Error::Malformed));
            let seen = Upper::seen(&packet[..length]);
            assert_eq!(seen.is_some(), length >= IPV6_BYTES);
            assert!(seen.is_none_or(|seen| seen.start <= seen.end && seen.end <= length));
        }
        for at in 0..packet.len() {
            for value in 0..=u8::MAX {
                let mut wrong = packet.clone();
                wrong[at] = value;
                if let Ok(upper) = Upper::of(&wrong) {
                    assert!(upper.start <= upper.end && upper.end <= wrong.len());
                    assert!(upper.path_boundary.at <= upper.start);
                }
            }
        }
    }
}
