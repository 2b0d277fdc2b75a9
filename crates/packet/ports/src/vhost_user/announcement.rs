//! The frame by which switches learn where a guest is that was migrated. (RFC 903)

use carina_wire::ether::Mac;

/// A request of RARP for the guest's own address, from it to all stations.
pub(super) fn announcement(mac: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&Mac::BROADCAST.0);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_RARP.to_be_bytes());
    // Ethernet, IPv4, lengths of their addresses, "request reverse".
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

const ETHERTYPE_RARP: u16 = 0x8035;

/// The least that Ethernet carries, without the FCS. (IEEE 802.3 §4A.4.2)
const FRAME_BYTES: usize = 60;
