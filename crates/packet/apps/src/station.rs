//! A station on a segment and its next hop: how it handles ARP and neighbour discovery. (RFC 826;
//! RFC 4861 §7.2)
//!
//! A received message either tells something about the next hop, which
//! [`NextHop`](crate::next_hop::NextHop) handles, or asks for this station, which answers. Nothing
//! here depends on time.

use carina_wire::inet::Arp4;
use carina_wire::neighbour::{Neighbour, NeighbourKind, group_mac, solicited_node};

use crate::next_hop::Heard;

/// A station with an IPv4 address: answers ARP for it, and asks for its next hop by ARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station4 {
    /// The station's MAC address.
    pub mac: [u8; 6],
    /// The station's IPv4 address.
    pub ip: [u8; 4],
    /// IPv4 address of the next hop; `None` if its MAC address is configured.
    pub next: Option<[u8; 4]>,
}

impl Station4 {
    /// Returns the MAC address of the next hop if the next hop sent this ARP message, and whether
    /// the target is this station. `None` if another station sent the message, or if this station
    /// has no next hop. The target may be any station. (RFC 826)
    #[must_use]
    pub fn heard(&self, arp: &Arp4) -> Option<Heard> {
        let (mac, ip) = arp.sender;
        (Some(ip) == self.next).then_some(Heard {
            is_answer: arp.target.1 == self.ip,
            ..Heard::answer(mac)
        })
    }

    /// The reply to an ARP request for this station's address; `None` for other messages.
    #[must_use]
    pub fn reply(&self, arp: &Arp4) -> Option<Arp4> {
        let is_meant = !arp.is_reply && arp.target.1 == self.ip;
        is_meant.then_some(Arp4 {
            is_reply: true,
            sender: (self.mac, self.ip),
            target: arp.sender,
        })
    }

    /// An ARP request for the next hop; `None` if its MAC address is configured.
    #[must_use]
    pub fn request(&self) -> Option<Arp4> {
        let next = self.next?;
        Some(Arp4 {
            is_reply: false,
            sender: (self.mac, self.ip),
            target: ([0; 6], next),
        })
    }
}

/// A station with an IPv6 address: answers neighbour solicitations for it, and solicits its next
/// hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station6 {
    /// The station's MAC address.
    pub mac: [u8; 6],
    /// The station's IPv6 address.
    pub ip: [u8; 16],
    /// IPv6 address of the next hop; `None` if its MAC address is configured.
    pub next: Option<[u8; 16]>,
    /// Whether the station forwards packets, which its advertisements state.
    pub is_router: bool,
}

impl Station6 {
    /// What a message tells about the next hop: an advertisement of its address, or a solicitation
    /// of this station's address that the next hop sent. `None` for other messages.
    #[must_use]
    pub fn heard(&self, message: &Neighbour) -> Option<Heard> {
        match message.kind {
            NeighbourKind::Solicitation => {
                let is_next = Some(message.source) == self.next && message.target == self.ip;
                let mac = message.link.filter(|_| is_next)?;
                Some(Heard {
                    is_answer: false,
                    ..Heard::answer(mac)
                })
            }
            NeighbourKind::Advertisement {
                is_solicited,
                is_override,
                ..
            } => (Some(message.target) == self.next).then_some(Heard {
                mac: message.link,
                is_answer: is_solicited,
                is_override,
            }),
        }
    }

    /// The advertisement that answers a solicitation of this station's address, and the MAC address
    /// to send it to. `sender` is the MAC address that the solicitation came from. `None` for other
    /// messages.
    #[must_use]
    pub fn advertisement(
        &self,
        asked: &Neighbour,
        sender: [u8; 6],
    ) -> Option<(Neighbour, [u8; 6])> {
        if asked.kind != NeighbourKind::Solicitation || asked.target != self.ip {
            return None;
        }
        // A station that tests whether an address is free uses the unspecified address as its
        // source. (RFC 4861 §7.2.4)
        let is_solicited = asked.source != [0; 16];
        let (destination, mac) = if is_solicited {
            (asked.source, asked.link.unwrap_or(sender))
        } else {
            (ALL_NODES, group_mac(ALL_NODES))
        };
        let kind = NeighbourKind::Advertisement {
            is_solicited,
            is_router: self.is_router,
            is_override: true,
        };
        Some((self.message(kind, destination, self.ip), mac))
    }

    /// A solicitation of the next hop, and the MAC address to send it to; `None` if its MAC address
    /// need not be asked for.
    #[must_use]
    pub fn solicitation(&self) -> Option<(Neighbour, [u8; 6])> {
        let next = self.next?;
        let group = solicited_node(next);
        let message = self.message(NeighbourKind::Solicitation, group, next);
        Some((message, group_mac(group)))
    }

    fn message(&self, kind: NeighbourKind, destination: [u8; 16], target: [u8; 16]) -> Neighbour {
        Neighbour {
            kind,
            source: self.ip,
            destination,
            target,
            link: Some(self.mac),
        }
    }
}

/// The address of all nodes on the link. (RFC 4291 §2.7.1)
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
