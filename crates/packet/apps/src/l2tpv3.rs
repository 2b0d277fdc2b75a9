//! **l2tpv3**: a keyed IPv6 tunnel of Ethernet frames. (RFC 8159; L2TPv3 of RFC 3931 without
//! control connection)
//!
//! ```text
//!   Ethernet 14 | IPv6 40, next header 115 | session 4 | cookie 8 | Ethernet frame
//! ```
//!
//! - inputs, outputs: `north`, the tunnelled frames, and `south`, the tunnel's packets
//! - configuration:
//!   - `local`, `remote`: IPv6 addresses of the two ends
//!   - `local_cookie`: cookie to send, `remote_cookie`: cookie to expect; 8 bytes in hexadecimal
//!   - `session`: session of received packets, not 0 (default: 0xffffffff)
//!   - `peer_session`: session to send (default: that of `session`)
//!   - `hop_limit`: 1 to 255 (default: 64)
//!   - `mac`, `next_mac`: source and destination MAC address of packets to `south` (default: zeros,
//!     for `nd` to fill in)
//! - counters: from `north`: `drop_no_room`: frames without headroom, or longer than 65523 bytes;
//!   `drop_unfinished`: frames whose segmentation is still pending. From `south`: `drop_not_ours`:
//!   packets with other addresses, or that are not L2TPv3 over IPv6; `drop_length`: truncated
//!   packets; `drop_fragment`; `drop_session`; `drop_cookie`; `drop_extensions`: packets with too
//!   many extension headers, or with one that must be refused; `drop_congested`: packets that met
//!   congestion but are not ECN-capable
//! - cost: 66 bytes written, or compared
//!
//! The outer header gets the traffic class of the packet in the frame. A congestion mark that it
//! receives on the path is copied back into that packet. (RFC 9601)
//!
//! With an MTU of 1500 bytes at `south`, inner frames have at most 1448 bytes: an inner MTU of
//! 1434.

use std::net::Ipv6Addr;

use carina_frame::Frame;
use carina_frame_engine::AppError;
use carina_wire::ether::Mac;
use carina_wire::inet::{ETHERTYPE_IPV6, PROTOCOL_L2TP};
use serde::{Deserialize, Serialize};

use crate::congestion::{class_of, packet_in, set_class};
use crate::hex_text::HexText;
use crate::mac_text::MacText;
use crate::outer::{Arrived, unwrap6};
use crate::tunnel::{Refused, Tunnel, TunnelKind, carry_mark_at, hop_limit};

/// The configuration of the app `l2tpv3`, which tunnels Ethernet frames in IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2tpv3Config {
    /// IPv6 address of this end of the tunnel.
    pub local: Ipv6Addr,
    /// IPv6 address of the other end of the tunnel.
    pub remote: Ipv6Addr,
    /// The cookie to send.
    pub local_cookie: HexText<8>,
    /// The cookie that received packets must have.
    pub remote_cookie: HexText<8>,
    /// The session that received packets must have.
    #[serde(default = "any_session")]
    pub session: u32,
    /// Session ID in sent packets; `None` means the same as `session`.
    pub peer_session: Option<u32>,
    /// Hop limit of packets to `south`.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source MAC address of the tunnel's packets, which leave at port `south`. `None`: zeros,
    /// which an app `nd` behind `south` replaces.
    pub mac: Option<MacText>,
    /// Destination MAC address of the tunnel's packets. `None`: zeros, which an app `nd` behind
    /// `south` replaces.
    pub next_mac: Option<MacText>,
}

/// The session if the addresses alone identify the tunnel: all ones. (RFC 8159 §3)
fn any_session() -> u32 {
    u32::MAX
}

/// Length of the headers in front of the inner frame, in bytes.
pub const HEADER_BYTES: usize = 66;

/// Length of session and cookie, which precede the inner frame in the IPv6 payload, in bytes.
const PAYLOAD_BEFORE: usize = 12;
const ETHER: usize = 14;

/// The keyed IPv6 tunnel between two ends: adds its headers to frames, and removes them.
pub struct L2tpv3 {
    header: [u8; HEADER_BYTES],
    /// Source and destination address that received packets must have.
    ends: [[u8; 16]; 2],
    /// Session and cookie that received packets must have.
    session: [u8; 4],
    cookie: [u8; 8],
}

/// Why a configuration of the app `l2tpv3` is invalid.
#[derive(Debug, thiserror::Error)]
enum TunnelError {
    #[error("{name} = 0: must be 1 to 4294967295; session 0 is reserved for control messages")]
    Session { name: &'static str },
    #[error("hop_limit = 0: must be 1 to 255")]
    HopLimit,
    #[error("remote = {0}: must differ from local")]
    Same(Ipv6Addr),
}

impl TunnelKind for L2tpv3Config {
    const KIND: &'static str = "l2tpv3";
    type Tunnel = L2tpv3;

    fn tunnel(&self) -> Result<L2tpv3, AppError> {
        self.check()?;
        Ok(L2tpv3 {
            header: self.header(),
            ends: [self.remote.octets(), self.local.octets()],
            session: self.session.to_be_bytes(),
            cookie: self.remote_cookie.0,
        })
    }
}

impl L2tpv3Config {
    fn check(&self) -> Result<(), TunnelError> {
        let sessions = [
            ("session", Some(self.session)),
            ("peer_session", self.peer_session),
        ];
        if let Some((name, _)) = sessions.iter().find(|(_, session)| *session == Some(0)) {
            return Err(TunnelError::Session { name });
        }
        if self.hop_limit == 0 {
            return Err(TunnelError::HopLimit);
        }
        if self.local == self.remote {
            return Err(TunnelError::Same(self.remote));
        }
        Ok(())
    }

    fn header(&self) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        let mac = |mac: Option<MacText>| mac.map_or(Mac([0; 6]), |mac| mac.0).0;
        header[..6].copy_from_slice(&mac(self.next_mac));
        header[6..12].copy_from_slice(&mac(self.mac));
        header[12..14].copy_from_slice(&ETHERTYPE_IPV6.to_be_bytes());
        header[14] = 0x60;
        (header[20], header[21]) = (PROTOCOL_L2TP, self.hop_limit);
        header[22..38].copy_from_slice(&self.local.octets());
        header[38..54].copy_from_slice(&self.remote.octets());
        let session = self.peer_session.unwrap_or(self.session);
        header[54..58].copy_from_slice(&session.to_be_bytes());
        header[58..].copy_from_slice(&self.local_cookie.0);
        header
    }
}

impl Tunnel for L2tpv3 {
    const REASONS: &'static [Refused] = &[
        Refused::NoRoom,
        Refused::Unfinished,
        Refused::NotOurs,
        Refused::Length,
        Refused::Fragment,
        Refused::Session,
        Refused::Cookie,
        Refused::Extensions,
        Refused::Congested,
    ];

    #[inline]
    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let length = u16::try_from(frame.len() + PAYLOAD_BEFORE).map_err(|_| Refused::NoRoom)?;
        let class = class_of(&frame.bytes()[packet_in(frame.bytes())..]);
        if !frame.prepend(&self.header) {
            return Err(Refused::NoRoom);
        }
        let packet = &mut frame.bytes_mut()[ETHER..];
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        set_class(packet, class);
        Ok(())
    }

    #[inline]
    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let bytes = frame.bytes();
        if bytes.get(12..ETHER) != Some(&ETHERTYPE_IPV6.to_be_bytes()) {
            return Err(Refused::NotOurs);
        }
        let Arrived { place, class } = unwrap6(bytes, self.ends, PROTOCOL_L2TP)?;
        let head = bytes[place.clone()].first_chunk::<PAYLOAD_BEFORE>();
        let head = head.ok_or(Refused::Length)?;
        if head[..4] != self.session {
            return Err(Refused::Session);
        }
        if head[4..] != self.cookie {
            return Err(Refused::Cookie);
        }
        // The bytes behind the packet are padding.
        frame.truncate(place.end);
        frame.advance(place.start + PAYLOAD_BEFORE);
        carry_mark_at(frame, packet_in(frame.bytes()), class)
    }
}
