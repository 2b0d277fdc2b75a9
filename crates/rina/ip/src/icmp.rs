//! ICMP errors for the kernel: no member has the destination of its packet, or the flow there does
//! not carry a packet of that length. (RFC 792, RFC 1191 §4, RFC 4443 §3.1 and §3.2)

use std::net::IpAddr;
use std::time::{Duration, Instant};

use carina_wire::inet::{PROTOCOL_ICMP, PROTOCOL_ICMP6, checksum, pseudo_sum6};
use carina_wire::ipv6::Upper;

use crate::packet::Packet;

/// Makes the error "host unreachable" (IPv4) or "address unreachable" (IPv6) about a packet that
/// the kernel sent. The error comes from the packet's destination: the kernel discards packets that
/// arrive from an address of its own. `None` if no error may be sent about the packet: it is an
/// error itself, or not the first fragment. (RFC 1122 §3.2.2, RFC 4443 §2.4)
#[must_use]
pub(crate) fn unreachable(packet: &Packet, bytes: &[u8]) -> Option<Vec<u8>> {
    error(packet, bytes, [HOST_UNREACHABLE4, ADDRESS_UNREACHABLE6], 0)
}

/// Makes the error "fragmentation needed" (IPv4) or "packet too big" (IPv6) about a packet that the
/// kernel sent to a place which carries packets of at most `mtu` bytes. `None` as for
/// [`unreachable`].
#[must_use]
pub(crate) fn too_big(packet: &Packet, bytes: &[u8], mtu: usize) -> Option<Vec<u8>> {
    let mtu = mtu.min(u16::MAX.into()) as u32;
    error(packet, bytes, [FRAGMENTATION_NEEDED4, TOO_BIG6], mtu)
}

/// Makes an error with the type and code of IPv4 or of IPv6. `rest` is the second word of the
/// error's header.
fn error(packet: &Packet, bytes: &[u8], kinds: [(u8, u8); 2], rest: u32) -> Option<Vec<u8>> {
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ends = (destination.octets(), source.octets());
            may_be_answered4(bytes).then(|| error4(ends, kinds[0], rest, bytes))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let ends = (destination.octets(), source.octets());
            may_be_answered6(bytes).then(|| error6(ends, kinds[1], rest, bytes))
        }
        _ => None,
    }
}

fn error4(
    (source, destination): ([u8; 4], [u8; 4]),
    kind: (u8, u8),
    rest: u32,
    about: &[u8],
) -> Vec<u8> {
    let quoted = &about[..about.len().min(LONGEST4 - V4_BYTES - ICMP_BYTES)];
    let mut error = vec![0; V4_BYTES + ICMP_BYTES];
    let total = (error.len() + quoted.len()) as u16;
    error[0] = 0x45;
    error[2..4].copy_from_slice(&total.to_be_bytes());
    (error[8], error[9]) = (HOP_LIMIT, PROTOCOL_ICMP);
    error[12..16].copy_from_slice(&source);
    error[16..20].copy_from_slice(&destination);
    let sum = checksum(&error[..V4_BYTES], 0);
    error[10..12].copy_from_slice(&sum.to_be_bytes());
    (error[20], error[21]) = kind;
    error[24..28].copy_from_slice(&rest.to_be_bytes());
    error.extend(quoted);
    let sum = checksum(&error[V4_BYTES..], 0);
    error[22..24].copy_from_slice(&sum.to_be_bytes());
    error
}

fn error6(
    (source, destination): ([u8; 16], [u8; 16]),
    kind: (u8, u8),
    rest: u32,
    about: &[u8],
) -> Vec<u8> {
    let quoted = &about[..about.len().min(LONGEST6 - V6_BYTES - ICMP_BYTES)];
    let mut error = vec![0; V6_BYTES + ICMP_BYTES];
    let length = ICMP_BYTES + quoted.len();
    error[0] = 0x60;
    error[4..6].copy_from_slice(&(length as u16).to_be_bytes());
    (error[6], error[7]) = (PROTOCOL_ICMP6, HOP_LIMIT);
    error[8..24].copy_from_slice(&source);
    error[24..40].copy_from_slice(&destination);
    (error[40], error[41]) = kind;
    error[44..48].copy_from_slice(&rest.to_be_bytes());
    error.extend(quoted);
    let mut addresses = [0; 32];
    addresses.copy_from_slice(&error[8..40]);
    let start = pseudo_sum6(&addresses, length, PROTOCOL_ICMP6);
    let sum = checksum(&error[V6_BYTES..], start);
    error[42..44].copy_from_slice(&sum.to_be_bytes());
    error
}

/// Whether an error about a packet may be sent: it is a first fragment, and no error or redirect.
fn may_be_answered4(packet: &[u8]) -> bool {
    let Some(header) = packet.first_chunk::<V4_BYTES>() else {
        return false;
    };
    let is_later_fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0;
    let kind = packet.get(usize::from(header[0] & 0xf) * 4);
    let is_query = kind.is_some_and(|kind| QUERIES4.contains(kind));
    !is_later_fragment && (header[9] != PROTOCOL_ICMP || is_query)
}

fn may_be_answered6(packet: &[u8]) -> bool {
    Upper::seen(packet).is_some_and(|upper| {
        let kind = packet[upper.start..upper.end].first();
        let is_query = kind.is_some_and(|kind| *kind >= 128 && *kind != REDIRECT6);
        upper.protocol != PROTOCOL_ICMP6 || is_query
    })
}

/// Limits the errors that are sent in a second.
#[derive(Debug)]
pub(crate) struct ErrorLimit {
    began: Option<Instant>,
    sent: u32,
    sent_max: u32,
}

impl ErrorLimit {
    /// Makes the limit of one of `workers` threads, which share the errors of an interface.
    pub(crate) fn of_worker(workers: usize) -> ErrorLimit {
        ErrorLimit {
            began: None,
            sent: 0,
            sent_max: ERRORS_MAX / workers as u32,
        }
    }

    /// Whether one more error may be sent now; if so, counts it.
    pub(crate) fn allows(&mut self, now: Instant) -> bool {
        let is_over = |began: Instant| now.saturating_duration_since(began) >= SECOND;
        if self.began.is_none_or(is_over) {
            (self.began, self.sent) = (Some(now), 0);
        }
        let is_allowed = self.sent < self.sent_max;
        self.sent += u32::from(is_allowed);
        is_allowed
    }
}

/// Largest number of errors of an interface in a second.
const ERRORS_MAX: u32 = 100;
const SECOND: Duration = Duration::from_secs(1);

/// ICMP type and code of "host unreachable" (RFC 792).
const HOST_UNREACHABLE4: (u8, u8) = (3, 1);
/// ICMPv6 type and code of "address unreachable" (RFC 4443).
const ADDRESS_UNREACHABLE6: (u8, u8) = (1, 3);
/// ICMP type and code of "fragmentation needed" (RFC 792).
const FRAGMENTATION_NEEDED4: (u8, u8) = (3, 4);
/// ICMPv6 type and code of "packet too big" (RFC 4443).
const TOO_BIG6: (u8, u8) = (2, 0);
/// ICMPv4 types of messages that are no errors: echo and timestamp, requests and replies.
const QUERIES4: [u8; 4] = [0, 8, 13, 14];
const REDIRECT6: u8 = 137;

const V4_BYTES: usize = 20;
const V6_BYTES: usize = 40;
const ICMP_BYTES: usize = 8;
/// Length of the longest ICMPv4 error, in bytes. (RFC 1812 §4.3.2.3)
const LONGEST4: usize = 576;
/// Length of the longest ICMPv6 error, in bytes. (RFC 4443 §2.4c)
const LONGEST6: usize = 1280;
const HOP_LIMIT: u8 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn packet4(protocol: u8, first: u8) -> Vec<u8> {
        let mut packet = vec![0; 1000];
        packet[..10].copy_from_slice(&[0x45, 0, 3, 232, 0, 0, 0, 0, 64, protocol]);
        packet[12..20].copy_from_slice(&[10, 9, 1, 1, 10, 9, 1, 2]);
        packet[20] = first;
        packet
    }

    fn packet6(protocol: u8, first: u8) -> Vec<u8> {
        let mut packet = vec![0; 1400];
        packet[..8].copy_from_slice(&[0x60, 0, 0, 0, 5, 80, protocol, 64]);
        (packet[8], packet[23], packet[24], packet[39]) = (0xfd, 1, 0xfd, 2);
        packet[40] = first;
        packet
    }

    fn error_about(bytes: &[u8]) -> Option<Vec<u8>> {
        unreachable(&Packet::read(bytes).unwrap(), bytes)
    }

    #[test]
    fn error_quotes_the_packet_and_its_sums_are_right() {
        let packet = packet4(17, 0);
        let error = error_about(&packet).unwrap();
        let read = Packet::read(&error).unwrap();
        assert_eq!(read.source.to_string(), "10.9.1.2");
        assert_eq!(read.destination.to_string(), "10.9.1.1");
        assert_eq!(error.len(), 576);
        assert_eq!((error[20], error[21]), (3, 1));
        assert_eq!(error[28..], packet[..548]);
        assert_eq!(checksum(&error[..20], 0), 0);
        assert_eq!(checksum(&error[20..], 0), 0);
        let packet = packet6(17, 0);
        let error = error_about(&packet).unwrap();
        assert_eq!(Packet::read(&error).unwrap().source.to_string(), "fd00::2");
        assert_eq!((error.len(), error[40], error[41]), (1280, 1, 3));
        let addresses = error[8..40].try_into().unwrap();
        let start = pseudo_sum6(addresses, error.len() - 40, PROTOCOL_ICMP6);
        assert_eq!(checksum(&error[40..], start), 0);
    }

    #[test]
    fn error_about_a_long_packet_has_the_length_that_would_pass() {
        let packet = packet4(6, 0);
        let error = too_big(&Packet::read(&packet).unwrap(), &packet, 800).unwrap();
        assert_eq!(error[20..22], [3, 4]);
        assert_eq!(error[24..28], 800_u32.to_be_bytes());
        assert_eq!(checksum(&error[20..], 0), 0);
        let packet = packet6(17, 0);
        let error = too_big(&Packet::read(&packet).unwrap(), &packet, 1300).unwrap();
        assert_eq!(error[40..42], [2, 0]);
        assert_eq!(error[44..48], 1300_u32.to_be_bytes());
    }

    #[test]
    fn no_error_is_sent_about_errors_and_later_fragments() {
        for (protocol, first, is_answered) in [(1, 8, true), (1, 3, false), (1, 11, false)] {
            let error = error_about(&packet4(protocol, first));
            assert_eq!(error.is_some(), is_answered, "{first}");
        }
        for (first, is_answered) in [(128, true), (1, false), (137, false)] {
            let error = error_about(&packet6(58, first));
            assert_eq!(error.is_some(), is_answered, "{first}");
        }
        let mut fragment = packet4(17, 0);
        fragment[7] = 1;
        assert_eq!(error_about(&fragment), None);
    }

    #[test]
    fn errors_of_a_second_are_limited() {
        let now = Instant::now();
        let mut limit = ErrorLimit::of_worker(1);
        let allowed = (0..1000).filter(|_| limit.allows(now)).count();
        assert_eq!(allowed, ERRORS_MAX as usize);
        assert!(limit.allows(now + SECOND));
    }
}
