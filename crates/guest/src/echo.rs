//! Whether a neighbour answers: an echo of ICMP (RFC 792).

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use crate::system::icmp_socket;

/// Asks `peer` from `own` for echos until one comes; its round trip. `None` when none comes within
/// `limit`, or `own` is no address of this guest.
pub fn round_trip(own: Ipv4Addr, peer: Ipv4Addr, limit: Duration) -> Option<Duration> {
    let socket = icmp_socket(own).ok()?;
    let deadline = Instant::now() + limit;
    let number = std::process::id() as u16;
    for sequence in 0_u16.. {
        let sent = Instant::now();
        // The route may be missing for a moment; the deadline is what counts.
        let _ = socket.send_to(&request(number, sequence), SocketAddrV4::new(peer, 0));
        let again = deadline.min(sent + ASK_AGAIN);
        loop {
            let left = again.saturating_duration_since(Instant::now());
            if left < LEAST || socket.set_read_timeout(Some(left)).is_err() {
                break;
            }
            let mut packet = [0; 512];
            let Ok(length) = socket.recv(&mut packet) else {
                continue;
            };
            if is_reply(&packet[..length], peer, number, sequence) {
                return Some(sent.elapsed());
            }
        }
        if deadline.saturating_duration_since(Instant::now()) < LEAST {
            break;
        }
    }
    None
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

/// The sum of RFC 1071 of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2);
    let sum: u32 = words
        .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// Whether a packet is the answer of `peer` to a request. The kernel has checked its sums.
fn is_reply(packet: &[u8], peer: Ipv4Addr, number: u16, sequence: u16) -> bool {
    let header = packet
        .first()
        .map_or(0, |first| usize::from(first & 15) * 4);
    let (Some(source), Some(message)) = (packet.get(12..16), packet.get(header..)) else {
        return false;
    };
    let [kind, _, _, _, a, b, c, d, ..] = *message else {
        return false;
    };
    header >= 20
        && source == peer.octets()
        && kind == ECHO_REPLY
        && u16::from_be_bytes([a, b]) == number
        && u16::from_be_bytes([c, d]) == sequence
}

/// As long as one request takes.
pub const ONCE: Duration = Duration::from_millis(200);
const ECHO: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// The kernel takes a timeout of nothing as none at all.
const LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_is_known_by_peer_number_and_sequence() {
        let peer = Ipv4Addr::new(10, 0, 0, 2);
        let mut packet = vec![0x45, 0, 0, 36, 0, 0, 0, 0, 64, 1, 0, 0];
        packet.extend(peer.octets());
        packet.extend([10, 0, 0, 1]);
        let mut message = request(7, 3);
        assert_eq!(checksum(&message), 0);
        message[0] = ECHO_REPLY;
        packet.extend(message);
        assert!(is_reply(&packet, peer, 7, 3));
        assert!(!is_reply(&packet, peer, 7, 4));
        assert!(!is_reply(&packet, peer, 8, 3));
        assert!(!is_reply(&packet, Ipv4Addr::LOCALHOST, 7, 3));
        for length in 0..28 {
            assert!(!is_reply(&packet[..length], peer, 7, 3), "{length}");
        }
    }
}
