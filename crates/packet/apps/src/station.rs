//! A station on a segment, with the address of its next hop: what it does with ARP and with
//! neighbour discovery. (RFC 826; RFC 4861 §7.2)
//!
//! A message says something of the next hop, which [`NextHop`](crate::next_hop::NextHop) takes, or
//! asks for this station, which answers. Nothing here depends on time.

use carina_wire::inet::Arp4;
use carina_wire::neighbour::{Neighbour, NeighbourKind, group_mac, solicited_node};

use crate::next_hop::Heard;

/// A station with an address of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station4 {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address.
    pub ip: [u8; 4],
    /// The next hop, if its MAC address is asked for.
    pub next: Option<[u8; 4]>,
}

impl Station4 {
    /// What a message says of the next hop, which sends it. The message may be for another station,
    /// or announce the address to all. (RFC 826)
    #[must_use]
    pub fn heard(&self, arp: &Arp4) -> Option<Heard> {
        let (mac, ip) = arp.sender;
        (Some(ip) == self.next).then_some(Heard {
            is_answer: arp.target.1 == self.ip,
            ..Heard::answer(mac)
        })
    }

    /// The reply to a request for this station's address.
    #[must_use]
    pub fn reply(&self, arp: &Arp4) -> Option<Arp4> {
        let is_meant = !arp.is_reply && arp.target.1 == self.ip;
        is_meant.then_some(Arp4 {
            is_reply: true,
            sender: (self.mac, self.ip),
            target: arp.sender,
        })
    }

    /// A request for the next hop's MAC address.
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

/// A station with an address of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station6 {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv6 address.
    pub ip: [u8; 16],
    /// The next hop, if its MAC address is asked for.
    pub next: Option<[u8; 16]>,
    /// It forwards packets.
    pub is_router: bool,
}

impl Station6 {
    /// What a message says of the next hop: an advertisement of its address, or a solicitation of
    /// this station's address that comes from it.
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

    /// The advertisement that answers a solicitation of this station's address, which came from
    /// the MAC address `sender`, and the MAC address that it goes to.
    #[must_use]
    pub fn advertisement(
        &self,
        asked: &Neighbour,
        sender: [u8; 6],
    ) -> Option<(Neighbour, [u8; 6])> {
        if asked.kind != NeighbourKind::Solicitation || asked.target != self.ip {
            return None;
        }
        // A station that tests whether an address is free has none yet. (RFC 4861 §7.2.4)
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

    /// A solicitation of the next hop's address, and the MAC address that it goes to.
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

/// All nodes of the link. (RFC 4291 §2.7.1)
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
