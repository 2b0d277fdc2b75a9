//! Tests of ICMP through softwires, and of ICMP errors that the AFTR sends and translates.

use carina_lwaftr::config::Rules;

use crate::harness::*;

#[test]
fn echoes_go_to_the_owner_of_their_identifier() {
    // Echo requests and replies in both directions, each with its identifier.
    let ran = Case::plain()
        .with_external(frame4(&icmp4([HOST, SHARED], 8, 0, 0x1234_0001, b"a")))
        .with_external(frame4(&icmp4([HOST, SHARED], 0, 0, 0x8234_0001, b"b")))
        .with_internal(frame6(&tunnel(
            B4_HIGH,
            BR,
            &icmp4([SHARED, HOST], 8, 0, 0x9000_0001, b"c"),
        )))
        .with_internal(frame6(&tunnel(
            B4_LOW,
            BR,
            &icmp4([SHARED, HOST], 0, 0, 0x1000_0001, b"d"),
        )))
        .run();
    assert_eq!(into(&ran.internal[0], BR, B4_LOW).icmp.unwrap().3, b"a");
    assert_eq!(into(&ran.internal[1], BR, B4_HIGH).icmp.unwrap().3, b"b");
    assert_eq!(out4(&ran.external[0]).icmp.unwrap().3, b"c");
    assert_eq!(out4(&ran.external[1]).icmp.unwrap().3, b"d");
    assert_counters(&ran, &[("out-ipv4-packets", 2), ("out-ipv6-packets", 2)]);

    // By Snabb's rules the owner of port 0 gets all echo requests from the Internet.
    let ran = Case::plain()
        .like_snabb()
        .with_external(frame4(&icmp4([HOST, SHARED], 8, 0, 0x9234_0001, b"a")))
        .run();
    assert_eq!(into(&ran.internal[0], BR, B4_LOW).icmp.unwrap().3, b"a");
}

#[test]
fn errors_go_to_the_owner_of_the_port_that_they_quote() {
    let sent = udp((SHARED, 40000), (HOST, 80), b"too long");
    let error = icmp4([[198, 51, 100, 1], SHARED], 3, 4, 1400, &sent[..28]);
    let ran = Case::plain().with_external(frame4(&error)).run();
    let seen = into(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(seen.icmp, Some((3, 4, 1400, sent[..28].to_vec())));

    // A B4 quotes a packet that it received, so the destination port counts.
    let received = udp((HOST, 80), (SHARED, 40000), b"unwanted");
    let error = tunnel(B4_HIGH, BR, &icmp4([SHARED, HOST], 3, 3, 0, &received));
    let ran = Case::plain().with_internal(frame6(&error)).run();
    assert_eq!(out4(&ran.external[0]).icmp.unwrap().0, 3);
    let ran = Case::plain()
        .like_snabb()
        .with_internal(frame6(&error))
        .run();
    assert_counters(
        &ran,
        &[
            ("drop-no-source-softwire-ipv6-packets", 1),
            ("out-ipv4-packets", 0),
        ],
    );

    // An error about an echo is looked up by the identifier; an error whose quotation is too short
    // has no owner.
    let echo = icmp4([SHARED, HOST], 8, 0, 0x9000_0001, b"ping");
    let error = icmp4([[198, 51, 100, 1], SHARED], 11, 0, 0, &echo);
    let ran = Case::plain().with_external(frame4(&error)).run();
    assert_eq!(into(&ran.internal[0], BR, B4_HIGH).icmp.unwrap().0, 11);
    let error = icmp4([[198, 51, 100, 1], SHARED], 11, 0, 0, &echo[..19]);
    let ran = Case::plain().with_external(frame4(&error)).run();
    assert_counters(&ran, &[("drop-in-by-rfc7596-icmpv4-packets", 1)]);
}

#[test]
fn icmp_that_is_damaged_or_not_allowed_is_dropped() {
    let mut echo = icmp4([HOST, WHOLE], 8, 0, 7, b"ping");
    let allowed = Case::with("allow-incoming-icmp false;", "");
    let ran = allowed.with_external(frame4(&echo)).run();
    assert_counters(&ran, &[("drop-in-by-policy-icmpv4-packets", 1)]);
    echo[22] ^= 1;
    let ran = Case::plain().with_external(frame4(&echo)).run();
    assert_counters(&ran, &[("drop-bad-checksum-icmpv4-packets", 1)]);

    let between = icmp4([SHARED, WHOLE], 8, 0, 0x9000_0001, b"ping");
    let case = || {
        let case = Case::with("allow-incoming-icmp false;", "");
        case.with_internal(frame6(&tunnel(B4_HIGH, BR, &between)))
    };
    assert_eq!(case().run().internal.len(), 1);
    let ran = case().like_snabb().run();
    assert_counters(&ran, &[("drop-in-by-policy-icmpv4-packets", 1)]);
}

#[test]
fn no_error_is_sent_about_what_must_not_be_answered() {
    let unowned = [192, 0, 2, 3];
    let packet = |source: [u8; 4], to: [u8; 4]| udp((source, 53), (to, 80), b"x");
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        let ran = Case::plain()
            .with_external(frame4(&packet(source, unowned)))
            .run();
        assert_eq!(ran.external.len(), 0, "{source:?}");
        assert_counters(&ran, &[("drop-no-dest-softwire-ipv4-packets", 1)]);
    }
    let ran = Case::plain()
        .with_external(frame4(&packet(HOST, [224, 0, 0, 5])))
        .run();
    assert_eq!(ran.external.len(), 0);
    let mut to_group = frame4(&packet(HOST, unowned));
    to_group[0] = 1;
    assert_eq!(
        Case::plain().with_external(to_group).run().external.len(),
        0
    );
    // An error whose TTL expires here.
    let sent = udp((WHOLE, 5), (HOST, 80), b"x");
    let mut error = icmp4([HOST, WHOLE], 3, 1, 0, &sent);
    edit4(&mut error, |header| header.time_to_live = 1);
    let ran = Case::plain().with_external(frame4(&error)).run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
    assert_counters(&ran, &[("drop-ttl-zero-ipv4-packets", 1)]);
}

#[test]
fn errors_quote_as_much_as_fits() {
    let packet = udp((HOST, 53), ([192, 0, 2, 3], 80), &[7; 1300]);
    let ran = Case::plain().with_external(frame4(&packet)).run();
    let seen = out4(&ran.external[0]);
    assert_eq!(seen.bytes, 576);
    assert_eq!(seen.icmp.unwrap().3, packet[..548]);
    let inner = udp((SHARED, 40000), (HOST, 80), &[7; 1300]);
    let packet = tunnel(B4_LOW, BR, &inner);
    let ran = Case::plain().with_internal(frame6(&packet)).run();
    let (header, message) = out6(&ran.internal[0]);
    assert_eq!((header.payload_length, message.len()), (1240, 1240));
    assert_eq!(message[8..], packet[..1232]);
}

#[test]
fn errors_are_limited_and_can_be_switched_off() {
    let packet = frame4(&udp((HOST, 53), ([192, 0, 2, 3], 80), b"x"));
    let foreign = frame6(&tunnel(B4_LOW, BR, &udp((SHARED, 40000), (HOST, 80), b"x")));
    let limit = "error-rate-limiting { packets 2; period 10; }";
    let mut case = Case::with(limit, limit);
    for _ in 0..5 {
        case = case
            .with_external(packet.clone())
            .with_internal(foreign.clone());
    }
    let ran = case
        .with_external(packet.clone())
        .with_internal(foreign.clone())
        .later(10)
        .run();
    assert_counters(
        &ran,
        &[
            ("out-icmpv4-error-packets", 3),
            ("out-icmpv6-error-packets", 3),
            ("drop-over-rate-limit-icmpv4-packets", 3),
            ("drop-over-rate-limit-icmpv6-packets", 3),
            ("drop-no-dest-softwire-ipv4-packets", 6),
            ("drop-no-source-softwire-ipv6-packets", 6),
        ],
    );
    let off = "generate-icmp-errors false;";
    let ran = Case::with(off, off)
        .with_external(packet)
        .with_internal(foreign)
        .run();
    assert_eq!((ran.external.len(), ran.internal.len()), (0, 0));
    assert_counters(
        &ran,
        &[
            ("drop-out-by-policy-icmpv4-packets", 1),
            ("drop-out-by-policy-icmpv6-packets", 1),
            ("drop-no-dest-softwire-ipv4-packets", 1),
            ("drop-no-source-softwire-ipv6-packets", 1),
        ],
    );
}

#[test]
fn errors_out_of_the_tunnel_are_translated() {
    let sent = udp((HOST, 53), (SHARED, 40000), b"answer");
    let quoted = tunnel(BR, B4_HIGH, &sent);
    for (kind, code, word, expected) in [
        (1, 0, 0, (3, 1, 0)),
        (1, 4, 0, (3, 1, 0)),
        (3, 0, 0, (3, 1, 0)),
        (4, 2, 6, (3, 1, 0)),
        (2, 0, 1400, (3, 4, 1360)),
        (2, 0, 1280, (3, 4, 1240)),
    ] {
        let error = icmp6(["2001:db8::99", BR], kind, code, word, &quoted);
        let ran = Case::plain().with_internal(frame6(&error)).run();
        let seen = out4(&ran.external[0]);
        assert_eq!((seen.source, seen.destination), (OWN4, HOST));
        let (kind, code, word) = expected;
        assert_eq!(seen.icmp, Some((kind, code, word, sent.clone())));
        assert_counters(
            &ran,
            &[("in-ipv6-packets", 1), ("out-icmpv4-error-packets", 1)],
        );
    }
    // 1280 bytes is the smallest MTU of IPv6. (RFC 8201 §4)
    for word in [7, 1279] {
        let error = icmp6(["2001:db8::99", BR], 2, 0, word, &quoted);
        let ran = Case::plain().with_internal(frame6(&error)).run();
        assert_eq!(ran.external.len(), 0);
        assert_counters(&ran, &[("drop-too-small-mtu-icmpv6-packets", 1)]);
        let snabb = Case::plain().like_snabb().with_internal(frame6(&error));
        assert_eq!(snabb.run().external.len(), 1);
    }
    for (kind, code, name) in [
        (2, 1, "drop-too-big-type-but-not-code-icmpv6-packets"),
        (3, 1, "drop-over-time-but-not-hop-limit-icmpv6-packets"),
        (100, 0, "drop-unknown-protocol-icmpv6-packets"),
        (130, 0, "drop-unknown-protocol-icmpv6-packets"),
    ] {
        let error = icmp6(["2001:db8::99", BR], kind, code, 0, &quoted);
        let ran = Case::plain().with_internal(frame6(&error)).run();
        assert_eq!(ran.external.len(), 0);
        assert_counters(&ran, &[(name, 1), ("drop-all-ipv6-iface-packets", 1)]);
    }
}

#[test]
fn error_about_a_hairpinned_packet_goes_back_to_its_b4() {
    let sent = udp((WHOLE, 9), (SHARED, 40000), b"hello");
    let error = icmp6(["2001:db8::99", BR], 1, 0, 0, &tunnel(BR, B4_HIGH, &sent));
    for internal in ["", "hairpinning false;"] {
        let ran = Case::with("", internal).with_internal(frame6(&error)).run();
        let seen = into(&ran.internal[0], BR_WHOLE, B4_WHOLE);
        assert_eq!(seen.icmp, Some((3, 1, 0, sent.clone())));
    }
}

#[test]
fn errors_about_packets_that_never_were_are_dropped() {
    let sent = udp((HOST, 53), (SHARED, 40000), b"answer");
    let wrong = [
        tunnel(BR, B4_LOW, &sent),
        tunnel(BR_WHOLE, B4_HIGH, &sent),
        tunnel(BR, B4_HIGH, &udp((HOST, 53), ([192, 0, 2, 3], 80), b"x")),
        tunnel(BR, B4_HIGH, &sent[..19]),
        ipv6(BR, B4_HIGH, 17, &sent),
        quoted_fragment(&sent, 8),
    ];
    for quoted in &wrong {
        let error = icmp6(["2001:db8::99", BR], 1, 0, 0, quoted);
        let ran = Case::plain().with_internal(frame6(&error)).run();
        assert_eq!(ran.external.len(), 0);
        assert_counters(&ran, &[("drop-not-ours-icmpv6-packets", 1)]);
    }
    let error = icmp6(["2001:db8::99", BR], 1, 0, 0, &wrong[0]);
    let mut case = Case::plain().with_internal(frame6(&error));
    case.rules = Rules {
        checks_tunnel_errors: false,
        ..Rules::RFC
    };
    assert_eq!(case.run().external.len(), 1);
    let first = icmp6(["2001:db8::99", BR], 1, 0, 0, &quoted_fragment(&sent, 0));
    assert_eq!(
        Case::plain()
            .with_internal(frame6(&first))
            .run()
            .external
            .len(),
        1
    );

    let mut damaged = error;
    damaged[42] ^= 1;
    let ran = Case::plain().with_internal(frame6(&damaged)).run();
    assert_counters(&ran, &[("drop-bad-checksum-icmpv6-packets", 1)]);
    let forbidden = Case::with("", "allow-incoming-icmp false;").with_internal(frame6(&first));
    assert_counters(&forbidden.run(), &[("drop-in-by-policy-icmpv6-packets", 1)]);
}

fn quoted_fragment(inner: &[u8], offset: u8) -> Vec<u8> {
    ipv6(
        BR,
        B4_HIGH,
        44,
        &[&[4, 0, 0, offset | 1, 0, 0, 0, 9], inner].concat(),
    )
}
