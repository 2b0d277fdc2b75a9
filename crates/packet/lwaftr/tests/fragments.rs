//! Tests of MTUs, fragmentation and reassembly.

use etherparse::{IpFragOffset, Ipv4Header};

use crate::harness::*;

#[test]
fn long_packet_is_cut_outside_the_tunnel() {
    let packet = udp((HOST, 53), (WHOLE, 5), &[7; 1472]);
    assert_eq!(packet.len(), 1500);
    let ran = Case::plain().with_external(frame4(&packet)).run();
    let parts: Vec<_> = ran.internal.iter().map(|frame| out6(frame)).collect();
    let lengths: Vec<usize> = parts.iter().map(|(_, rest)| rest.len()).collect();
    assert_eq!(lengths, [8 + 1448, 8 + 52]);
    let whole = joined6(&ran.internal);
    assert_eq!(see4(&whole).payload, packet[20..]);
    assert_counters(
        &ran,
        &[
            ("out-ipv6-packets", 1),
            ("out-ipv6-frag", 2),
            ("out-ipv6-frag-not", 0),
        ],
    );
    // Two packets get different identifications.
    let twice = Case::plain()
        .with_external(frame4(&packet))
        .with_external(frame4(&packet))
        .run();
    assert_ne!(twice.internal[0][58..62], twice.internal[2][58..62]);
}

/// Joins the payloads of IPv6 fragments, and checks that they are in order.
fn joined6(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut whole = Vec::new();
    let id = &frames[0][58..62];
    for (number, frame) in frames.iter().enumerate() {
        let (header, rest) = out6(frame);
        assert_eq!((header.next_header.0, rest[0], rest[1]), (44, 4, 0));
        let word = u16::from_be_bytes([rest[2], rest[3]]);
        let is_last = number + 1 == frames.len();
        assert_eq!(
            (usize::from(word & !7), word & 7),
            (whole.len(), u16::from(!is_last))
        );
        assert_eq!(&rest[4..8], id);
        whole.extend(&rest[8..]);
    }
    whole
}

#[test]
fn long_packet_that_must_not_be_cut_is_answered() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), &[7; 1472]);
    edit4(&mut packet, |header| header.dont_fragment = true);
    let ran = Case::plain().with_external(frame4(&packet)).run();
    let seen = out4(&ran.external[0]);
    assert_eq!(seen.icmp, Some((3, 4, 1460, packet[..548].to_vec())));
    assert_counters(&ran, &[("drop-over-mtu-but-dont-fragment-ipv4-packets", 1)]);
    // A packet that just fits.
    let mut packet = udp((HOST, 53), (WHOLE, 5), &[7; 1432]);
    edit4(&mut packet, |header| header.dont_fragment = true);
    assert_eq!(
        Case::plain()
            .with_external(frame4(&packet))
            .run()
            .internal
            .len(),
        1
    );
}

#[test]
fn packets_obey_the_path_mtu_of_a_router() {
    let packet = udp((HOST, 53), (WHOLE, 5), &[7; 1472]);
    let quoted = tunnel(BR_WHOLE, B4_WHOLE, &packet);
    let case = |mtu: u32, seconds: u64, packet: &[u8]| {
        let error = icmp6(["2001:db8::99", BR_WHOLE], 2, 0, mtu, &quoted[..600]);
        let other = udp((HOST, 53), (SHARED, 40000), b"another B4");
        Case::plain()
            .with_internal(frame6(&error))
            .with_external(frame4(&other))
            .with_internal(frame6(&tunnel(
                B4_HIGH,
                BR,
                &udp((SHARED, 40000), (HOST, 53), b"x"),
            )))
            .with_external(frame4(packet))
            .later(seconds)
    };
    for (mtu, seconds, lengths) in [
        (1400, 10, [1352, 148]),
        (1280, 599, [1232, 268]),
        // Below the minimum of IPv6, above the network's own MTU, and expired.
        (1279, 10, [1448, 52]),
        (1501, 10, [1448, 52]),
        (1400, 601, [1448, 52]),
    ] {
        let ran = case(mtu, seconds, &packet).run();
        let parts = ran.internal[1..]
            .iter()
            .map(|frame| out6(frame).1.len() - 8);
        assert_eq!(
            parts.collect::<Vec<_>>(),
            lengths,
            "{mtu} after {seconds} s"
        );
        assert_eq!(see4(&joined6(&ran.internal[1..])).payload, packet[20..]);
    }
    let ran = case(1400, 10, &packet).run();
    assert_eq!(counter(&ran.counters, "path-mtus"), 1);
    assert_eq!(case(1400, 10, &packet).like_snabb().run().internal.len(), 3);
    let snabb = case(1400, 10, &packet).like_snabb().run();
    assert_eq!(out6(&snabb.internal[1]).1.len(), 8 + 1448);
    let mut whole = packet;
    edit4(&mut whole, |header| header.dont_fragment = true);
    let ran = case(1400, 10, &whole).run();
    // The router's error, translated, and then the AFTR's own error.
    let seen = ran.external.iter().filter_map(|frame| out4(frame).icmp);
    let errors: Vec<_> = seen.map(|icmp| (icmp.0, icmp.1, icmp.2)).collect();
    assert_eq!(errors, [(3, 4, 1360); 2]);
}

#[test]
fn packet_that_is_too_long_for_the_internet_is_cut_or_answered() {
    let with = |dont_fragment: bool| {
        let mut inner = udp((SHARED, 40000), (HOST, 80), &[7; 1372]);
        edit4(&mut inner, |header| {
            header.dont_fragment = dont_fragment;
            header.identification = 0x4321;
        });
        let mut case = Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &inner)));
        let [long, short] = [1500, 1000].map(|mtu| format!("external-interface {{ mtu {mtu};"));
        case.configuration = case.configuration.replace(&long, &short);
        (case, inner)
    };
    let (case, inner) = with(false);
    let ran = case.run();
    let mut payload = Vec::new();
    for (frame, more) in ran.external.iter().zip([true, false]) {
        let seen = out4(frame);
        let (header, _) = Ipv4Header::from_slice(&frame[14..]).unwrap();
        assert_eq!(
            (header.more_fragments, header.identification),
            (more, 0x4321)
        );
        assert_eq!(
            usize::from(header.fragment_offset.value()) * 8,
            payload.len()
        );
        payload.extend(seen.payload);
    }
    assert_eq!(payload, inner[20..]);
    assert_eq!(out4(&ran.external[0]).payload.len(), 976);
    assert_counters(&ran, &[("out-ipv4-packets", 1), ("out-ipv4-frag", 2)]);

    let (case, inner) = with(true);
    let ran = case.run();
    let seen = into(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(seen.icmp, Some((3, 4, 1000, inner[..548].to_vec())));
    assert_counters(&ran, &[("drop-over-mtu-but-dont-fragment-ipv4-packets", 1)]);
    let ran = with(true).0.like_snabb().run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
}

/// Fragments an IPv4 packet; `at` has the offsets within its payload where it is split.
pub(crate) fn cut4(packet: &[u8], at: &[usize]) -> Vec<Vec<u8>> {
    let (mut header, payload) = Ipv4Header::from_slice(packet).unwrap();
    let mut parts = Vec::new();
    let ends = [at, &[payload.len()]].concat();
    let mut start = 0;
    for end in ends {
        header.more_fragments = end < payload.len();
        header.fragment_offset = IpFragOffset::try_new((start / 8) as u16).unwrap();
        header.total_len = (20 + end - start) as u16;
        header.header_checksum = header.calc_header_checksum();
        let mut part = Vec::new();
        header.write(&mut part).unwrap();
        part.extend(&payload[start..end]);
        parts.push(part);
        start = end;
    }
    parts
}

#[test]
fn fragments_from_the_internet_are_put_together() {
    let packet = udp((HOST, 53), (SHARED, 40000), &[9; 600]);
    let parts = cut4(&packet, &[200, 400]);
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut case = Case::plain();
        for at in order {
            case = case.with_external(frame4(&parts[at]));
        }
        let ran = case.run();
        assert_eq!(into(&ran.internal[0], BR, B4_HIGH).payload, packet[20..]);
        assert_counters(
            &ran,
            &[
                ("in-ipv4-packets", 1),
                ("in-ipv4-frag-needs-reassembly", 3),
                ("in-ipv4-frag-reassembled", 1),
                ("in-ipv4-frag-reassembly-unneeded", 0),
                ("memuse-ipv4-frag-reassembly-buffer", 0),
            ],
        );
    }
}

#[test]
fn fragments_within_tunnels_are_put_together() {
    // Two customers who share an address send the same identification at the same time.
    let one = udp((SHARED, 40000), (HOST, 80), &[1; 600]);
    let two = udp((SHARED, 400), (HOST, 80), &[2; 600]);
    let (first, second) = (cut4(&one, &[304]), cut4(&two, &[304]));
    let ran = Case::plain()
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &first[0])))
        .with_internal(frame6(&tunnel(B4_LOW, BR, &second[1])))
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &first[1])))
        .with_internal(frame6(&tunnel(B4_LOW, BR, &second[0])))
        .run();
    assert_eq!(out4(&ran.external[0]).payload, one[20..]);
    assert_eq!(out4(&ran.external[1]).payload, two[20..]);
    assert_counters(
        &ran,
        &[("in-ipv4-frag-reassembled", 2), ("out-ipv4-packets", 2)],
    );
}

/// Fragments an IPv6 packet; `at` has the offsets within its payload where it is split.
pub(crate) fn cut6(packet: &[u8], id: u32, at: &[usize]) -> Vec<Vec<u8>> {
    let payload = &packet[40..];
    let ends = [at, &[payload.len()]].concat();
    let mut start = 0;
    let parts = ends.into_iter().map(|end| {
        let word = start as u16 | u16::from(end < payload.len());
        let head = [&[packet[6], 0], &word.to_be_bytes()[..], &id.to_be_bytes()].concat();
        let mut part = [&packet[..40], &head, &payload[start..end]].concat();
        part[4..6].copy_from_slice(&((8 + end - start) as u16).to_be_bytes());
        part[6] = 44;
        start = end;
        part
    });
    parts.collect()
}

#[test]
fn fragments_of_tunnels_are_put_together() {
    let inner = udp((SHARED, 40000), (HOST, 80), &[1; 1400]);
    let packet = tunnel(B4_HIGH, BR, &inner);
    let parts = cut6(&packet, 77, &[800]);
    let ran = Case::plain()
        .with_internal(frame6(&parts[1]))
        .with_internal(frame6(&parts[0]))
        .run();
    assert_eq!(out4(&ran.external[0]).payload, inner[20..]);
    assert_counters(
        &ran,
        &[
            ("in-ipv6-packets", 1),
            ("in-ipv6-frag-needs-reassembly", 2),
            ("in-ipv6-frag-reassembled", 1),
        ],
    );
    // A single fragment that is the whole packet.
    let ran = Case::plain()
        .with_internal(frame6(&cut6(&packet, 78, &[])[0]))
        .run();
    assert_eq!(out4(&ran.external[0]).payload, inner[20..]);
}

#[test]
fn mark_of_one_fragment_is_not_lost() {
    let with_ecn = |ecn: u8, mut packet: Vec<u8>| {
        edit4(&mut packet, |header| {
            header.ecn = etherparse::IpEcn::try_new(ecn).unwrap();
        });
        packet
    };
    let inner = with_ecn(2, udp((SHARED, 40000), (HOST, 80), &[1; 1400]));
    let mut packet = tunnel(B4_HIGH, BR, &inner);
    packet[1] = 0x20;
    let mut parts = cut6(&packet, 77, &[800]);
    parts[1][1] = 0x30;
    let ran = Case::plain()
        .with_internal(frame6(&parts[0]))
        .with_internal(frame6(&parts[1]))
        .run();
    assert_eq!(out4(&ran.external[0]).class, 3);

    let packet = with_ecn(2, udp((HOST, 53), (SHARED, 40000), &[9; 600]));
    let mut parts = cut4(&packet, &[200]);
    parts[1] = with_ecn(3, parts[1].clone());
    let run = |parts: &[Vec<u8>]| {
        let case = Case::plain().with_external(frame4(&parts[0]));
        case.with_external(frame4(&parts[1])).run()
    };
    assert_eq!(into(&run(&parts).internal[0], BR, B4_HIGH).class, 3);
    // A fragment that is not ECN-capable makes the marked packet invalid. (RFC 3168 §5.3)
    parts[0] = with_ecn(0, parts[0].clone());
    let ran = run(&parts);
    assert_eq!(ran.internal.len(), 0);
    assert_counters(&ran, &[("drop-ipv4-frag-invalid-reassembly", 1)]);
}

#[test]
fn hostile_fragments_are_dropped_and_counted() {
    let packet = tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (HOST, 80), &[1; 1400]));
    let parts = cut6(&packet, 77, &[800]);
    let overlapping = cut6(&packet, 77, &[792]);
    let ran = Case::plain()
        .with_internal(frame6(&parts[0]))
        .with_internal(frame6(&overlapping[1]))
        .with_internal(frame6(&parts[1]))
        .run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
    assert_counters(&ran, &[("drop-ipv6-frag-invalid-reassembly", 1)]);

    // The length is allowed only in the last fragment, so the AFTR sends an error.
    let odd = cut6(&packet, 77, &[801]);
    let ran = Case::plain().with_internal(frame6(&odd[0])).run();
    let (_, message) = out6(&ran.internal[0]);
    assert_eq!(message[..2], [4, 0]);
    assert_eq!(
        (&message[4..8], &message[8..]),
        (&[0, 0, 0, 4][..], &odd[0][..])
    );
    let case = Case::plain().like_snabb().with_internal(frame6(&odd[0]));
    assert_eq!(case.run().internal.len(), 0);
    let mut long = parts[1].clone();
    long[42..44].copy_from_slice(&0xfff8_u16.to_be_bytes());
    let ran = Case::plain().with_internal(frame6(&long)).run();
    assert_eq!(out6(&ran.internal[0]).1[4..8], [0, 0, 0, 42]);
}

#[test]
fn reassembly_is_bounded_and_can_be_switched_off() {
    let packet = udp((HOST, 53), (SHARED, 40000), &[9; 600]);
    let few = "reassembly { max-fragments-per-packet 2; }";
    let mut case = Case::with(few, "");
    for part in cut4(&packet, &[200, 400]) {
        case = case.with_external(frame4(&part));
    }
    assert_counters(&case.run(), &[("drop-ipv4-frag-invalid-reassembly", 1)]);
    let mut case = Case::with("reassembly { max-packets 2; }", "");
    for id in 0..5 {
        let mut packet = packet.clone();
        edit4(&mut packet, |header| header.identification = id);
        case = case.with_external(frame4(&cut4(&packet, &[200])[0]));
    }
    let ran = case.run();
    assert_counters(&ran, &[("drop-ipv4-frag-random-evicted", 3)]);
    assert!(counter(&ran.counters, "memuse-ipv4-frag-reassembly-buffer") < 2000);
    let off = "reassembly { max-packets 0; }";
    let tunnelled = tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (HOST, 80), &[1; 600]));
    let ran = Case::with(off, off)
        .with_external(frame4(&cut4(&packet, &[200])[0]))
        .with_internal(frame6(&cut6(&tunnelled, 5, &[320])[0]))
        .run();
    assert_counters(
        &ran,
        &[
            ("drop-ipv4-frag-disabled", 1),
            ("drop-ipv6-frag-disabled", 1),
        ],
    );
}

#[test]
fn fragments_that_never_end_are_answered_in_time() {
    let packet = udp((HOST, 53), (SHARED, 40000), &[9; 600]);
    let parts = cut4(&packet, &[200]);
    let tunnelled = tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (HOST, 80), &[1; 600]));
    let parts6 = cut6(&tunnelled, 5, &[320]);
    let case = || {
        Case::plain()
            .with_external(frame4(&parts[0]))
            .with_external(frame4(&parts[1]))
            .with_internal(frame6(&parts6[0]))
            .with_internal(frame6(&parts6[1]))
            .later(61)
    };
    let ran = case().run();
    let seen = out4(&ran.external[0]);
    assert_eq!(
        (seen.icmp.unwrap(), seen.destination),
        ((11, 1, 0, parts[0].clone()), HOST)
    );
    let (_, message) = out6(&ran.internal[0]);
    assert_eq!(
        (message[..2].to_vec(), &message[8..]),
        (vec![3, 1], &parts6[0][..])
    );
    assert_counters(
        &ran,
        &[("drop-ipv4-frag-expired", 1), ("drop-ipv6-frag-expired", 1)],
    );
    let quiet = case().like_snabb().run();
    assert_eq!((quiet.external.len(), quiet.internal.len()), (0, 0));
}
