//! The frame that tells switches where a migrated guest is now. (RFC 903)

use carina_wire::ether::Mac;

/// A RARP request for the guest's own address, from the guest to all stations.
pub(super) fn announcement(mac: [u8; 6]) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    frame[..6].copy_from_slice(&Mac::BROADCAST.0);
    frame[6..12].copy_from_slice(&mac);
    frame[12..14].copy_from_slice(&ETHERTYPE_RARP.to_be_bytes());
    // Hardware type Ethernet, protocol IPv4, the lengths of their addresses, operation "request
    // reverse".
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 3]);
    frame[22..28].copy_from_slice(&mac);
    frame[32..38].copy_from_slice(&mac);
    frame
}

const ETHERTYPE_RARP: u16 = 0x8035;

/// Length of the shortest Ethernet frame, without FCS. (IEEE 802.3 §4A.4.2)
const FRAME_BYTES: usize = 60;
