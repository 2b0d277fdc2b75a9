//! **ipip**: a tunnel of IPv4 packets over IPv4 (RFC 2003) or IPv6 (RFC 2473).
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40, protocol 4 | IPv4 packet
//! ```
//!
//! - inputs, outputs: `north`, frames with IPv4 packets, and `south`, the tunnel's packets
//! - configuration: `local`, `remote`: addresses of the two ends, both IPv4 or both IPv6;
//!   `hop_limit` (default: 64); `mac`, `next_mac`: source and destination MAC address of packets to
//!   `south` (default: zeros, for `arp` or `nd` to fill in)
//! - counters: from `north`: `drop_no_room`; `drop_unfinished`: frames whose segmentation is still
//!   pending; `drop_not_carried`: frames without an IPv4 packet. From `south`: `drop_not_ours`,
//!   `drop_length`, `drop_checksum`, `drop_fragment`; `drop_extensions`: packets with too many IPv6
//!   extension headers, or with one that must be refused; `drop_congested`: packets that met
//!   congestion but are not ECN-capable
//! - cost: 34 or 54 bytes written, or compared
//!
//! The outer header gets the traffic class of the inner packet. A congestion mark that it receives
//! on the path is copied back into the inner packet. (RFC 2003 §3.1, RFC 6040)
//!
//! Frames to `north` have zeros as MAC addresses, for `arp` to fill in.

use std::net::IpAddr;

use carina_frame::Frame;
use carina_frame_engine::AppError;
use carina_wire::inet::{ETHERTYPE_IPV4, PROTOCOL_IPV4};
use serde::{Deserialize, Serialize};

use crate::congestion::class_of;
use crate::mac_text::MacText;
use crate::outer::{Arrived, Outer, ends};
use crate::tunnel::{
    Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit, put_ether, strip_ether,
};

/// The configuration of the app `ipip`, which tunnels IPv4 packets in IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IpipConfig {
    /// IP address of this end of the tunnel.
    pub local: IpAddr,
    /// IP address of the other end of the tunnel.
    pub remote: IpAddr,
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

/// IPv4 in IP between two ends: adds the outer header to packets, and removes it.
pub struct Ipip(Outer);

impl TunnelKind for IpipConfig {
    const KIND: &'static str = "ipip";
    type Tunnel = Ipip;

    fn tunnel(&self) -> Result<Ipip, AppError> {
        Ok(Ipip(Outer::new(&ends!(self), PROTOCOL_IPV4)?))
    }
}

impl Tunnel for Ipip {
    const REASONS: &'static [Refused] = &[
        Refused::NoRoom,
        Refused::Unfinished,
        Refused::NotCarried,
        Refused::NotOurs,
        Refused::Length,
        Refused::Checksum,
        Refused::Fragment,
        Refused::Extensions,
        Refused::Congested,
    ];

    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        if strip_ether(frame)? != ETHERTYPE_IPV4 {
            return Err(Refused::NotCarried);
        }
        let class = class_of(frame.bytes());
        let is_done = self.0.wrap(frame, class);
        is_done.then_some(()).ok_or(Refused::NoRoom)
    }

    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let Arrived { place, class } = self.0.unwrap(frame.bytes())?;
        let inner = &frame.bytes()[place.clone()];
        if inner.len() < 20 || inner[0] >> 4 != 4 {
            return Err(Refused::Length);
        }
        frame.truncate(place.end);
        frame.advance(place.start);
        carry_mark_at(frame, 0, class)?;
        put_ether(frame, ETHERTYPE_IPV4)
    }
}
