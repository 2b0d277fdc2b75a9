//! **esp_tunnel**: a tunnel of IPv4 and IPv6 packets over IPv4 or IPv6, protected by ESP in tunnel
//! mode with AES-128-GCM. (RFC 4303 §3.1.2, RFC 4106, RFC 4301 §5.1.2)
//!
//! ```text
//!   Ethernet 14 | IPv4 20 or IPv6 40, protocol 50 | SPI 4 | sequence number 4 | IV 8
//!   | ciphertext of: packet, padding 1 2 3 …, its length 1, next header 4 or 41 | ICV 16
//! ```
//!
//! - inputs, outputs: `north`, frames with IPv4 or IPv6 packets, and `south`, the tunnel's packets
//! - configuration:
//!   - `local`, `remote`: addresses of the two ends, both IPv4 or both IPv6; `hop_limit` (default:
//!     64); `mac`, `next_mac`: source and destination MAC address of packets to `south` (default:
//!     zeros, for `arp` or `nd` to fill in)
//!   - `transmit_spi`, `receive_spi`: 256 to 4294967295; `transmit_key`, `receive_key`: 16 bytes in
//!     hexadecimal; `transmit_salt`, `receive_salt`: 4 bytes in hexadecimal
//!   - `extended`, `resync_threshold`, `resync_attempts`: as for `esp`
//! - counters: from `north`: `drop_not_carried`: frames without an IP packet; `drop_unfinished`:
//!   frames whose segmentation is still pending; `drop_no_room`; `drop_exhausted`: no sequence
//!   number left. From `south`: `drop_not_ours`, `drop_length`, `drop_checksum`, `drop_fragment`,
//!   `drop_spi`; `drop_replay`: sequence numbers that were seen or are older than the last 128;
//!   `drop_forged`, `drop_padding`; `drop_congested`: packets that met congestion but are not
//!   ECN-capable; `drop_inner`: payloads that are not an IP packet; `drop_extensions`: packets with
//!   too many IPv6 extension headers, or with one that must be refused; `dummies`: dummy packets of
//!   RFC 4303 §2.6; `resynchronised`
//! - cost: AES-GCM over the packet: some 80 ns at 64 bytes
//!
//! The outer header gets the traffic class of the packet, and a congestion mark that it receives on
//! the path is copied back into the packet (RFC 6040). Keys, sequence numbers and IVs follow the
//! rules of `esp`; equal keys are refused there, too. Frames to `north` have zeros as MAC
//! addresses, for `arp` or `nd` to fill in. The tunnel does not check which addresses may be used
//! inside it; put a `pcap_filter` behind it for that.

use std::net::IpAddr;

use carina_frame::Frame;
use carina_frame_engine::counter_file::Counter;
use carina_frame_engine::{AppConfig, AppContext, AppError, FrameApp, Port, PortList, Ports, Sole};
use carina_wire::inet::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, PROTOCOL_ESP, PROTOCOL_IPV4, PROTOCOL_IPV6,
};
use serde::Deserialize;

use crate::congestion::{carry_mark, class_of};
use crate::esp::{
    Direction, Opened, Receiver, Refused as Unopened, Search, Sender, Unprotected, attempts,
    check_keys, check_spi, first_iv, threshold, yes,
};
use crate::hex_text::SecretHex;
use crate::mac_text::MacText;
use crate::metadata::{complete, forget};
use crate::outer::{Arrived, NotOurs, Outer, ends};
use crate::tunnel::{hop_limit, put_ether, strip_ether};

/// The configuration of the app `esp_tunnel`, which carries IP packets through a tunnel that ESP
/// protects.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EspTunnelConfig {
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
    /// Security parameters index of packets to `south`.
    pub transmit_spi: u32,
    /// Key for packets to `south`.
    pub transmit_key: SecretHex<16>,
    /// Salt for packets to `south`.
    pub transmit_salt: SecretHex<4>,
    /// Security parameters index of packets from `south`.
    pub receive_spi: u32,
    /// Key for packets from `south`.
    pub receive_key: SecretHex<16>,
    /// Salt for packets from `south`.
    pub receive_salt: SecretHex<4>,
    /// Whether sequence numbers have 64 bits.
    #[serde(default = "yes")]
    pub extended: bool,
    /// Number of consecutive failures before the receiver searches for the sender's sequence
    /// number.
    #[serde(default = "threshold")]
    pub resync_threshold: u32,
    /// Number of values that a search tries per packet.
    #[serde(default = "attempts")]
    pub resync_attempts: u32,
}

/// The running app `esp_tunnel`: carries IP packets through a tunnel that ESP protects.
pub struct EspTunnel {
    outer: Outer,
    sender: Sender,
    receiver: Receiver,
    refused: [Counter; REASONS],
    dummies: Counter,
    resynchronised: Counter,
}

/// Why a frame is dropped at the entry or exit of the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    NotCarried,
    Unfinished,
    NoRoom,
    Exhausted,
    NotOurs,
    Length,
    Checksum,
    Fragment,
    Spi,
    Replay,
    Forged,
    Padding,
    Congested,
    Inner,
    Extensions,
}

/// Names of the counters, in the order of [`Refused`].
const NAMES: [&str; REASONS] = [
    "drop_not_carried",
    "drop_unfinished",
    "drop_no_room",
    "drop_exhausted",
    "drop_not_ours",
    "drop_length",
    "drop_checksum",
    "drop_fragment",
    "drop_spi",
    "drop_replay",
    "drop_forged",
    "drop_padding",
    "drop_congested",
    "drop_inner",
    "drop_extensions",
];
const REASONS: usize = 15;

impl From<Unprotected> for Refused {
    fn from(reason: Unprotected) -> Refused {
        match reason {
            Unprotected::NotIp | Unprotected::Length | Unprotected::Fragment => Refused::NotCarried,
            Unprotected::NoRoom => Refused::NoRoom,
            Unprotected::Exhausted => Refused::Exhausted,
        }
    }
}

impl From<Unopened> for Refused {
    fn from(reason: Unopened) -> Refused {
        match reason {
            Unopened::NotEsp => Refused::NotOurs,
            Unopened::Spi => Refused::Spi,
            Unopened::Length => Refused::Length,
            Unopened::Replay => Refused::Replay,
            Unopened::Forged => Refused::Forged,
            Unopened::Padding => Refused::Padding,
            Unopened::Fragment => Refused::Fragment,
        }
    }
}

impl From<NotOurs> for Refused {
    fn from(reason: NotOurs) -> Refused {
        match reason {
            NotOurs::Other => Refused::NotOurs,
            NotOurs::Length => Refused::Length,
            NotOurs::Checksum => Refused::Checksum,
            NotOurs::Fragment => Refused::Fragment,
            NotOurs::Extensions => Refused::Extensions,
        }
    }
}

/// What a packet from the tunnel contained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// An IP packet.
    Packet(Opened),
    /// A dummy packet. (RFC 4303 §2.6)
    Dummy,
}

/// Next header value of dummy packets. (RFC 4303 §2.6)
const NO_NEXT_HEADER: u8 = 59;

impl EspTunnelConfig {
    fn outer(&self) -> Result<Outer, AppError> {
        Ok(Outer::new(&ends!(self), PROTOCOL_ESP)?)
    }

    fn search(&self) -> Search {
        Search {
            threshold: self.resync_threshold,
            attempts: self.resync_attempts,
        }
    }

    fn transmit(&self) -> Direction<'_> {
        Direction {
            spi: self.transmit_spi,
            key: &self.transmit_key,
            salt: &self.transmit_salt,
            is_extended: self.extended,
        }
    }

    fn receive(&self) -> Direction<'_> {
        Direction {
            spi: self.receive_spi,
            key: &self.receive_key,
            salt: &self.receive_salt,
            is_extended: self.extended,
        }
    }
}

impl AppConfig for EspTunnelConfig {
    const KIND: &'static str = "esp_tunnel";
    const INPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);
    const OUTPUTS: PortList = PortList::Named(&[Port::new("north"), Port::new("south")]);

    type App = EspTunnel;

    fn check(&self) -> Result<(), AppError> {
        check_spi("transmit_spi", self.transmit_spi)?;
        check_spi("receive_spi", self.receive_spi)?;
        check_keys(&self.transmit(), &self.receive())?;
        self.search().check()?;
        self.outer().map(drop)
    }

    fn sole(&self) -> Vec<Sole> {
        vec![self.transmit().sole()]
    }

    fn build(&self, context: &mut AppContext<'_>) -> Result<EspTunnel, AppError> {
        Ok(EspTunnel {
            outer: self.outer()?,
            sender: self.transmit().sender(first_iv()?)?,
            receiver: self.receive().receiver(self.search())?,
            refused: NAMES.map(|name| context.counter(name)),
            dummies: context.counter("dummies"),
            resynchronised: context.counter("resynchronised"),
        })
    }

    /// Ends and search parameters can change without a new app; keys and sequence numbers stay.
    fn can_apply(&self, old: &EspTunnelConfig) -> bool {
        let old = EspTunnelConfig {
            local: self.local,
            remote: self.remote,
            hop_limit: self.hop_limit,
            mac: self.mac,
            next_mac: self.next_mac,
            resync_threshold: self.resync_threshold,
            resync_attempts: self.resync_attempts,
            ..old.clone()
        };
        *self == old
    }

    fn apply(&self, app: &mut EspTunnel) {
        // This cannot fail, because `can_apply` has made the same value.
        if let Ok(outer) = self.outer() {
            app.outer = outer;
        }
        app.receiver.search_by(self.search());
    }
}

const NORTH: usize = 0;
const SOUTH: usize = 1;

impl FrameApp for EspTunnel {
    fn push(&mut self, ports: &mut Ports<'_>) {
        let mut refused = [0; REASONS];
        ports.forward(NORTH, SOUTH, |frame| {
            let done = if complete(frame) {
                protect(&self.outer, &mut self.sender, frame)
            } else {
                Err(Refused::Unfinished)
            };
            done.map_err(|reason| refused[reason as usize] += 1).is_ok()
        });
        let (mut dummies, mut resynchronised) = (0, 0);
        ports.forward(SOUTH, NORTH, |frame| {
            let came = open(&self.outer, &mut self.receiver, frame);
            forget(frame);
            match came {
                Ok(Came::Packet(opened)) => {
                    resynchronised += u64::from(opened == Opened::Resynchronised);
                    true
                }
                Ok(Came::Dummy) => {
                    dummies += 1;
                    false
                }
                Err(reason) => {
                    refused[reason as usize] += 1;
                    false
                }
            }
        });
        for (counter, count) in self.refused.iter().zip(refused) {
            counter.add(count);
        }
        self.dummies.add(dummies);
        self.resynchronised.add(resynchronised);
    }
}

/// Encapsulates and protects the IP packet of a frame.
fn protect(outer: &Outer, sender: &mut Sender, frame: &mut Frame) -> Result<(), Refused> {
    let ethertype = strip_ether(frame).map_err(|_| Refused::NotCarried)?;
    let next = match ethertype {
        ETHERTYPE_IPV4 => PROTOCOL_IPV4,
        _ => PROTOCOL_IPV6,
    };
    let class = class_of(frame.bytes());
    sender.protect_behind(frame, 0, next)?;
    let is_done = outer.wrap(frame, class);
    is_done.then_some(()).ok_or(Refused::NoRoom)
}

/// Decapsulates a packet of the tunnel.
fn open(outer: &Outer, receiver: &mut Receiver, frame: &mut Frame) -> Result<Came, Refused> {
    let Arrived { place, class } = outer.unwrap(frame.bytes())?;
    frame.truncate(place.end);
    frame.advance(place.start);
    let (opened, next) = receiver.open_behind(frame, 0)?;
    let ethertype = match next {
        PROTOCOL_IPV4 => ETHERTYPE_IPV4,
        PROTOCOL_IPV6 => ETHERTYPE_IPV6,
        NO_NEXT_HEADER => return Ok(Came::Dummy),
        _ => return Err(Refused::Inner),
    };
    // Padding may follow the packet, to hide its length. (RFC 4303 §2.7)
    let length = packet_bytes(frame.bytes(), ethertype).ok_or(Refused::Inner)?;
    frame.truncate(length);
    if !carry_mark(class, frame.bytes_mut()) {
        return Err(Refused::Congested);
    }
    put_ether(frame, ethertype).map_err(|_| Refused::NoRoom)?;
    Ok(Came::Packet(opened))
}

/// Length of a packet by its header; `None` if the header is invalid or the packet is incomplete.
fn packet_bytes(bytes: &[u8], ethertype: u16) -> Option<usize> {
    let half = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    let (length, header) = match (ethertype, bytes.first()? >> 4) {
        (ETHERTYPE_IPV4, 4) if bytes.len() >= 20 => (half(2), usize::from(bytes[0] & 0x0f) * 4),
        (ETHERTYPE_IPV6, 6) if bytes.len() >= 40 => (40 + half(4), 40),
        _ => return None,
    };
    (header >= 20 && length >= header && length <= bytes.len()).then_some(length)
}

#[cfg(test)]
mod tests;
