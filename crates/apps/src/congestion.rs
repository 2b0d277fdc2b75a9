//! The traffic class of packets in tunnels: what of it the outer header gets, and what of that
//! comes back. (RFC 4301 §5.1.2, RFC 6040)

use carina_wire::inet::checksum;

/// Congestion experienced, and the bits of which it is the highest value. (RFC 3168 §5)
const CE: u8 = 3;

/// The traffic class of a packet of IPv4 or IPv6; 0 for anything else.
pub(crate) fn class_of(packet: &[u8]) -> u8 {
    match packet {
        [first, second, ..] if first >> 4 == 4 => *second,
        [first, second, ..] if first >> 4 == 6 => first << 4 | second >> 4,
        _ => 0,
    }
}

/// Gives a packet another traffic class. Its header must be whole; the checksum follows.
pub(crate) fn set_class(packet: &mut [u8], class: u8) {
    match packet[0] >> 4 {
        4 => {
            packet[1] = class;
            let header = usize::from(packet[0] & 0x0f) * 4;
            packet[10..12].fill(0);
            let sum = checksum(&packet[..header], 0);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        _ => {
            packet[0] = packet[0] & 0xf0 | class >> 4;
            packet[1] = packet[1] & 0x0f | class << 4;
        }
    }
}

/// Marks a packet that came in a marked one. False when its ends do not know the mark: it has to be
/// dropped. (RFC 6040 §4.2)
#[must_use]
pub(crate) fn carry_mark(outer_class: u8, packet: &mut [u8]) -> bool {
    let class = class_of(packet);
    match (outer_class & CE, class & CE) {
        (CE, 0) => false,
        (CE, ecn) if ecn != CE => {
            set_class(packet, class | CE);
            true
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_reach_packets_of_both_versions() {
        let mut four = [
            0x45, 0xb9, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8,
        ];
        let sum = checksum(&four, 0);
        four[10..12].copy_from_slice(&sum.to_be_bytes());
        let mut six = [0; 40];
        (six[0], six[1], six[2]) = (0x6b, 0x9a, 0xbc);
        assert_eq!((class_of(&four), class_of(&six)), (0xb9, 0xb9));
        assert!(carry_mark(0xb8, &mut four) && carry_mark(0, &mut six));
        assert_eq!((class_of(&four), class_of(&six)), (0xb9, 0xb9));
        assert!(carry_mark(CE, &mut four) && carry_mark(CE, &mut six));
        assert_eq!((class_of(&four), class_of(&six)), (0xbb, 0xbb));
        assert_eq!(checksum(&four, 0), 0);
        assert_eq!(six[..3], [0x6b, 0xba, 0xbc], "the flow label stays");
        set_class(&mut six, 0xb8);
        assert!(!carry_mark(CE, &mut six) && carry_mark(2, &mut six));
        assert_eq!((class_of(&six), class_of(&[])), (0xb8, 0));
    }
}
