//! Neighbour solicitations and advertisements of IPv6 (RFC 4861 §4.3, §4.4).
//!
//! ```text
//!   IPv6 40, next header 58, hop limit 255 | type 135 or 136, code 0, checksum 2 | flags 4
//!   | target 16 | options: type 1 or 2, length 1 of 8 bytes, MAC address 6
//! ```

use crate::inet::{PROTOCOL_ICMP6 as ICMP6, checksum, pseudo_sum6};
use crate::ipv6::{IPV6_BYTES, Upper};

/// A neighbour solicitation or advertisement, with the addresses of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Whether the message is a solicitation or an advertisement.
    pub kind: NeighbourKind,
    /// Source IPv6 address of the packet.
    pub source: [u8; 16],
    /// Destination IPv6 address of the packet.
    pub destination: [u8; 16],
    /// The IPv6 address whose MAC address is requested or reported.
    pub target: [u8; 16],
    /// MAC address that the message carries: of the source in a solicitation, of the target in an
    /// advertisement. `None` if it carries none.
    pub link: Option<[u8; 6]>,
}

/// Kind of a [`Neighbour`] message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourKind {
    /// Requests a MAC address.
    Solicitation,
    /// Reports a MAC address.
    Advertisement {
        /// Whether the advertisement answers a solicitation.
        is_solicited: bool,
        /// Whether the sender is a router.
        is_router: bool,
        /// Whether the receiver must replace a MAC address that it already knows. (RFC 4861
        /// §7.2.5)
        is_override: bool,
    },
}

/// Why a packet is not a [`Neighbour`] message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NeighbourError {
    /// The packet is not a neighbour solicitation or advertisement.
    Other,
    /// The packet must be discarded: it is truncated, came through a router, or has a wrong
    /// checksum, a multicast target or an option of length 0 (RFC 4861 §7.1), or a fragment header
    /// (RFC 6980 §5).
    Invalid,
}

/// Bytes of an IPv6 packet that carries a message with one option.
pub const NEIGHBOUR_BYTES: usize = 72;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Flags of an advertisement: router, solicited and override.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Types of the options with the MAC address of the source and of the target.
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

impl Neighbour {
    /// Decodes an IPv6 packet.
    ///
    /// # Errors
    /// The packet is something else, or must be discarded.
    pub fn decode(packet: &[u8]) -> Result<Neighbour, NeighbourError> {
        let seen = Upper::seen(packet).ok_or(NeighbourError::Other)?;
        let is_ours = seen.protocol == ICMP6
            && matches!(
                packet.get(seen.start..seen.end),
                Some([SOLICITATION | ADVERTISEMENT, ..])
            );
        if !is_ours {
            return Err(NeighbourError::Other);
        }
        Neighbour::decode_message(packet).ok_or(NeighbourError::Invalid)
    }

    fn decode_message(packet: &[u8]) -> Option<Neighbour> {
        let upper = Upper::of(packet).ok()?;
        let head = packet.first_chunk::<IPV6_BYTES>()?;
        let message = packet.get(upper.start..upper.end)?;
        let (fixed, mut options) = message.split_first_chunk::<24>()?;
        let addresses = head[8..].first_chunk::<32>()?;
        let (source, destination) = addresses.split_first_chunk::<16>()?;
        let destination = destination.first_chunk::<16>()?;
        let target = fixed[8..].first_chunk::<16>()?;
        let is_valid = head[7] == 255
            && fixed[1] == 0
            && target[0] != 0xff
            // A packet with a fragment header must be ignored. (RFC 6980 §5)
            && upper.part.is_none()
            && checksum(message, pseudo_sum6(addresses, message.len(), ICMP6)) == 0;
        if !is_valid {
            return None;
        }
        let (kind, wanted) = match fixed[0] {
            SOLICITATION => (NeighbourKind::Solicitation, SOURCE_LINK),
            _ => {
                let advertisement = NeighbourKind::Advertisement {
                    is_solicited: fixed[4] & SOLICITED != 0,
                    is_router: fixed[4] & ROUTER != 0,
                    is_override: fixed[4] & OVERRIDE != 0,
                };
                (advertisement, TARGET_LINK)
            }
        };
        let mut link = None;
        while let [option, units, ..] = *options {
            let length = usize::from(units) * 8;
            if length == 0 || options.len() < length {
                return None;
            }
            if option == wanted && link.is_none() {
                link = options[2..].first_chunk::<6>().copied();
            }
            options = &options[length..];
        }
        let is_meant = match kind {
            // A station without an address asks the group of the target, and gives no MAC address
            // to answer to.
            NeighbourKind::Solicitation if *source == [0; 16] => {
                *destination == solicited_node(*target) && link.is_none()
            }
            NeighbourKind::Solicitation => true,
            NeighbourKind::Advertisement { is_solicited, .. } => {
                !(is_solicited && destination[0] == 0xff)
            }
        };
        if !is_meant {
            return None;
        }
        Some(Neighbour {
            kind,
            source: *source,
            destination: *destination,
            target: *target,
            link,
        })
    }

    /// Encodes the message as an IPv6 packet. Without a MAC address, the option contains zeros.
    #[must_use]
    pub fn encode(&self) -> [u8; NEIGHBOUR_BYTES] {
        let mut packet = [0; NEIGHBOUR_BYTES];
        (packet[0], packet[5], packet[6], packet[7]) = (0x60, 32, ICMP6, 255);
        packet[8..24].copy_from_slice(&self.source);
        packet[24..40].copy_from_slice(&self.destination);
        let (kind, flags, option) = match self.kind {
            NeighbourKind::Solicitation => (SOLICITATION, 0, SOURCE_LINK),
            NeighbourKind::Advertisement {
                is_solicited,
                is_router,
                is_override,
            } => {
                let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
                let flags = flag(is_router, ROUTER)
                    | flag(is_solicited, SOLICITED)
                    | flag(is_override, OVERRIDE);
                (ADVERTISEMENT, flags, TARGET_LINK)
            }
        };
        (packet[40], packet[44]) = (kind, flags);
        packet[48..64].copy_from_slice(&self.target);
        (packet[64], packet[65]) = (option, 1);
        packet[66..].copy_from_slice(&self.link.unwrap_or_default());
        let mut addresses = [0; 32];
        addresses.copy_from_slice(&packet[8..40]);
        let sum = checksum(&packet[40..], pseudo_sum6(&addresses, 32, ICMP6));
        packet[42..44].copy_from_slice(&sum.to_be_bytes());
        packet
    }
}

/// Returns the solicited-node multicast group of `address`: the group in which the owner of
/// `address` receives neighbour solicitations. (RFC 4291 §2.7.1)
#[must_use]
pub fn solicited_node(address: [u8; 16]) -> [u8; 16] {
    let mut group = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 0];
    group[13..].copy_from_slice(&address[13..]);
    group
}

/// Returns the Ethernet multicast address of an IPv6 multicast group. (RFC 2464 §7)
#[must_use]
pub fn group_mac(group: [u8; 16]) -> [u8; 6] {
    [0x33, 0x33, group[12], group[13], group[14], group[15]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solicitation() -> Neighbour {
        let mut target = [0; 16];
        (target[0], target[15]) = (0xfd, 9);
        Neighbour {
            kind: NeighbourKind::Solicitation,
            source: [0xfe; 16],
            destination: solicited_node(target),
            target,
            link: Some([2, 0, 0, 0, 0, 1]),
        }
    }

    #[test]
    fn messages_read_what_they_write() {
        let advertisement = |is_solicited, is_router, is_override| NeighbourKind::Advertisement {
            is_solicited,
            is_router,
            is_override,
        };
        for kind in [
            NeighbourKind::Solicitation,
            advertisement(true, false, false),
            advertisement(false, true, false),
            advertisement(false, false, true),
        ] {
            let message = Neighbour {
                kind,
                destination: [0xfd; 16],
                ..solicitation()
            };
            assert_eq!(Neighbour::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn messages_that_no_station_may_send_are_invalid() {
        let unspecified = Neighbour {
            source: [0; 16],
            ..solicitation()
        };
        let mut packet = unspecified.encode();
        let invalid = Err(NeighbourError::Invalid);
        assert_eq!(Neighbour::decode(&packet), invalid);
        // Without the MAC address option the packet becomes valid. The checksum is updated by RFC
        // 1624.
        packet[64] = 14;
        let sum = u32::from(u16::from_be_bytes([packet[42], packet[43]])) + 0xffff - 0x0d00;
        let sum = (sum % 0xffff) as u16;
        packet[42..44].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(
            Neighbour::decode(&packet).map(|message| message.link),
            Ok(None)
        );
        let to_group = Neighbour {
            kind: NeighbourKind::Advertisement {
                is_solicited: true,
                is_router: true,
                is_override: true,
            },
            ..solicitation()
        };
        assert_eq!(Neighbour::decode(&to_group.encode()), invalid);
    }

    #[test]
    fn messages_stand_behind_options_but_no_fragment_header() {
        let message = solicitation();
        let behind = |kind: u8, header: [u8; 8]| {
            let mut packet = message.encode().to_vec();
            (packet[5], packet[6]) = (40, kind);
            packet.splice(40..40, header);
            packet
        };
        let options = behind(60, [ICMP6, 0, 1, 4, 0, 0, 0, 0]);
        assert_eq!(Neighbour::decode(&options), Ok(message));
        let whole = behind(44, [ICMP6, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(Neighbour::decode(&whole), Err(NeighbourError::Invalid));
        let first = behind(44, [ICMP6, 0, 0, 1, 0, 0, 0, 7]);
        assert_eq!(Neighbour::decode(&first), Err(NeighbourError::Invalid));
    }

    #[test]
    fn damaged_messages_are_invalid() {
        let packet = solicitation().encode();
        for (at, error) in [
            (6, NeighbourError::Other),
            (40, NeighbourError::Other),
            (7, NeighbourError::Invalid),
            (41, NeighbourError::Invalid),
            (42, NeighbourError::Invalid),
            (50, NeighbourError::Invalid),
            (65, NeighbourError::Invalid),
        ] {
            let mut bad = packet;
            bad[at] ^= 1;
            assert_eq!(Neighbour::decode(&bad), Err(error), "byte {at}");
        }
        assert_eq!(
            Neighbour::decode(&packet[..71]),
            Err(NeighbourError::Invalid)
        );
        assert_eq!(Neighbour::decode(&packet[..40]), Err(NeighbourError::Other));
    }
}
