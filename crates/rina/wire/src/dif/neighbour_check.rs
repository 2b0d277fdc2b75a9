//! The checksum of management PDUs between neighbours in a native DIF.
//!
//! SDU protection starts only after the exchange that makes two IPCPs neighbours, so PDUs of that
//! exchange need a checksum of their own. It detects accidental damage, not attacks: the exchange
//! itself authenticates, and the receiver ignores a PDU that fails the check.
//!
//! ```text
//!  | PCI, hop limit 0 | one CDAP message | CRC-32: u32 |
//!  |<------ under the CRC-32 ---------->|
//!  |<------------- length field ------------------->|
//! ```
//!
//! The checksum is the CRC-32 of IEEE 802.3, in network byte order. Every such PDU has it, because
//! a flag that announces it could be damaged as well. `docs/explanation/pci.md`, section 8, has an
//! example.

use alloc::vec::Vec;

/// Bytes that the checksum adds to a PDU. The length field of the PCI includes them.
pub const NEIGHBOUR_CHECK_BYTES: usize = 4;

/// Appends the checksum to a PDU whose length field already includes it.
pub fn append_neighbour_check(pdu: &mut Vec<u8>) {
    let sum = crc32fast::hash(pdu);
    pdu.extend_from_slice(&sum.to_be_bytes());
}

/// Removes the checksum and returns the PDU; `None` if the checksum is missing or wrong. `pdu` must
/// end where its length field says, without padding of the medium.
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
