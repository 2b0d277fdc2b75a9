//! Probes a link's other end with ICMP echo requests (RFC 792) from inside a namespace.

mod together;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use carina_wire::inet::{Ipv4Header, PROTOCOL_ICMP, checksum};

pub(crate) use self::together::{EchoRequest, echo, echo_all};

/// How often a probe sends echo requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// Once, so that the frames can be counted.
    Once,
    /// Repeatedly until a reply comes, because the other end may just be starting.
    Again,
}

/// A fresh identifier for echo requests, so that late replies to another sender of this process are
/// not mistaken.
pub(crate) fn fresh_number() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id() as u16;
    own.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

/// An echo request with the sender's identifier and a sequence number.
pub(crate) fn request(number: u16, sequence: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = ECHO;
    bytes[4..6].copy_from_slice(&number.to_be_bytes());
    bytes[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&bytes, 0);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The sequence number in a packet, if it is an echo reply of `peer` to the sender `number`.
pub(crate) fn reply_to(packet: &[u8], peer: Ipv4Addr, number: u16) -> Option<u16> {
    let header = Ipv4Header::decode(packet).ok()?;
    let message = &packet[header.header_bytes..header.total_bytes];
    let [kind, _, _, _, a, b, c, d, ..] = *message else {
        return None;
    };
    let is_reply = header.protocol == PROTOCOL_ICMP
        && header.source == peer.octets()
        && kind == ECHO_REPLY
        && u16::from_be_bytes([a, b]) == number;
    is_reply.then_some(u16::from_be_bytes([c, d]))
}

/// The round trip in the output of `ping` of busybox or iputils: `… time=1.034 ms`.
pub(crate) fn round_trip_in(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once("time=")?;
    let milliseconds: f64 = rest.split_whitespace().next()?.parse().ok()?;
    let is_possible = (0.0..=MILLISECONDS_MAX).contains(&milliseconds);
    is_possible.then(|| Duration::from_secs_f64(milliseconds / 1000.0))
}

/// Types of ICMP messages: echo request and echo reply (RFC 792).
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Time until the second request; it doubles with each further request up to [`PAUSE_MAX`].
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
const MILLISECONDS_MAX: f64 = 3_600_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_known_by_peer_and_number() {
        let peer = Ipv4Addr::new(10, 0, 0, 2);
        let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, PROTOCOL_ICMP, 0, 0];
        packet.extend(peer.octets());
        packet.extend([10, 0, 0, 1]);
        let sum = checksum(&packet, 0);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut message = request(7, 3);
        assert_eq!(checksum(&message, 0), 0);
        message[0] = ECHO_REPLY;
        packet.extend(message);
        assert_eq!(reply_to(&packet, peer, 7), Some(3));
        assert_eq!(reply_to(&packet, peer, 8), None);
        assert_eq!(reply_to(&packet, Ipv4Addr::LOCALHOST, 7), None);
        assert_eq!(reply_to(&packet[..27], peer, 7), None);
    }

    #[test]
    fn round_trip_is_read_from_what_ping_prints() {
        let text = "64 bytes from 10.0.0.2: seq=0 ttl=64 time=1.5 ms\n";
        assert_eq!(round_trip_in(text), Some(Duration::from_micros(1500)));
        for text in ["", "time=", "time=-1 ms", "time=NaN ms", "time=1e99 ms"] {
            assert_eq!(round_trip_in(text), None, "{text}");
        }
    }
}
