//! **l2tpv3**: a keyed IPv6 tunnel of Ethernet frames. (RFC 8159; L2TPv3 of RFC 3931 without
//! control connection)
//!
//! ```text
//!   Ethernet 14 | IPv6 40, next header 115 | session 4 | cookie 8 | Ethernet frame
//! ```
//!
//! - inputs, outputs: `north`, the frames, and `south`, the tunnel's packets
//! - configuration:
//!   - `local`, `remote`: IPv6 addresses of the ends
//!   - `local_cookie`, `remote_cookie`: 8 bytes in hexadecimal; the first is sent, the second
//!     expected
//!   - `session`: that received packets must have, not 0; 0xffffffff where nothing is said
//!   - `peer_session`: that is sent; as `session` where nothing is said
//!   - `hop_limit`: 1 to 255, 64 where nothing is said
//!   - `mac`, `next_mac`: Ethernet addresses of packets to the south; zeros where nothing is said,
//!     for `nd` to fill in
//! - counters: to the south `drop_no_room`: no headroom, or above 65523 bytes; `drop_unfinished`:
//!   still to be cut. From the south `drop_not_ours`: other addresses or no L2TPv3 over IPv6;
//!   `drop_length`: cut; `drop_session`; `drop_cookie`
//! - cost: 66 bytes written, or compared
//!
//! An MTU of 1500 bytes in the south has room for inner frames of 1448 bytes: an inner MTU of 1434.

use std::net::Ipv6Addr;

use carina_engine::frames::AppError;
use carina_frame::Frame;
use carina_wire::ether::Mac;
use carina_wire::inet::{ETHERTYPE_IPV6, PROTOCOL_L2TP};
use serde::{Deserialize, Serialize};

use crate::hex_text::HexText;
use crate::mac_text::MacText;
use crate::tunnel::{Refused, Tunnel, TunnelKind, hop_limit};

/// The configuration of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2tpv3Config {
    /// IPv6 address of this end.
    pub local: Ipv6Addr,
    /// IPv6 address of the other end.
    pub remote: Ipv6Addr,
    /// The cookie that is sent.
    pub local_cookie: HexText<8>,
    /// The cookie that is expected.
    pub remote_cookie: HexText<8>,
    /// The session that is expected.
    #[serde(default = "any_session")]
    pub session: u32,
    /// The session that is sent.
    pub peer_session: Option<u32>,
    /// Hop limit of packets to the south.
    #[serde(default = "hop_limit")]
    pub hop_limit: u8,
    /// Source of packets to the south.
    pub mac: Option<MacText>,
    /// Destination of packets to the south.
    pub next_mac: Option<MacText>,
}

/// RFC 8159 §3 has all ones where the addresses alone name the tunnel.
fn any_session() -> u32 {
    u32::MAX
}

/// Bytes in front of the inner frame.
pub const HEADER_BYTES: usize = 66;

/// Bytes of IPv6's payload in front of the inner frame.
const PAYLOAD_BEFORE: usize = 12;

/// The protocol between two ends.
pub struct L2tpv3 {
    header: [u8; HEADER_BYTES],
    /// What a received packet has at 22: addresses, session, cookie.
    expected: [u8; 44],
}

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
enum TunnelError {
    #[error("{name} = 0: session 0 is that of control messages; must be 1 to 4294967295")]
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
            expected: self.expected(),
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

    fn expected(&self) -> [u8; 44] {
        let mut expected = [0; 44];
        expected[..16].copy_from_slice(&self.remote.octets());
        expected[16..32].copy_from_slice(&self.local.octets());
        expected[32..36].copy_from_slice(&self.session.to_be_bytes());
        expected[36..].copy_from_slice(&self.remote_cookie.0);
        expected
    }
}

impl Tunnel for L2tpv3 {
    const REASONS: &'static [Refused] = &[
        Refused::NoRoom,
        Refused::Unfinished,
        Refused::NotOurs,
        Refused::Length,
        Refused::Session,
        Refused::Cookie,
    ];

    #[inline]
    fn encapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let length = u16::try_from(frame.len() + PAYLOAD_BEFORE).map_err(|_| Refused::NoRoom)?;
        if !frame.prepend(&self.header) {
            return Err(Refused::NoRoom);
        }
        frame.bytes_mut()[18..20].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    #[inline]
    fn decapsulate(&self, frame: &mut Frame) -> Result<(), Refused> {
        let head = frame.bytes().first_chunk::<HEADER_BYTES>();
        let head = head.ok_or(Refused::NotOurs)?;
        let is_ours = head[12..14] == ETHERTYPE_IPV6.to_be_bytes()
            && head[14] >> 4 == 6
            && head[20] == PROTOCOL_L2TP
            && head[22..54] == self.expected[..32];
        if !is_ours {
            return Err(Refused::NotOurs);
        }
        let length = usize::from(u16::from_be_bytes([head[18], head[19]]));
        if length < PAYLOAD_BEFORE || 54 + length > frame.len() {
            return Err(Refused::Length);
        }
        if head[54..58] != self.expected[32..36] {
            return Err(Refused::Session);
        }
        if head[58..] != self.expected[36..] {
            return Err(Refused::Cookie);
        }
        // What is behind the packet is padding.
        frame.truncate(54 + length);
        frame.advance(HEADER_BYTES);
        Ok(())
    }
}
