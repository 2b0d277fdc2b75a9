//! Link types other than Ethernet, and the Ethernet header that their packets can get.

use alloc::vec::Vec;

use super::no_frame::NoFrame;
use crate::ether::{ETHERTYPE_ARP, Mac, TPID_CUSTOMER};
use crate::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6};
use crate::pcapng::LinkType;

/// The header of a packet, translated to Ethernet.
///
/// | link type | header |
/// |---|---|
/// | NULL 0, LOOP 108 | address family 4, in the writer's or the network's byte order |
/// | RAW 101 (12, 14), IPV4 228, IPV6 229 | none: a packet of IP |
/// | LINUX_SLL 113 | type 2, ARPHRD 2, length 2, address 8, protocol 2 |
/// | LINUX_SLL2 276 | protocol 2, 0 2, interface 4, ARPHRD 2, type 1, length 1, address 8 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// Ethertype of the payload. `None` for a frame of IEEE 802.3, whose header has a length
    /// instead.
    pub ethertype: Option<u16>,
    /// MAC address of the sender, if the captured header has one.
    pub source: Option<Mac>,
    /// Whether the packet was sent to all stations.
    pub is_broadcast: bool,
    /// Length of the captured header in bytes.
    pub bytes: usize,
}

/// MAC addresses and VLAN of the Ethernet frames that a reader makes of packets captured without
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stations {
    /// Destination address of the frames of packets that were sent to a single station.
    pub destination: Mac,
    /// Source address of the frames.
    pub source: Mac,
    /// VLAN id of the frames; `None` for untagged frames.
    pub vlan: Option<u16>,
}

impl Default for Stations {
    /// From `02:00:00:00:00:01` to `02:00:00:00:00:02`, without VLAN.
    fn default() -> Stations {
        Stations {
            destination: Mac([2, 0, 0, 0, 0, 2]),
            source: Mac([2, 0, 0, 0, 0, 1]),
            vlan: None,
        }
    }
}

impl Encapsulation {
    /// Decodes the header of a packet.
    ///
    /// # Errors
    /// The link type has no known header, the packet is shorter than its header, or Ethernet does
    /// not carry its protocol.
    pub fn decode(link: LinkType, packet: &[u8]) -> Result<Encapsulation, NoFrame> {
        match link.0 {
            NULL | LOOP => of_family(packet),
            RAW | RAW_BSD | RAW_OPENBSD | IPV4 | IPV6 => of_ip(packet),
            SLL => {
                let header: &[u8; 16] = packet.first_chunk().ok_or(NoFrame::Short)?;
                let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
                cooked(
                    word(0),
                    word(2),
                    word(14),
                    (word(4), &header[6..12]),
                    header.len(),
                )
            }
            SLL2 => {
                let header: &[u8; 20] = packet.first_chunk().ok_or(NoFrame::Short)?;
                let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
                let address = (header[11].into(), &header[12..18]);
                cooked(header[10].into(), word(8), word(0), address, header.len())
            }
            _ => Err(NoFrame::LinkType(link)),
        }
    }

    /// Appends an Ethernet header for `payload` to `out`.
    pub(super) fn begin_frame(self, stations: &Stations, payload: &[u8], out: &mut Vec<u8>) {
        let group = if self.is_broadcast {
            Some(Mac::BROADCAST)
        } else {
            self.ethertype.and_then(|kind| group_of(kind, payload))
        };
        out.extend(group.unwrap_or(stations.destination).0);
        out.extend(self.source.unwrap_or(stations.source).0);
        if let Some(vlan) = stations.vlan {
            out.extend(TPID_CUSTOMER.to_be_bytes());
            out.extend(vlan.to_be_bytes());
        }
        let kind = self.ethertype.unwrap_or(payload.len() as u16);
        out.extend(kind.to_be_bytes());
    }
}

/// Decodes the header of a BSD loopback interface: an address family.
fn of_family(packet: &[u8]) -> Result<Encapsulation, NoFrame> {
    let family = u32::from_be_bytes(*packet.first_chunk().ok_or(NoFrame::Short)?);
    // The byte order of the family may differ from the file's. Families are small numbers, so the
    // smaller reading is right.
    let ethertype = match family.min(family.swap_bytes()) {
        2 => ETHERTYPE_IPV4,
        // AF_INET6 of Linux, of NetBSD and OpenBSD, of FreeBSD, and of macOS.
        10 | 24 | 28 | 30 => ETHERTYPE_IPV6,
        _ => return Err(NoFrame::Protocol),
    };
    Ok(Encapsulation {
        ethertype: Some(ethertype),
        source: None,
        is_broadcast: false,
        bytes: 4,
    })
}

fn of_ip(packet: &[u8]) -> Result<Encapsulation, NoFrame> {
    let ethertype = match packet.first().ok_or(NoFrame::Short)? >> 4 {
        4 => ETHERTYPE_IPV4,
        6 => ETHERTYPE_IPV6,
        _ => return Err(NoFrame::Protocol),
    };
    Ok(Encapsulation {
        ethertype: Some(ethertype),
        source: None,
        is_broadcast: false,
        bytes: 0,
    })
}

/// Decodes a header of Linux "cooked" captures, which are made of all interfaces together or of
/// interfaces without MAC addresses.
fn cooked(
    packet_type: u16,
    hardware: u16,
    protocol: u16,
    (length, address): (u16, &[u8]),
    bytes: usize,
) -> Result<Encapsulation, NoFrame> {
    let ethertype = match protocol {
        _ if NOT_ETHERTYPES.contains(&hardware) => return Err(NoFrame::Protocol),
        // IEEE 802.3 without and with LLC.
        1 | 4 => None,
        0x0600.. => Some(protocol),
        _ => return Err(NoFrame::Protocol),
    };
    let source = address.first_chunk().filter(|_| length == 6);
    Ok(Encapsulation {
        ethertype,
        source: source.map(|source| Mac(*source)),
        is_broadcast: packet_type == TO_ALL,
        bytes,
    })
}

/// The MAC address of the group to which a packet goes: multicast of IPv4 (RFC 1112 §6.4) or IPv6
/// (RFC 2464 §7), and broadcast for ARP requests. `None` for a packet to a single station.
fn group_of(ethertype: u16, packet: &[u8]) -> Option<Mac> {
    match ethertype {
        ETHERTYPE_IPV4 => match *packet.get(16..20)?.first_chunk()? {
            [255, 255, 255, 255] => Some(Mac::BROADCAST),
            [224..=239, b, c, d] => Some(Mac([1, 0, 0x5e, b & 0x7f, c, d])),
            _ => None,
        },
        ETHERTYPE_IPV6 => match *packet.get(24..40)?.first_chunk::<16>()? {
            [0xff, .., a, b, c, d] => Some(Mac([0x33, 0x33, a, b, c, d])),
            _ => None,
        },
        ETHERTYPE_ARP if packet.get(6..8)? == [0, 1] => Some(Mac::BROADCAST),
        _ => None,
    }
}

const NULL: u16 = 0;
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const SLL: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const SLL2: u16 = 276;
/// Packet type of broadcasts in a cooked capture.
const TO_ALL: u16 = 1;
/// Hardware types (ARPHRD) whose protocol field is not an Ethertype: FRAD, IEEE 802.11 plain and
/// with Prism and radiotap headers, netlink.
const NOT_ETHERTYPES: [u16; 5] = [770, 801, 802, 803, 824];
