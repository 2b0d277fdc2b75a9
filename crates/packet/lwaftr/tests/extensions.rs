//! Tests of IPv6 packets with extension headers from B4s.

use crate::fragments::cut6;
use crate::harness::*;
use crate::neighbours::{asking, octets};

use carina_wire::neighbour::{Neighbour, NeighbourKind};

/// The contents of the destination options header that Linux adds to each packet that it tunnels,
/// behind the next header: tunnel encapsulation limit, and padding. (RFC 2473 §5.1)
pub(crate) const LIMIT: &[u8] = &[0, 4, 1, 4, 1, 1, 0];
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const OPTIONS: u8 = 60;

/// Inserts extension headers in front of a packet's payload.
pub(crate) fn behind(packet: &[u8], headers: &[(u8, &[u8])]) -> Vec<u8> {
    let (mut all, mut next) = (Vec::new(), packet[6]);
    for (kind, rest) in headers.iter().rev() {
        all = [&[next], *rest, &all].concat();
        next = *kind;
    }
    let mut packet = [&packet[..40], &all, &packet[40..]].concat();
    packet[6] = next;
    let length = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&length.to_be_bytes());
    packet
}

fn inner(payload: usize) -> Vec<u8> {
    udp((SHARED, 40000), (HOST, 80), &vec![1; payload])
}

fn from_b4(payload: usize) -> Vec<u8> {
    tunnel(B4_HIGH, BR, &inner(payload))
}

#[test]
fn packet_of_linux_with_its_encapsulation_limit_is_forwarded() {
    let packet = behind(&from_b4(9), &[(OPTIONS, LIMIT)]);
    assert_eq!(packet[6], 60);
    assert_eq!(packet[40..48], [4, 0, 4, 1, 4, 1, 1, 0]);
    for case in [Case::plain(), Case::plain().like_snabb()] {
        let ran = case.with_internal(frame6(&packet)).run();
        assert_eq!(out4(&ran.external[0]).payload, inner(9)[20..]);
        assert_counters(&ran, &[("in-ipv6-packets", 1), ("out-ipv4-packets", 1)]);
    }
}

#[test]
fn headers_come_in_any_order_and_around_fragment_headers() {
    let whole: &[u8] = &[0, 0, 0, 0, 0, 0, 9];
    let no_segments: &[u8] = &[0, 4, 0, 0, 0, 0, 0];
    let long: &[u8] = &[1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for headers in [
        &[(HOP_BY_HOP, long), (OPTIONS, LIMIT)][..],
        &[(OPTIONS, LIMIT), (ROUTING, no_segments), (OPTIONS, long)],
        &[(OPTIONS, LIMIT), (44, whole), (OPTIONS, LIMIT)],
        &[(OPTIONS, LIMIT); 8],
    ] {
        // Ethernet padding follows the packet.
        let frame = [frame6(&behind(&from_b4(9), headers)), vec![0; 20]].concat();
        let ran = Case::plain().with_internal(frame).run();
        assert_eq!(
            out4(&ran.external[0]).payload,
            inner(9)[20..],
            "{headers:?}"
        );
    }
}

#[test]
fn headers_in_front_of_and_behind_a_cut_are_both_passed() {
    let mut parts = cut6(&behind(&from_b4(1400), &[(OPTIONS, LIMIT)]), 77, &[800]);
    for part in &mut parts {
        *part = behind(part, &[(HOP_BY_HOP, LIMIT), (OPTIONS, LIMIT)]);
    }
    for order in [[0, 1], [1, 0]] {
        let case = order.iter().fold(Case::plain(), |case, number| {
            case.with_internal(frame6(&parts[*number]))
        });
        let ran = case.run();
        assert_eq!(out4(&ran.external[0]).payload, inner(1400)[20..]);
        assert_counters(
            &ran,
            &[
                ("in-ipv6-packets", 1),
                ("in-ipv6-frag-needs-reassembly", 2),
                ("in-ipv6-frag-reassembled", 1),
            ],
        );
    }
    // The error points at the payload length if that is wrong, and at the fragment offset, behind
    // the other headers, if that is.
    let mut long = parts[1].clone();
    long[58..60].copy_from_slice(&0xfff8_u16.to_be_bytes());
    let ran = Case::plain().with_internal(frame6(&long)).run();
    assert_eq!(out6(&ran.internal[0]).1[..8][4..], [0, 0, 0, 58]);
}

#[test]
fn too_many_headers_are_dropped_and_counted() {
    let packet = behind(&from_b4(9), &[(OPTIONS, LIMIT); 9]);
    let ran = Case::plain().with_internal(frame6(&packet)).run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
    assert_counters(&ran, &[("drop-extension-headers-ipv6-packets", 1)]);
    // A packet that was fragmented twice.
    let twice = cut6(&cut6(&from_b4(900), 1, &[480])[0], 2, &[240]);
    let case = Case::plain().with_internal(frame6(&twice[0]));
    let ran = case.with_internal(frame6(&twice[1])).run();
    assert_counters(&ran, &[("drop-unknown-protocol-ipv6-packets", 1)]);
}

#[test]
fn unknown_options_are_dropped_and_answered_as_they_ask() {
    for (kind, is_answered) in [(0x5e, false), (0x9e, true), (0xde, true)] {
        let options = [0, 1, 0, kind, 1, 0, 0];
        let packet = behind(&from_b4(9), &[(OPTIONS, LIMIT), (OPTIONS, &options)]);
        let case = || Case::plain().with_internal(frame6(&packet));
        let ran = case().run();
        assert_eq!(ran.external.len(), 0);
        assert_counters(&ran, &[("drop-extension-headers-ipv6-packets", 1)]);
        let frames = ran.internal.iter().map(|frame| out6(frame).1);
        let expected = is_answered.then(|| [&[0, 0, 0, 52], &packet[..]].concat());
        let expected: Vec<_> = expected.into_iter().collect();
        let answers: Vec<_> = frames
            .map(|message| {
                assert_eq!(message[..2], [4, 2]);
                message[4..].to_vec()
            })
            .collect();
        assert_eq!(answers, expected, "{kind:#x}");
        assert_eq!(case().like_snabb().run().internal.len(), 0);
    }
    let routed = behind(&from_b4(9), &[(ROUTING, &[0, 0, 1, 0, 0, 0, 0])]);
    let ran = Case::plain().with_internal(frame6(&routed)).run();
    let (_, message) = out6(&ran.internal[0]);
    assert_eq!(
        (&message[..2], &message[4..8]),
        (&[4, 0][..], &[0, 0, 0, 42][..])
    );
    assert_counters(&ran, &[("drop-extension-headers-ipv6-packets", 1)]);
}

#[test]
fn cut_and_impossible_headers_are_malformed() {
    let packet = behind(&from_b4(0), &[(OPTIONS, LIMIT)]);
    let mut longer = packet.clone();
    longer[41] = 200;
    let mut option = packet.clone();
    option[43] = 9;
    let mut short = packet[..44].to_vec();
    short[5] = 4;
    for bad in [longer, option, short] {
        let ran = Case::plain().with_internal(frame6(&bad)).run();
        assert_counters(&ran, &[("drop-malformed-ipv6-packets", 1)]);
    }
}

#[test]
fn own_messages_stand_behind_options() {
    let ping = icmp6(["2001:db8::7", OWN6], 128, 0, 0x0001_0002, b"ping");
    let expected = icmp6([OWN6, "2001:db8::7"], 129, 0, 0x0001_0002, b"ping");
    for headers in [
        &[(OPTIONS, LIMIT)][..],
        &[(HOP_BY_HOP, LIMIT), (OPTIONS, LIMIT)],
    ] {
        let request = frame6(&behind(&ping, headers));
        let ran = Case::plain().with_internal(request).run();
        assert_eq!(ran.internal[0][14..], expected);
        assert_counters(&ran, &[("out-icmpv6-echo-packets", 1)]);
    }
    let sent = udp((HOST, 53), (SHARED, 40000), b"answer");
    let error = icmp6(
        ["2001:db8::99", BR],
        2,
        0,
        1400,
        &tunnel(BR, B4_HIGH, &sent),
    );
    let error = frame6(&behind(&error, &[(OPTIONS, LIMIT)]));
    let ran = Case::plain().with_internal(error).run();
    assert_eq!(out4(&ran.external[0]).icmp, Some((3, 4, 1360, sent)));
}

#[test]
fn neighbours_that_were_cut_are_not_believed() {
    let advertisement = Neighbour {
        kind: NeighbourKind::Advertisement {
            is_solicited: true,
            is_router: true,
            is_override: true,
        },
        source: octets("fd00::9"),
        destination: octets(OWN6),
        target: octets("fd00::9"),
        link: Some(NEXT_MAC),
    };
    let message = advertisement.encode();
    let parts = cut6(&message, 7, &[24]);
    let alone = cut6(&message, 7, &[]);
    for frames in [&parts, &alone] {
        let case = frames
            .iter()
            .fold(asking(), |case, frame| case.with_internal(frame6(frame)));
        assert_counters(&case.run(), &[("drop-malformed-ndp-packets", 1)]);
    }
}

#[test]
fn no_error_is_sent_about_an_error_behind_headers() {
    let error = icmp6([B4_HIGH, BR], 1, 0, 0, &[0; 900]);
    // A fragment whose length only the last fragment may have. Without the ICMP error in it, it
    // would be answered.
    let part = cut6(&error, 7, &[801]).remove(0);
    for headers in [&[][..], &[(OPTIONS, LIMIT)]] {
        let frame = frame6(&behind(&part, headers));
        let ran = Case::plain().with_internal(frame).run();
        assert_eq!(ran.internal.len(), 0);
        assert_counters(&ran, &[("drop-ipv6-frag-invalid-reassembly", 1)]);
    }
}
