//! **gre**: a tunnel of Ethernet frames or IP packets over IPv4 or IPv6. (RFC 2784, RFC 2890, RFC
//! 7676)
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40, protocol 47 | flags 2, Ethertype 2 | key 4, if any | payload
//! ```
//!
//! - inputs, outputs: `north`, what is carried, and `south`, the tunnel's packets
//! - configuration: `local`, `remote`: addresses of the ends, both of IPv4 or of IPv6; `key`: 0 to
//!   4294967295, without which packets must have no key; `payload`: `ethernet`, where nothing is
//!   said, or `ip`; `hop_limit`: 64 where nothing is said; `mac`, `next_mac`: Ethernet addresses of
//!   packets to the south, zeros where nothing is said, for `arp` or `nd` to fill in
//! - counters: to the south `drop_no_room`, `drop_unfinished`: still to be cut, `drop_not_carried`:
//!   no IP. From the south `drop_not_ours`, `drop_length`, `drop_checksum`, `drop_fragment`,
//!   `drop_key`: another key; `drop_extensions`: too many extension headers of IPv6, or one that
//!   has to be refused; `drop_congested`: met congestion, and its ends do not know the mark
//! - cost: 38 to 62 bytes written, or compared
//!
//! With `payload = "ip"` frames to the north have zeros as MAC addresses. A checksum is checked,
//! and not sent; sequence numbers are passed over, reserved bits are ignored.
//!
//! The outer header has the traffic class of the packet that is carried, also of one in a frame of
//! Ethernet, and the mark of congestion that it gets on the way goes back to that. (RFC 9601)

use std::net::IpAddr;

use carina_engine::frames::AppError;
use carina_frame::Frame;
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_GRE, checksum};
use serde::{Deserialize, Serialize};

use crate::congestion::{class_of, packet_in};
use crate::mac_text::MacText;
use crate::outer::{Arrived, Outer, ends};
use crate::tunnel::{
    Payload, Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit, put_ether, strip_ether,
};

/// The configuration of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreConfig {
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the other end.
    pub remote: IpAddr,
    /// The key of both directions.
    pub key: Option<u32>,
    /// What is carried.
    #[serde(default)]
    pub payload: Payload,
    /// TTL or hop limit of packets to the south.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source of packets to the south.
    pub mac: Option<MacText>,
    /// Destination of packets to the south.
    pub next_mac: Option<MacText>,
}

/// The protocol between two ends.
pub struct Gre {
    outer: Outer,
    key: Option<u32>,
    payload: Payload,
}

/// Ethertype of whole frames. (RFC 1701, "Transparent Ethernet Bridging")
const BRIDGED: u16 = 0x6558;

const HAS_CHECKSUM: u16 = 0x8000;
const HAS_KEY: u16 = 0x2000;
const HAS_SEQUENCE: u16 = 0x1000;
/// Bits 1, 4 and 5, of RFC 1701's routing, and the version, which must be 0. Bits 6 to 12 are
/// ignored. (RFC 2784 §2.3)
const REFUSED: u16 = 0x4c07;

impl TunnelKind for GreConfig {
    const KIND: &'static str = "gre";
    type Tunnel = Gre;

    fn tunnel(&self) -> Result<Gre, AppError> {
        Ok(Gre {
            outer: Outer::new(&ends!(self), PROTOCOL_GRE)?,
            key: self.key,
            payload: self.payload,
        })
    }
}

impl Gre {
    /// Where the packet of IP begins in what is carried.
    fn packet_in(&self, carried: &[u8]) -> usize {
        match self.payload {
            Payload::Ethernet => packet_in(carried),
            Payload::Ip => 0,
        }
    }
}

impl Tunnel for Gre {
    const REASONS: &'static [Refused] = &[
        Refused::NoRoom,
        Refused::Unfinished,
        Refused::NotCarried,
        Refused::NotOurs,
        Refused::Length,
        Refused::Checksum,
        Refused::Fragment,
        Refused::Key,
        Refused::Extensions,
        Refused::Congested,
    ];

    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let ethertype = match self.payload {
            Payload::Ethernet => BRIDGED,
            Payload::Ip => strip_ether(frame)?,
        };
        let class = class_of(&frame.bytes()[self.packet_in(frame.bytes())..]);
        let mut header = [0; 8];
        header[2..4].copy_from_slice(&ethertype.to_be_bytes());
        let length = match self.key {
            Some(key) => {
                header[..2].copy_from_slice(&HAS_KEY.to_be_bytes());
                header[4..].copy_from_slice(&key.to_be_bytes());
                8
            }
            None => 4,
        };
        let is_done = frame.prepend(&header[..length]) && self.outer.wrap(frame, class);
        is_done.then_some(()).ok_or(Refused::NoRoom)
    }

    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let Arrived { place, class } = self.outer.unwrap(frame.bytes())?;
        let packet = &frame.bytes()[place.clone()];
        let (head, mut rest) = packet.split_first_chunk::<4>().ok_or(Refused::Length)?;
        let flags = u16::from_be_bytes([head[0], head[1]]);
        if flags & REFUSED != 0 {
            return Err(Refused::NotOurs);
        }
        let mut word = || {
            let (word, behind) = rest.split_first_chunk::<4>().ok_or(Refused::Length)?;
            rest = behind;
            Ok::<_, Refused>(u32::from_be_bytes(*word))
        };
        if flags & HAS_CHECKSUM != 0 {
            word()?;
            if checksum(packet, 0) != 0 {
                return Err(Refused::Checksum);
            }
        }
        let key = match flags & HAS_KEY {
            0 => None,
            _ => Some(word()?),
        };
        if flags & HAS_SEQUENCE != 0 {
            word()?;
        }
        if key != self.key {
            return Err(Refused::Key);
        }
        let ethertype = u16::from_be_bytes([head[2], head[3]]);
        let (start, end) = (place.end - rest.len(), place.end);
        let is_carried = match self.payload {
            Payload::Ethernet => ethertype == BRIDGED,
            Payload::Ip => [ETHERTYPE_IPV4, ETHERTYPE_IPV6].contains(&ethertype),
        };
        if !is_carried {
            return Err(Refused::NotOurs);
        }
        frame.truncate(end);
        frame.advance(start);
        carry_mark_at(frame, self.packet_in(frame.bytes()), class)?;
        match self.payload {
            Payload::Ethernet => Ok(()),
            Payload::Ip => put_ether(frame, ethertype),
        }
    }
}
