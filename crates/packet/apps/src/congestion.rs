//! Traffic class and ECN of tunnelled packets: how they are copied into the outer header, and how a
//! congestion mark is copied back. (RFC 2003 §3.1, RFC 4301 §5.1.2, RFC 6040 §4, RFC 9601)
//!
//! The outer header gets the traffic class of the inner packet, also if this packet is inside an
//! Ethernet frame. At the end of the tunnel the inner packet keeps its class, except for its ECN
//! field, which becomes:
//!
//! | inner ECN | outer Not-ECT | outer ECT(0) | outer ECT(1) | outer CE |
//! |---|---|---|---|---|
//! | Not-ECT | Not-ECT | Not-ECT | Not-ECT | dropped |
//! | ECT(0) | ECT(0) | ECT(0) | ECT(1) | CE |
//! | ECT(1) | ECT(1) | ECT(1) | ECT(1) | CE |
//! | CE | CE | CE | CE | CE |

use carina_wire::ether::{TPID_CUSTOMER, TPID_PROVIDER};
use carina_wire::inet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, checksum_after};

/// The two bits of the traffic class that are the ECN field. (RFC 3168 §5)
pub const ECN: u8 = 3;
/// ECN value "congestion experienced".
pub const CE: u8 = 3;
/// ECN value "not ECN-capable".
pub const NOT_ECT: u8 = 0;
/// ECN values "ECN-capable", ECT(1) and ECT(0).
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;

/// The traffic class of an IPv4 or IPv6 packet; 0 for anything else.
#[must_use]
#[inline]
pub fn class_of(packet: &[u8]) -> u8 {
    match version_of(packet) {
        Some(4) => packet[1],
        Some(_) => packet[0] << 4 | packet[1] >> 4,
        None => 0,
    }
}

/// Sets the traffic class of a packet, and updates the IPv4 checksum. Leaves anything but IP
/// unchanged.
pub fn set_class(packet: &mut [u8], class: u8) {
    match version_of(packet) {
        Some(4) => {
            let word = |class: u8| u16::from_be_bytes([packet[0], class]);
            let sum = u16::from_be_bytes([packet[10], packet[11]]);
            let sum = checksum_after(sum, word(packet[1]), word(class));
            packet[1] = class;
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(_) => {
            packet[0] = packet[0] & 0xf0 | class >> 4;
            packet[1] = packet[1] & 0x0f | class << 4;
        }
        None => {}
    }
}

/// Sets the ECN field of a decapsulated packet as the table above says, given the class of the
/// outer header. Returns `false` if the packet must be dropped: it has met congestion but is not
/// ECN-capable. Leaves anything but IP unchanged.
#[must_use]
#[inline]
pub fn carry_mark(outer_class: u8, packet: &mut [u8]) -> bool {
    let outer = outer_class & ECN;
    if outer == NOT_ECT || outer == ECT_0 || version_of(packet).is_none() {
        return true;
    }
    let class = class_of(packet);
    let ecn = match (class & ECN, outer) {
        (NOT_ECT, CE) => return false,
        (_, CE) => CE,
        (ECT_0, _) => ECT_1,
        _ => return true,
    };
    if ecn != class & ECN {
        set_class(packet, class & !ECN | ecn);
    }
    true
}

/// Marks an ECN-capable packet with "congestion experienced". Returns false, and changes nothing,
/// if the packet is not ECN-capable or not IP. (RFC 3168 §5)
#[must_use]
pub fn mark_congestion(packet: &mut [u8]) -> bool {
    let class = class_of(packet);
    if class & ECN == NOT_ECT {
        return false;
    }
    set_class(packet, class | CE);
    true
}

/// Offset of the IP packet in an Ethernet frame, behind up to two VLAN tags; the length of the
/// frame if it carries anything else.
#[must_use]
#[inline]
pub fn packet_in(frame: &[u8]) -> usize {
    let mut at = 12;
    for _ in 0..=TAGS_MAX {
        let Some(&[high, low]) = frame.get(at..at + 2) else {
            break;
        };
        match u16::from_be_bytes([high, low]) {
            ETHERTYPE_IPV4 | ETHERTYPE_IPV6 => return at + 2,
            TPID_CUSTOMER | TPID_PROVIDER => at += 4,
            _ => break,
        }
    }
    frame.len()
}

const TAGS_MAX: usize = 2;

/// The IP version of a packet, if its header is complete.
#[inline]
fn version_of(packet: &[u8]) -> Option<u8> {
    match (packet.first()? >> 4, packet.len()) {
        (4, 20..) => Some(4),
        (6, 40..) => Some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use carina_wire::inet::checksum;

    use super::*;

    fn four(class: u8) -> [u8; 20] {
        let mut four = [
            0x45, class, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let sum = checksum(&four, 0);
        four[10..12].copy_from_slice(&sum.to_be_bytes());
        four
    }

    fn six(class: u8) -> [u8; 40] {
        let mut six = [0; 40];
        (six[0], six[1], six[2]) = (0x60 | class >> 4, class << 4 | 0x0a, 0xbc);
        six
    }

    /// Figure 4 of RFC 6040, with a row per inner ECN value; `None` means dropped.
    const TABLE: [(u8, [Option<u8>; 4]); 4] = [
        (NOT_ECT, [Some(0), Some(0), Some(0), None]),
        (ECT_0, [Some(2), Some(2), Some(1), Some(3)]),
        (ECT_1, [Some(1), Some(1), Some(1), Some(3)]),
        (CE, [Some(3), Some(3), Some(3), Some(3)]),
    ];

    #[test]
    fn marks_come_back_as_the_table_has_it() {
        for (inner, row) in TABLE {
            for (outer, expected) in [NOT_ECT, ECT_0, ECT_1, CE].into_iter().zip(row) {
                let (mut four, mut six) = (four(0xb8 | inner), six(0xb8 | inner));
                // Other bits of the outer class are not copied back.
                let is_kept = carry_mark(outer | 0x40, &mut four);
                assert_eq!(carry_mark(outer | 0x40, &mut six), is_kept);
                let found = is_kept.then_some(class_of(&four));
                let expected = expected.map(|mark| 0xb8 | mark);
                assert_eq!(found, expected, "{inner} within {outer}");
                assert_eq!(is_kept.then_some(class_of(&six)), expected);
                assert_eq!(checksum(&four, 0), 0);
                assert_eq!(
                    (six[1] & 0x0f, six[2]),
                    (0x0a, 0xbc),
                    "the flow label stays"
                );
            }
        }
    }

    #[test]
    fn ecn_capable_packets_are_marked_and_others_are_not() {
        for ecn in [NOT_ECT, ECT_1, ECT_0, CE] {
            let (mut four, mut six) = (four(0xb8 | ecn), six(0xb8 | ecn));
            let expected = if ecn == NOT_ECT { ecn } else { CE };
            assert_eq!(mark_congestion(&mut four), ecn != NOT_ECT);
            assert_eq!(mark_congestion(&mut six), ecn != NOT_ECT);
            let classes = (class_of(&four), class_of(&six));
            assert_eq!(classes, (0xb8 | expected, 0xb8 | expected));
            assert_eq!(checksum(&four, 0), 0);
        }
        assert!(!mark_congestion(&mut [0xff; 60]));
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut packet = four(ECT_0);
        packet[10] ^= 1;
        assert!(carry_mark(CE, &mut packet));
        assert_ne!(checksum(&packet, 0), 0);
    }

    #[test]
    fn what_is_no_packet_keeps_its_bytes() {
        for bytes in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0; 40]] {
            let mut changed = bytes.to_vec();
            assert!(carry_mark(CE, &mut changed));
            set_class(&mut changed, 0xff);
            assert_eq!((&changed[..], class_of(bytes)), (bytes, 0));
        }
    }

    #[test]
    fn packets_are_found_behind_tags() {
        let ether = |types: &[u16]| {
            let mut frame = vec![0; 12];
            for (number, kind) in types.iter().enumerate() {
                frame.extend(kind.to_be_bytes());
                if number + 1 < types.len() {
                    frame.extend([0, 7]);
                }
            }
            frame.extend(four(0));
            frame
        };
        assert_eq!(packet_in(&ether(&[0x0800])), 14);
        assert_eq!(packet_in(&ether(&[0x88a8, 0x8100, 0x86dd])), 22);
        for types in [&[0x0806][..], &[0x8100, 0x8100, 0x8100, 0x0800]] {
            let frame = ether(types);
            assert_eq!(packet_in(&frame), frame.len(), "{types:?}");
        }
        assert_eq!((packet_in(&[0; 13]), packet_in(&[])), (13, 0));
    }
}
