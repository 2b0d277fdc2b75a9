//! **gre**: a tunnel of Ethernet frames or IP packets over IPv4 or IPv6. (RFC 2784, RFC 2890, RFC
//! 7676)
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40, protocol 47 | flags 2, Ethertype 2 | key 4, if any | payload
//! ```
//!
//! - inputs, outputs: `north`, the tunnelled frames or packets, and `south`, the tunnel's packets
//! - configuration: `local`, `remote`: addresses of the two ends, both IPv4 or both IPv6; `key`: 0
//!   to 4294967295 (default: none, and packets must have none); `payload`: `ethernet` or `ip`
//!   (default: `ethernet`); `hop_limit` (default: 64); `mac`, `next_mac`: source and destination
//!   MAC address of packets to `south` (default: zeros, for `arp` or `nd` to fill in)
//! - counters: from `north`: `drop_no_room`; `drop_unfinished`: frames whose segmentation is still
//!   pending; `drop_not_carried`: frames without an IP packet. From `south`: `drop_not_ours`,
//!   `drop_length`, `drop_checksum`, `drop_fragment`; `drop_key`: packets with another key;
//!   `drop_extensions`: packets with too many IPv6 extension headers, or with one that must be
//!   refused; `drop_congested`: packets that met congestion but are not ECN-capable
//! - cost: 38 to 62 bytes written, or compared
//!
//! With `payload = "ip"`, frames to `north` have zeros as MAC addresses. The app verifies the
//! checksum of received packets, but sends none. It ignores sequence numbers and reserved bits.
//!
//! The outer header gets the traffic class of the inner packet, also if this packet is in an
//! Ethernet frame. A congestion mark that it receives on the path is copied back into the inner
//! packet. (RFC 9601)

use std::net::IpAddr;

use carina_frame::Frame;
use carina_frame_engine::AppError;
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_GRE, checksum};
use serde::{Deserialize, Serialize};

use crate::congestion::{class_of, packet_in};
use crate::mac_text::MacText;
use crate::outer::{Arrived, Outer, ends};
use crate::tunnel::{
    Payload, Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit, put_ether, strip_ether,
};

/// The configuration of the app `gre`, which tunnels Ethernet frames or IP packets by GRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GreConfig {
    /// IP address of this end of the tunnel.
    pub local: IpAddr,
    /// IP address of the other end of the tunnel.
    pub remote: IpAddr,
    /// Key of both directions; `None` means packets without key.
    pub key: Option<u32>,
    /// Whether frames or packets are tunnelled.
    #[serde(default)]
    pub payload: Payload,
    /// TTL or hop limit of packets to `south`.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source MAC address of the tunnel's packets, which leave at port `south`. `None`: zeros,
    /// which an app `arp` or `nd` behind `south` replaces.
    pub mac: Option<MacText>,
    /// Destination MAC address of the tunnel's packets. `None`: zeros, which an app `arp` or `nd`
    /// behind `south` replaces.
    pub next_mac: Option<MacText>,
}

/// GRE between two ends: adds its headers to payloads, and removes them.
pub struct Gre {
    outer: Outer,
    key: Option<u32>,
    payload: Payload,
}

/// Ethertype for whole Ethernet frames. (RFC 1701, "Transparent Ethernet Bridging")
const BRIDGED: u16 = 0x6558;

const HAS_CHECKSUM: u16 = 0x8000;
const HAS_KEY: u16 = 0x2000;
const HAS_SEQUENCE: u16 = 0x1000;
/// Bits that must be 0: 1, 4 and 5, which RFC 1701 uses for routing, and the version. Bits 6 to 12
/// are ignored. (RFC 2784 §2.3)
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
    /// Offset of the IP packet in the tunnelled payload.
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
