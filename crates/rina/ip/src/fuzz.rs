//! Fuzz target: SDUs of hostile members.

use carina_netdev::{MAC_HEADER_BYTES, VNET_HEADER_BYTES, VnetHeader};

use crate::cut::cut;
use crate::join::Joint;
use crate::packet::{Packet, clamp_mss};
use crate::sdu::{self, Sdu};

/// Fuzz target: reads an SDU, writes its header again, clamps its maximum segment size, and cuts a
/// packet of several segments.
pub fn ip_sdu(data: &[u8]) {
    reads_ip_sdu(data);
}

/// Whether the bytes are an SDU with a packet that a member gives to its kernel.
///
/// # Panics
/// What was read is not what is written again, a packet changes its length or addresses, or what
/// was cut and joined is cut into something else.
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
    if sdu.header.segments.is_some() {
        check_pieces(&sdu, packet);
    }
    true
}

/// Cuts a packet, joins the pieces as far as they can be, and cuts the results again.
fn check_pieces(sdu: &Sdu<'_>, packet: Packet) {
    let Some(pieces) = pieces(&sdu.header, sdu.packet) else {
        return;
    };
    let mut runs: Vec<(Vec<u8>, usize, Option<Joint>)> = Vec::new();
    for piece in &pieces {
        assert_eq!(Packet::read(piece), Some(packet), "a piece is a packet");
        if let Some((run, length, Some(joint))) = runs.last_mut()
            && let Some(longer) = joint.join(run, *length, piece)
        {
            *length = longer;
            continue;
        }
        let mut run = piece.clone();
        run.resize(run.len().max(sdu.packet.len()), 0);
        runs.push((run, piece.len(), Joint::begin(piece, true)));
    }
    let mut again = Vec::new();
    for (run, length, joint) in &mut runs {
        let run = &mut run[..*length];
        match joint.and_then(|joint| joint.finish(run)) {
            None => again.push(run.to_vec()),
            Some(header) => {
                let joined = [&header_of(&header)[..], run].concat();
                assert!(sdu::read(&joined).is_some(), "another member takes it");
                again.extend(self::pieces(&header, run).expect("what was cut can be cut"));
            }
        }
    }
    assert!(again == pieces, "the pieces are the same");
}

fn header_of(header: &VnetHeader) -> [u8; VNET_HEADER_BYTES] {
    sdu::header_bytes(header).expect("a joined packet has segments")
}

fn pieces(header: &VnetHeader, packet: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut slot = [&[0; MAC_HEADER_BYTES][..], packet].concat();
    let mut pieces = Vec::new();
    let cut = cut(header, &mut slot, |piece| pieces.push(piece.to_vec()));
    cut.is_ok().then_some(pieces)
}
