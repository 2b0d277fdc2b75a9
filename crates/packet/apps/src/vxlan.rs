//! **vxlan**: a tunnel of Ethernet frames over UDP. (RFC 7348)
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8, port 4789 | flags 1, 0 3, VNI 3, 0 1 | frame
//! ```
//!
//! - inputs, outputs: `north`, frames, and `south`, the tunnel's packets
//! - configuration: `local`, `remote`: addresses of the ends, both of IPv4 or of IPv6; `vni`: the
//!   network, 0 to 16777215; `port`: 4789 where nothing is said; `hop_limit`: 64 where nothing is
//!   said; `mac`, `next_mac`: Ethernet addresses of packets to the south, zeros where nothing is
//!   said, for `arp` or `nd` to fill in
//! - counters: to the south `drop_no_room`, `drop_unfinished`: still to be cut; from
//!   the south `drop_not_ours`, `drop_length`, `drop_checksum`, `drop_fragment`,
//!   `drop_key`: another VNI; `drop_extensions`: too many extension headers of IPv6, or one that
//!   has to be refused; `drop_congested`: met congestion, and its ends do not know the mark
//! - cost: 50 or 70 bytes written, or compared, and a hash over the inner addresses, which chooses
//!   the source port, so that routers between spread flows; over IPv6 the sum over the packet
//!
//! Over IPv4 no checksum is sent. One that is received is checked.
//!
//! The outer header has the traffic class of the packet in the frame, and the mark of congestion
//! that it gets on the way goes back to that. (RFC 9601)

use std::net::IpAddr;

use carina_engine::frames::AppError;
use carina_frame::Frame;
use carina_wire::inet::{PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use crate::congestion::{class_of, packet_in};
use crate::flow_hash::flow_hash;
use crate::mac_text::MacText;
use crate::outer::{Arrived, Outer, ends};
use crate::tunnel::{Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit};

/// The configuration of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanConfig {
    /// Address of this end.
    pub local: IpAddr,
    /// Address of the other end.
    pub remote: IpAddr,
    /// The VXLAN network identifier.
    pub vni: u32,
    /// The port of UDP.
    #[serde(default = "port")]
    pub port: u16,
    /// TTL or hop limit of packets to the south.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source of packets to the south.
    pub mac: Option<MacText>,
    /// Destination of packets to the south.
    pub next_mac: Option<MacText>,
}

fn port() -> u16 {
    4789
}

/// The protocol between two ends.
pub struct Vxlan {
    outer: Outer,
    port: u16,
    vni: u32,
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
#[error("vni = {0}: must be 0 to 16777215")]
struct VniError(u32);

/// UDP and VXLAN.
const HEADER: usize = 16;
/// The VNI is there.
const HAS_VNI: u8 = 0x08;
/// Source ports: 49152 and the 16383 above. (RFC 7348 §5)
const SOURCE_PORTS: u16 = 0xc000;

impl TunnelKind for VxlanConfig {
    const KIND: &'static str = "vxlan";
    type Tunnel = Vxlan;

    fn tunnel(&self) -> Result<Vxlan, AppError> {
        if self.vni >= 1 << 24 {
            return Err(VniError(self.vni).into());
        }
        let outer = Outer::new(&ends!(self), PROTOCOL_UDP)?;
        Ok(Vxlan {
            outer,
            port: self.port,
            vni: self.vni,
        })
    }
}

impl Tunnel for Vxlan {
    const REASONS: &'static [Refused] = &[
        Refused::NoRoom,
        Refused::Unfinished,
        Refused::NotOurs,
        Refused::Length,
        Refused::Checksum,
        Refused::Fragment,
        Refused::Key,
        Refused::Extensions,
        Refused::Congested,
    ];

    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let length = u16::try_from(frame.len() + HEADER).map_err(|_| Refused::NoRoom)?;
        let class = class_of(&frame.bytes()[packet_in(frame.bytes())..]);
        let source = SOURCE_PORTS | (flow_hash(frame.bytes()) >> 16) as u16;
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&source.to_be_bytes());
        header[2..4].copy_from_slice(&self.port.to_be_bytes());
        header[4..6].copy_from_slice(&length.to_be_bytes());
        header[8] = HAS_VNI;
        header[12..].copy_from_slice(&(self.vni << 8).to_be_bytes());
        if !frame.prepend(&header) {
            return Err(Refused::NoRoom);
        }
        // IPv6 has no checksum of its own for the addresses. (RFC 8200 §8.1)
        if self.outer.is_ipv6() {
            let pseudo = self.outer.pseudo_sum(frame.len());
            let sum = match checksum(frame.bytes(), pseudo) {
                0 => 0xffff,
                sum => sum,
            };
            frame.bytes_mut()[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        let is_done = self.outer.wrap(frame, class);
        is_done.then_some(()).ok_or(Refused::NoRoom)
    }

    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let Arrived { place, class } = self.outer.unwrap(frame.bytes())?;
        let packet = &frame.bytes()[place.clone()];
        let head = packet.first_chunk::<HEADER>().ok_or(Refused::Length)?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        if half(2) != self.port || head[8] & HAS_VNI == 0 {
            return Err(Refused::NotOurs);
        }
        let length = usize::from(half(4));
        if length < HEADER || length > packet.len() {
            return Err(Refused::Length);
        }
        let is_summed = half(6) != 0;
        let sum = || checksum(&packet[..length], self.outer.pseudo_sum(length));
        if is_summed && sum() != 0 {
            return Err(Refused::Checksum);
        }
        if u32::from_be_bytes([0, head[12], head[13], head[14]]) != self.vni {
            return Err(Refused::Key);
        }
        frame.truncate(place.start + length);
        frame.advance(place.start + HEADER);
        carry_mark_at(frame, packet_in(frame.bytes()), class)
    }
}
