//! Checks whether a neighbour answers, by ICMP echo (RFC 792).

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use crate::system::icmp_socket;

/// How many echo requests to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// One request.
    Once,
    /// Requests until the neighbour answers, because it may still be starting.
    Again,
}

/// Sends echo requests from `own` to `peer` and returns the round-trip time. `None` if no answer
/// arrives within `limit`, or `own` is not an address of this guest.
pub(crate) fn round_trip(
    own: Ipv4Addr,
    peer: Ipv4Addr,
    limit: Duration,
    asks: Asks,
) -> Option<Duration> {
    let socket = icmp_socket(own).ok()?;
    let deadline = Instant::now() + limit;
    let number = fresh_number();
    let mut pause = match asks {
        Asks::Once => limit,
        Asks::Again => PAUSE,
    };
    // An answer may take longer than the pause between requests. While the kernel resolves the
    // neighbour's MAC address, requests queue and are then sent together. So the shortest time
    // counts.
    let (mut sent, mut least) = (Vec::new(), None::<Duration>);
    while deadline.saturating_duration_since(Instant::now()) >= LEAST {
        let sequence = u16::try_from(sent.len()).ok()?;
        sent.push(Instant::now());
        // An error is ignored: the route may be missing for a moment, and the deadline applies
        // anyway.
        let _ = socket.send_to(&request(number, sequence), SocketAddrV4::new(peer, 0));
        let again = deadline.min(Instant::now() + pause);
        pause = PAUSE_MAX.min(2 * pause);
        loop {
            let left = again.saturating_duration_since(Instant::now());
            if left < LEAST || socket.set_read_timeout(Some(left)).is_err() {
                break;
            }
            let mut packet = [0; 512];
            let Ok(length) = socket.recv(&mut packet) else {
                continue;
            };
            let answered = answered(&packet[..length], peer, number);
            let Some((which, at)) =
                answered.and_then(|answered| Some((answered, sent.get(usize::from(answered))?)))
            else {
                continue;
            };
            let elapsed = at.elapsed();
            least = Some(least.map_or(elapsed, |least| elapsed.min(least)));
            if which == sequence {
                break;
            }
        }
        if let Some(least) = least {
            return Some(least);
        }
    }
    None
}

/// A number for the requests of one call, so that it does not take late answers to other calls for
/// its own.
fn fresh_number() -> u16 {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let own = std::process::id() as u16;
    own.wrapping_add(COUNT.fetch_add(1, Ordering::Relaxed))
}

fn request(number: u16, sequence: u16) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[0] = ECHO;
    bytes[4..6].copy_from_slice(&number.to_be_bytes());
    bytes[6..8].copy_from_slice(&sequence.to_be_bytes());
    let sum = checksum(&bytes);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// The checksum of RFC 1071, over an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// The sequence number of the request that a packet answers; `None` if the packet is not an answer
/// of `peer` to the requests with `number`. The kernel has already checked the checksums.
fn answered(packet: &[u8], peer: Ipv4Addr, number: u16) -> Option<u16> {
    let header = usize::from(packet.first()? & 15) * 4;
    let (source, message) = (packet.get(12..16)?, packet.get(header..)?);
    let [kind, _, _, _, a, b, c, d, ..] = *message else {
        return None;
    };
    let is_answer = header >= 20
        && source == peer.octets()
        && kind == ECHO_REPLY
        && u16::from_be_bytes([a, b]) == number;
    is_answer.then_some(u16::from_be_bytes([c, d]))
}

/// Time limit for a single request.
pub(crate) const ONCE: Duration = Duration::from_millis(200);
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
/// Pause before the second request; it doubles from request to request.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// Shortest timeout. The kernel takes a timeout of 0 for no timeout.
const LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_known_by_peer_and_number() {
        let peer = Ipv4Addr::new(10, 0, 0, 2);
        let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 1, 0, 0];
        packet.extend(peer.octets());
        packet.extend([10, 0, 0, 1]);
        let mut message = request(7, 3);
        assert_eq!(checksum(&message), 0);
        message[0] = ECHO_REPLY;
        packet.extend(message);
        assert_eq!(answered(&packet, peer, 7), Some(3));
        assert_eq!(answered(&packet, peer, 8), None);
        assert_eq!(answered(&packet, Ipv4Addr::LOCALHOST, 7), None);
        for length in 0..28 {
            assert_eq!(answered(&packet[..length], peer, 7), None, "{length}");
        }
    }
}
