//! Tests of encapsulation, decapsulation and hairpinning. (RFC 7596 §6.2)

use etherparse::{IpDscp, IpEcn};

use crate::harness::*;

#[test]
fn packet_from_internet_goes_to_the_owner_of_its_port() {
    for (to, b4, br) in [
        ((SHARED, 0x7fff), B4_LOW, BR),
        ((SHARED, 0x8000), B4_HIGH, BR),
        ((WHOLE, 5), B4_WHOLE, BR_WHOLE),
    ] {
        let mut packet = udp((HOST, 53), to, b"answer");
        edit4(&mut packet, |header| {
            header.dscp = IpDscp::try_new(46).unwrap()
        });
        // Ethernet pads short packets; the padding must not be encapsulated.
        let padded = [frame4(&packet), vec![0xee; 12]].concat();
        let ran = Case::plain().with_external(padded).run();
        assert_eq!((ran.external.len(), ran.internal.len()), (0, 1));
        let (header, _) = out6(&ran.internal[0]);
        assert_eq!((header.hop_limit, header.flow_label.value()), (64, 0));
        let seen = into(&ran.internal[0], br, b4);
        assert_eq!(
            (seen.ttl, seen.class, seen.bytes),
            (63, 46 << 2, packet.len())
        );
        assert_eq!(seen.payload, packet[20..]);
        let bytes = 14 + packet.len() as u64;
        assert_counters(
            &ran,
            &[
                ("in-ipv4-packets", 1),
                ("in-ipv4-bytes", bytes),
                ("out-ipv6-packets", 1),
                ("out-ipv6-bytes", bytes + 40),
                ("in-ipv4-frag-reassembly-unneeded", 1),
                ("out-ipv6-frag-not", 1),
            ],
        );
    }
}

#[test]
fn flow_label_is_the_configured_one() {
    let packet = udp((HOST, 53), (WHOLE, 5), b"");
    let case = Case::with("", "flow-label 70000;").with_external(frame4(&packet));
    let (header, _) = out6(&case.run().internal[0]);
    assert_eq!(header.flow_label.value(), 70000);
}

#[test]
fn packet_from_b4_leaves_by_ipv4_and_makes_a_hop() {
    let inner = udp((SHARED, 40000), (HOST, 80), b"request");
    let case = || Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &inner)));
    let ran = case().run();
    let seen = out4(&ran.external[0]);
    assert_eq!((seen.ttl, seen.bytes), (63, inner.len()));
    assert_eq!(seen.payload, inner[20..]);
    let bytes = 14 + inner.len() as u64;
    assert_counters(
        &ran,
        &[
            ("in-ipv6-packets", 1),
            ("in-ipv6-bytes", bytes + 40),
            ("out-ipv4-packets", 1),
            ("out-ipv4-bytes", bytes),
        ],
    );
    assert_eq!(out4(&case().like_snabb().run().external[0]).ttl, 64);
}

#[test]
fn packet_from_another_b4_or_to_another_address_is_refused() {
    let inner = udp((SHARED, 40000), (HOST, 80), b"request");
    for (b4, br, from) in [
        (B4_LOW, BR, BR),
        (B4_HIGH, BR_WHOLE, BR),
        ("2001:db8::77", "2001:db8:ffff::9", BR),
    ] {
        let packet = tunnel(b4, br, &inner);
        let case = || Case::plain().with_internal(frame6(&packet));
        let ran = case().run();
        let (header, message) = out6(&ran.internal[0]);
        assert_eq!(
            std::net::Ipv6Addr::from(header.source),
            from.parse::<std::net::Ipv6Addr>().unwrap()
        );
        assert_eq!(std::net::Ipv6Addr::from(header.destination).to_string(), b4);
        assert_eq!((message[0], message[1], &message[8..]), (1, 5, &packet[..]));
        assert_counters(
            &ran,
            &[
                ("drop-no-source-softwire-ipv6-packets", 1),
                ("drop-all-ipv6-iface-packets", 1),
                ("out-icmpv6-error-packets", 1),
                ("out-ipv6-packets", 1),
            ],
        );
    }
}

#[test]
fn address_without_softwire_is_unreachable_for_all_but_icmp() {
    for to in [(SHARED, 80), ([192, 0, 2, 3], 80)] {
        let is_bound = to.0 == SHARED;
        let packet = udp((HOST, 53), to, b"answer");
        let ran = Case::plain().with_external(frame4(&packet)).run();
        if is_bound {
            assert_eq!(ran.internal.len(), 1);
            continue;
        }
        let seen = out4(&ran.external[0]);
        assert_eq!(
            (seen.source, seen.destination, seen.class),
            (OWN4, HOST, 0xc0)
        );
        assert_eq!(seen.icmp, Some((3, 1, 0, packet.clone())));
        assert_counters(
            &ran,
            &[
                ("drop-no-dest-softwire-ipv4-packets", 1),
                ("drop-all-ipv4-iface-packets", 1),
                ("out-icmpv4-error-packets", 1),
                ("out-ipv4-packets", 1),
            ],
        );
    }
    let echo = icmp4([HOST, [192, 0, 2, 3]], 8, 0, 0, b"ping");
    let ran = Case::plain().with_external(frame4(&echo)).run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
    assert_counters(&ran, &[("drop-in-by-rfc7596-icmpv4-packets", 1)]);
}

#[test]
fn packet_without_a_hop_left_is_answered() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    edit4(&mut packet, |header| header.time_to_live = 1);
    let ran = Case::plain().with_external(frame4(&packet)).run();
    let seen = out4(&ran.external[0]);
    assert_eq!(seen.icmp, Some((11, 0, 0, packet)));
    assert_counters(&ran, &[("drop-ttl-zero-ipv4-packets", 1)]);

    // The packet comes from a B4, so the error goes back through its softwire.
    let mut inner = udp((SHARED, 40000), (HOST, 80), b"request");
    edit4(&mut inner, |header| header.time_to_live = 1);
    let case = || Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &inner)));
    let ran = case().run();
    let seen = into(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(seen.icmp, Some((11, 0, 0, inner.clone())));
    assert_counters(&ran, &[("drop-ttl-zero-ipv4-packets", 1)]);
    assert_eq!(case().like_snabb().run().external.len(), 1);
}

#[test]
fn damaged_packets_are_dropped_silently() {
    let packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    for (at, value) in [(0, 0x65), (0, 0x44), (3, 0xff), (10, packet[10] ^ 1)] {
        let mut bad = packet.clone();
        bad[at] = value;
        let ran = Case::plain().with_external(frame4(&bad)).run();
        assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
        assert_counters(&ran, &[("drop-malformed-ipv4-packets", 1)]);
        let inside = Case::plain()
            .with_internal(frame6(&tunnel(B4_WHOLE, BR_WHOLE, &bad)))
            .run();
        assert_counters(&inside, &[("drop-malformed-ipv4-packets", 1)]);
    }
    let mut short = tunnel(B4_WHOLE, BR_WHOLE, &packet);
    short.truncate(60);
    let ran = Case::plain().with_internal(frame6(&short)).run();
    assert_counters(&ran, &[("drop-malformed-ipv6-packets", 1)]);
}

#[test]
fn mark_of_congestion_goes_to_who_knows_it() {
    for (inner_ecn, is_snabb, left) in [
        (1, false, Some(3)),
        (2, false, Some(3)),
        (0, false, None),
        (1, true, Some(1)),
        (0, true, Some(0)),
    ] {
        let mut inner = udp((WHOLE, 5), (HOST, 80), b"request");
        edit4(&mut inner, |header| {
            header.ecn = IpEcn::try_new(inner_ecn).unwrap()
        });
        let mut packet = tunnel(B4_WHOLE, BR_WHOLE, &inner);
        packet[1] = 0x30;
        let case = Case::plain().with_internal(frame6(&packet));
        let ran = if is_snabb { case.like_snabb() } else { case }.run();
        let class = ran.external.first().map(|frame| out4(frame).class);
        assert_eq!(class, left, "{inner_ecn}");
        let dropped = counter(&ran.counters, "drop-ce-but-not-ect-ipv4-packets");
        assert_eq!(dropped, u64::from(left.is_none()));
    }
}

#[test]
fn packet_between_customers_is_turned_around() {
    let inner = udp((SHARED, 40000), (WHOLE, 80), b"hello");
    let packet = frame6(&tunnel(B4_HIGH, BR, &inner));
    let ran = Case::plain().with_internal(packet.clone()).run();
    let seen = into(&ran.internal[0], BR_WHOLE, B4_WHOLE);
    assert_eq!((seen.ttl, seen.source), (63, SHARED));
    assert_counters(
        &ran,
        &[
            ("hairpin-ipv4-packets", 1),
            ("in-ipv6-packets", 1),
            ("out-ipv6-packets", 1),
            ("in-ipv4-packets", 0),
            ("out-ipv4-packets", 0),
        ],
    );
    let ran = Case::with("", "hairpinning false;")
        .with_internal(packet)
        .run();
    assert_eq!(out4(&ran.external[0]).destination, WHOLE);
    assert_counters(
        &ran,
        &[("hairpin-ipv4-packets", 0), ("out-ipv4-packets", 1)],
    );
}

#[test]
fn hairpinned_packet_without_owner_is_answered() {
    let configuration = Case::plain()
        .configuration
        .replace("psid 0; b4-ipv6 2001:db8::1", "psid 3; b4-ipv6 2001:db8::1");
    let inner = udp((SHARED, 40000), (SHARED, 80), b"hello");
    let mut case = Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &inner)));
    case.configuration = configuration;
    let ran = case.run();
    let seen = into(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(seen.source, OWN4);
    assert_eq!(seen.icmp, Some((3, 1, 0, inner)));
    assert_counters(&ran, &[("drop-no-dest-softwire-ipv4-packets", 1)]);
}

#[test]
fn filters_see_whole_frames_without_tags() {
    let packet = |port| frame4(&udp((HOST, 53), (WHOLE, port), b"answer"));
    let ran = Case::with("ingress-filter \"udp dst port 5\";", "")
        .with_external(packet(5))
        .with_external(packet(6))
        .run();
    assert_eq!(ran.internal.len(), 1);
    assert_counters(&ran, &[("drop-filtered-in-ipv4-packets", 1)]);
    let ran = Case::with("", "egress-filter \"ip6 and not host 2001:db8::3\";")
        .with_external(packet(5))
        .run();
    assert_eq!(ran.internal.len(), 0);
    assert_counters(&ran, &[("drop-filtered-out-ipv6-packets", 1)]);
}

#[test]
fn misplaced_frames_and_unknown_protocols_are_dropped() {
    let ran = Case::plain()
        .with_internal(frame6(&ipv6(B4_LOW, BR, 17, &[0; 20])))
        .with_internal(frame6(&ipv6(B4_LOW, BR, 60, &[0; 20])))
        .run();
    assert_counters(&ran, &[("drop-unknown-protocol-ipv6-packets", 2)]);
    // On a stick no frame counts as misplaced, so these run on two interfaces.
    let case = Case::plain();
    let loaded = case.loaded([None, Some(5)]);
    let zero = carina_time::Instant::ZERO;
    let tagged = |tag: u8| [&[0; 12][..], &[0x81, 0, 0, tag, 0x86, 0xdd, 0x60, 0]].concat();
    let inputs = carina_lwaftr::check::Inputs {
        external: vec![(zero, frame6(&[0; 60])), (zero, vec![1, 2, 3])],
        internal: vec![
            (zero, tagged(6)),
            (zero, frame4(&[0; 60])),
            (zero, tagged(5)),
        ],
        is_stick: false,
    };
    let ran = carina_lwaftr::check::run(&loaded, case.rules, &inputs).unwrap();
    assert_counters(
        &ran,
        &[
            ("drop-misplaced-not-ipv4-packets", 2),
            ("drop-wrong-vlan-packets", 2),
            ("drop-malformed-ipv6-packets", 1),
            ("drop-all-ipv6-iface-packets", 3),
        ],
    );
}
