//! Packets that were cut, and joined again.

use carina_netdev::MAC_HEADER_BYTES;

use super::*;
use crate::cut::cut;
use crate::packet::Packet;

/// A packet of several segments without checksum, and its header.
fn whole(is_v4: bool, is_tcp: bool, payload: usize, size: u16) -> (Vec<u8>, VnetHeader) {
    let transport = if is_v4 { V4_BYTES } else { V6_BYTES };
    let head = transport + if is_tcp { 32 } else { 8 };
    let mut packet = vec![0; head + payload];
    let total = packet.len();
    let protocol = if is_tcp { PROTOCOL_TCP } else { PROTOCOL_UDP };
    if is_v4 {
        packet[..2].copy_from_slice(&[0x45, 2]);
        put(&mut packet, 2, total as u16);
        packet[6..10].copy_from_slice(&[0x40, 0, 64, protocol]);
        packet[12..20].copy_from_slice(&[10, 9, 1, 1, 10, 9, 1, 2]);
    } else {
        packet[..2].copy_from_slice(&[0x60, 0x20]);
        put(&mut packet, 4, (total - V6_BYTES) as u16);
        packet[6..8].copy_from_slice(&[protocol, 64]);
        packet[8] = 0xfd;
        packet[24] = 0xfd;
        packet[39] = 2;
    }
    packet[transport..transport + 4].copy_from_slice(&[0x12, 0x34, 0, 80]);
    if is_tcp {
        packet[transport + 4..transport + 8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        packet[transport + 12..transport + 16].copy_from_slice(&[0x80, ACK | PSH, 1, 0]);
        packet[transport + 20..transport + 24].copy_from_slice(&[1, 1, 8, 10]);
    } else {
        put(&mut packet, transport + 4, (8 + payload) as u16);
    }
    for (n, byte) in packet[head..].iter_mut().enumerate() {
        *byte = (n * 7 / 3) as u8;
    }
    let (kind, at) = match (is_tcp, is_v4) {
        (true, true) => (VnetSegments::Tcp4, 16),
        (true, false) => (VnetSegments::Tcp6, 16),
        (false, _) => (VnetSegments::Udp, 6),
    };
    let header = VnetHeader {
        checksum: Some((transport as u16, at)),
        is_checksum_valid: false,
        segments: Some((kind, size, head as u16)),
    };
    (packet, header)
}

fn pieces(packet: &[u8], header: &VnetHeader) -> Vec<Vec<u8>> {
    let mut slot = [&[0; MAC_HEADER_BYTES][..], packet].concat();
    let mut all = Vec::new();
    cut(header, &mut slot, |piece| all.push(piece.to_vec())).unwrap();
    all
}

/// Joins pieces as far as they belong together. Returns the runs with their headers.
fn join(pieces: &[Vec<u8>]) -> Vec<(Vec<u8>, Option<VnetHeader>)> {
    let mut runs: Vec<(Vec<u8>, usize, Option<Joint>)> = Vec::new();
    for piece in pieces {
        if let Some((run, length, Some(joint))) = runs.last_mut()
            && let Some(longer) = joint.join(run, *length, piece)
        {
            *length = longer;
            continue;
        }
        let mut run = piece.clone();
        run.resize(1 << 16, 0);
        runs.push((run, piece.len(), Joint::begin(piece, true)));
    }
    let finish = |(mut run, length, joint): (Vec<u8>, usize, Option<Joint>)| {
        run.truncate(length);
        let header = joint.and_then(|joint| joint.finish(&mut run));
        (run, header)
    };
    runs.into_iter().map(finish).collect()
}

const KINDS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

#[test]
fn what_was_cut_is_joined_to_the_same_packet() {
    for (is_v4, is_tcp) in KINDS {
        for payload in [2000, 2500, 20_000, 40_001] {
            let (packet, header) = whole(is_v4, is_tcp, payload, 1000);
            let pieces = pieces(&packet, &header);
            assert_eq!(pieces.len(), payload.div_ceil(1000));
            let runs = join(&pieces);
            assert_eq!(runs.len(), 1, "{is_v4} {is_tcp} {payload}");
            let (run, found) = &runs[0];
            assert_eq!(found.unwrap(), header);
            assert!(Packet::read(run).is_some());
            // The kernel's checks of the sums hold: what is cut again is the same.
            assert_eq!(super::tests::pieces(run, &header), pieces);
        }
    }
}

#[test]
fn packets_that_differ_in_a_header_stay_apart() {
    for (is_v4, is_tcp) in KINDS {
        let (packet, header) = whole(is_v4, is_tcp, 2000, 1000);
        let pieces = pieces(&packet, &header);
        let transport = if is_v4 { V4_BYTES } else { V6_BYTES };
        let headers = packet.len() - 2000;
        // Each byte of the headers and the first of the payload.
        for at in 0..=headers {
            let mut changed = pieces.clone();
            changed[1][at] ^= 1;
            let all = join(&changed);
            assert_eq!(all.len(), 2, "{is_v4} {is_tcp} byte {at}");
            assert!(all.iter().all(|(_, header)| header.is_none()));
            assert_eq!(all[1].0, changed[1]);
        }
        let mut damaged = pieces.clone();
        damaged[0][headers] ^= 1;
        assert_eq!(join(&damaged).len(), 2, "the first one's sum is wrong");
        let swapped = [pieces[1].clone(), pieces[0].clone()];
        assert_eq!(
            join(&swapped).len(),
            if is_tcp { 2 } else { 1 },
            "{transport}"
        );
    }
}

#[test]
fn run_ends_with_a_short_packet_and_at_its_limits() {
    let (packet, header) = whole(true, false, 2500, 1000);
    let one = pieces(&packet, &header);
    let twice = [one.clone(), one].concat();
    let lengths: Vec<usize> = join(&twice).iter().map(|(run, _)| run.len()).collect();
    assert_eq!(lengths, [2528, 2528]);
    // Datagrams of 10 bytes: 64 in a packet. Segments: 64 KiB.
    let (packet, header) = whole(false, false, 1280, 10);
    let runs = join(&pieces(&packet, &header));
    assert_eq!(runs.len(), 2);
    let (packet, header) = whole(true, true, 1000, 1000);
    let segment = pieces(&packet, &header).remove(0);
    let mut many = Vec::new();
    for n in 0..70_u32 {
        let mut next = segment.clone();
        next[24..28].copy_from_slice(&(n * 1000).to_be_bytes());
        next[33] = ACK;
        put(&mut next, 36, 0);
        let layout = Layout::read(&next).unwrap();
        let sum = u32::from(layout.pseudo_sum(&next)) + u32::from(word_sum(&next[20..]));
        put(&mut next, 36, !fold(sum));
        many.push(next);
    }
    let lengths: Vec<usize> = join(&many).iter().map(|(run, _)| run.len()).collect();
    assert_eq!(lengths, [65_052, 5052]);
}

#[test]
fn control_packets_and_fragments_begin_no_run() {
    let (packet, header) = whole(true, true, 1000, 1000);
    let segment = pieces(&packet, &header).remove(0);
    assert!(Joint::begin(&segment, false).is_some());
    // SYN, FIN, RST, URG, ECE, CWR; options of IP; a fragment; another protocol; no payload.
    for (at, value) in [
        (33, 0x12),
        (33, 0x11),
        (33, 0x14),
        (33, 0x30),
        (33, 0x50),
        (33, 0x90),
        (0, 0x46),
        (6, 0x20),
        (7, 1),
        (9, 1),
    ] {
        let mut other = segment.clone();
        other[at] = value;
        assert!(Joint::begin(&other, true).is_none(), "byte {at} is {value}");
    }
    assert!(Joint::begin(&segment[..52], true).is_none());
    let (packet, header) = whole(true, false, 1000, 1000);
    let datagram = pieces(&packet, &header).remove(0);
    assert!(Joint::begin(&datagram, false).is_none());
    for length in 0..datagram.len() {
        assert!(Joint::begin(&datagram[..length], true).is_none());
    }
}
