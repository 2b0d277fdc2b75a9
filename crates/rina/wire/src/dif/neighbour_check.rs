//! The check of management PDUs between neighbours in a native DIF.
//!
//! SDU protection begins when the exchange that makes two IPCPs neighbours is over, so that damage
//! to a PDU of the exchange needs a check of its own. It finds accidents, not attackers: the
//! exchange authenticates, and a PDU that fails the check changes nothing at the receiver.
//!
//! ```text
//!  | PCI, hop limit 0 | one CDAP message | CRC-32: u32 |
//!  |<------ under the CRC-32 ---------->|
//!  |<------------- length field ------------------->|
//! ```
//!
//! CRC-32 of IEEE 802.3, in network byte order. It is there in every such PDU: a flag that
//! announced it could be damaged as well. `docs/explanation/pci.md`, section 8, has an example.

use alloc::vec::Vec;

/// Bytes that the check adds to a PDU. The length field of the PCI counts them.
pub const NEIGHBOUR_CHECK_BYTES: usize = 4;

/// Appends the check of a PDU whose PCI already counts it.
pub fn append_neighbour_check(pdu: &mut Vec<u8>) {
    let sum = crc32fast::hash(pdu);
    pdu.extend_from_slice(&sum.to_be_bytes());
}

/// The PDU without its check; `None` when it has no right one. `pdu` ends where its length field
/// says, without padding of the medium.
#[must_use]
pub fn without_neighbour_check(pdu: &[u8]) -> Option<&[u8]> {
    let (rest, sum) = pdu.split_last_chunk::<NEIGHBOUR_CHECK_BYTES>()?;
    (crc32fast::hash(rest) == u32::from_be_bytes(*sum)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_is_the_crc_32_of_ethernet() {
        let mut pdu = b"123456789".to_vec();
        append_neighbour_check(&mut pdu);
        assert_eq!(pdu[9..], [0xcb, 0xf4, 0x39, 0x26]);
        assert_eq!(without_neighbour_check(&pdu), Some(&b"123456789"[..]));
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let mut pdu = (0..=120).collect::<Vec<u8>>();
        append_neighbour_check(&mut pdu);
        for at in 0..pdu.len() {
            assert_eq!(without_neighbour_check(&pdu[..at]), None, "cut at {at}");
            for bit in 0..8 {
                let mut damaged = pdu.clone();
                damaged[at] ^= 1 << bit;
                assert_eq!(without_neighbour_check(&damaged), None, "byte {at}");
            }
        }
    }
}
