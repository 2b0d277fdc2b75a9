//! **vxlan**: a tunnel of Ethernet frames over UDP. (RFC 7348)
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8, port 4789 | flags 1, 0 3, VNI 3, 0 1 | frame
//! ```
//!
//! - inputs, outputs: `north`, the tunnelled frames, and `south`, the tunnel's packets
//! - configuration: `local`, `remote`: addresses of the two ends, both IPv4 or both IPv6; `vni`:
//!   number of the network, 0 to 16777215; `port`: UDP destination port (default: 4789);
//!   `hop_limit` (default: 64); `mac`, `next_mac`: source and destination MAC address of packets to
//!   `south` (default: zeros, for `arp` or `nd` to fill in)
//! - counters: from `north`: `drop_no_room`; `drop_unfinished`: frames whose segmentation is still
//!   pending. From `south`: `drop_not_ours`, `drop_length`, `drop_checksum`, `drop_fragment`;
//!   `drop_key`: packets with another VNI; `drop_extensions`: packets with too many IPv6 extension
//!   headers, or with one that must be refused; `drop_congested`: packets that met congestion but
//!   are not ECN-capable
//! - cost: 50 or 70 bytes written, or compared, and a hash over the inner addresses; over IPv6 also
//!   a sum over the packet. The hash selects the source port, so that routers on the path can
//!   distribute flows
//!
//! Over IPv4 the app sends no UDP checksum, but it verifies one that it receives.
//!
//! The outer header gets the traffic class of the packet in the frame. A congestion mark that it
//! receives on the path is copied back into that packet. (RFC 9601)

use std::net::IpAddr;

use carina_frame::Frame;
use carina_frame_engine::AppError;
use carina_wire::inet::{PROTOCOL_UDP, checksum};
use serde::{Deserialize, Serialize};

use crate::congestion::{class_of, packet_in};
use crate::flow_hash::flow_hash;
use crate::mac_text::MacText;
use crate::outer::{Arrived, Outer, ends};
use crate::tunnel::{Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit};

/// The configuration of the app `vxlan`, which tunnels Ethernet frames by VXLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VxlanConfig {
    /// IP address of this end of the tunnel.
    pub local: IpAddr,
    /// IP address of the other end of the tunnel.
    pub remote: IpAddr,
    /// The VXLAN network identifier.
    pub vni: u32,
    /// UDP destination port.
    #[serde(default = "port")]
    pub port: u16,
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

fn port() -> u16 {
    4789
}

/// VXLAN between two ends: adds its headers to frames, and removes them.
pub struct Vxlan {
    outer: Outer,
    port: u16,
    vni: u32,
}

/// The VNI is out of range.
#[derive(Debug, thiserror::Error)]
#[error("vni = {0}: must be 0 to 16777215")]
struct VniError(u32);

/// Length of the UDP and VXLAN headers, in bytes.
const HEADER: usize = 16;
/// Flag: the VNI is valid.
const HAS_VNI: u8 = 0x08;
/// First UDP source port, 49152; the hash selects one of 16384 ports from there. (RFC 7348 §5)
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
        // The UDP checksum must cover the IPv6 addresses, because IPv6 has no header checksum. (RFC
        // 8200 §8.1)
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
