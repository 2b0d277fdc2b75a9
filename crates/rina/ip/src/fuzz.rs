//! Fuzz target: SDUs of hostile members.

use carina_netdev::VNET_HEADER_BYTES;

use crate::packet::{Packet, clamp_mss};
use crate::sdu;

/// Fuzz target: reads an SDU, writes its header again, and clamps its maximum segment size.
pub fn ip_sdu(data: &[u8]) {
    reads_ip_sdu(data);
}

/// Whether the bytes are an SDU with a packet that a member gives to its kernel.
///
/// # Panics
/// What was read is not what is written again, or a packet changes its length or addresses.
pub fn reads_ip_sdu(data: &[u8]) -> bool {
    let Some(sdu) = sdu::read(data) else {
        return false;
    };
    let Some(packet) = Packet::read(sdu.packet) else {
        return false;
    };
    match sdu::header_bytes(&sdu.header) {
        None => assert!(sdu.packet.len() == data.len() || data[0] & 1 == 0),
        Some(header) => {
            let again = [&header[..], sdu.packet].concat();
            let again = sdu::read(&again).expect("what was read is written in the same form");
            assert_eq!((again.packet, again.header), (sdu.packet, sdu.header));
            assert_eq!(data.len(), VNET_HEADER_BYTES + sdu.packet.len());
        }
    }
    let lacks_checksum = sdu.header.checksum.is_some();
    let mut clamped = sdu.packet.to_vec();
    if clamp_mss(&mut clamped, 1280, lacks_checksum) {
        assert!(
            !clamp_mss(&mut clamped, 1280, lacks_checksum),
            "once is enough"
        );
    }
    assert_eq!(Packet::read(&clamped), Some(packet));
    true
}
