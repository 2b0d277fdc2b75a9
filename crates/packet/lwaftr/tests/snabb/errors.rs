//! Cases of errors that are sent, and of ICMP that arrives.

use super::*;

#[test]
fn a_packet_without_a_hop_left_is_quoted_with_ttl_0() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    edit4(&mut packet, |header| header.time_to_live = 1);
    let mut frame = frame4(&packet);
    // Snabb also answers packets to group addresses; its own test cases have some.
    frame[..6].copy_from_slice(&[0x55; 6]);
    let ran = usual().with_external(frame).run();
    let error = &ran.external[0][14..];
    assert_eq!(Head::of(error), of_error(255));
    let seen = out4(&ran.external[0]);
    assert_eq!(seen.icmp, Some((11, 0, 0, after_hop(&packet))));
    let (bytes, error) = (14 + packet.len(), 14 + 28 + packet.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv4=1/{bytes} in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv4-iface=1/{bytes} \
             drop-ttl-zero-ipv4=1/{bytes} out-icmpv4-error=1/{error} out-ipv4=1/{error} \
             out-ipv4-frag-not=1"
        ),
    );
}

#[test]
fn an_error_to_a_b4_makes_a_hop_too() {
    let mut inner = udp((SHARED, 40000), (WHOLE, 5), b"to a neighbour");
    edit4(&mut inner, |header| header.time_to_live = 1);
    let frame = frame6(&tunnel(B4_HIGH, BR, &inner));
    let ran = usual().with_internal(frame.clone()).run();
    let (seen, error) = tunnelled(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(Head::of(&error), of_error(254));
    assert_eq!(seen.icmp, Some((11, 0, 0, after_hop(&inner))));
    let (bytes, inner) = (frame.len(), 14 + inner.len());
    let dropped = format!(
        "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 hairpin-ipv4=1/{inner} \
         drop-all-ipv6-iface=1/{bytes} drop-ttl-zero-ipv4=1/{inner}"
    );
    let error = inner + 28;
    assert_all(
        &ran,
        &format!(
            "{dropped} out-icmpv4-error=1/{error} out-ipv6=1/{} out-ipv6-frag-not=1",
            error + 40
        ),
    );
    let ran = quiet().with_internal(frame).run();
    assert_silent(&ran);
    assert_all(
        &ran,
        &format!("{dropped} drop-out-by-policy-icmpv4-packets=1"),
    );
}

#[test]
fn an_error_to_an_address_without_owner_is_dropped() {
    // The sender's address is in the table, but the port that it sent from is not.
    let mut case = usual();
    case.configuration = case.configuration.replace(
        "softwire { ipv4 192.0.2.1; psid 0; b4-ipv6 2001:db8::1; \
         br-address 2001:db8:ffff::1; port-set { psid-length 1; } }",
        "",
    );
    let packet = udp((SHARED, 53), ([192, 0, 2, 3], 80), b"x");
    let ran = case.with_external(frame4(&packet)).run();
    assert_silent(&ran);
    let (bytes, error) = (14 + packet.len(), 14 + 28 + packet.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv4=1/{bytes} in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv4-iface=1/{bytes} \
             drop-no-dest-softwire-ipv4=2/{} out-icmpv4-error=1/{error} \
             drop-in-by-rfc7596-icmpv4=1/{error} drop-all-ipv6-iface=1/{}",
            bytes + error,
            error + 40
        ),
    );
}

#[test]
fn unreachable_addresses_are_answered_or_counted() {
    let packet = udp((HOST, 53), ([192, 0, 2, 3], 80), b"answer");
    let (bytes, error) = (14 + packet.len(), 14 + 28 + packet.len());
    let dropped = format!(
        "in-ipv4=1/{bytes} in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv4-iface=1/{bytes} \
         drop-no-dest-softwire-ipv4=1/{bytes}"
    );
    let ran = usual().with_external(frame4(&packet)).run();
    assert_eq!(Head::of(&ran.external[0][14..]), of_error(255));
    let seen = out4(&ran.external[0]);
    assert_eq!(seen.icmp, Some((3, 1, 0, packet.clone())));
    assert_all(
        &ran,
        &format!("{dropped} out-icmpv4-error=1/{error} out-ipv4=1/{error} out-ipv4-frag-not=1"),
    );
    let ran = quiet().with_external(frame4(&packet)).run();
    assert_silent(&ran);
    assert_all(
        &ran,
        &format!("{dropped} drop-out-by-policy-icmpv4-packets=1"),
    );
}

#[test]
fn strangers_behind_tunnels_are_answered_or_counted() {
    // First an address without softwire, then a port of another softwire, whose BR address is the
    // source of the error.
    for (from, br, answers) in [
        (([192, 0, 2, 3], 5), BR_WHOLE, BR_WHOLE),
        ((SHARED, 40000), BR_WHOLE, BR),
    ] {
        let packet = tunnel(B4_LOW, br, &udp(from, (HOST, 80), b"request"));
        let (bytes, error) = (14 + packet.len(), 14 + 48 + packet.len());
        let dropped = format!(
            "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 drop-all-ipv6-iface=1/{bytes} \
             drop-no-source-softwire-ipv6=1/{bytes}"
        );
        let mut frame = frame6(&packet);
        frame[..6].copy_from_slice(&[0x55; 6]);
        let ran = usual().with_internal(frame.clone()).run();
        let (header, message) = out6(&ran.internal[0]);
        let source = std::net::Ipv6Addr::from(header.source).to_string();
        assert_eq!((header.hop_limit, source.as_str()), (255, answers));
        assert_eq!((message[0], message[1], &message[8..]), (1, 5, &packet[..]));
        assert_all(
            &ran,
            &format!("{dropped} out-icmpv6-error=1/{error} out-ipv6=1/{error} out-ipv6-frag-not=1"),
        );
        let ran = quiet().with_internal(frame).run();
        assert_silent(&ran);
        assert_all(
            &ran,
            &format!("{dropped} drop-out-by-policy-icmpv6-packets=1"),
        );
    }
}

#[test]
fn incoming_icmp_is_looked_up_checked_or_refused() {
    let sent = udp((SHARED, 40000), (HOST, 80), b"too long");
    let request = icmp4([HOST, WHOLE], 8, 0, 0x1234_0001, b"ping");
    for (packet, br, b4) in [
        (request.clone(), BR_WHOLE, B4_WHOLE),
        (
            icmp4([HOST, SHARED], 0, 0, 0x9234_0001, b"ping"),
            BR,
            B4_HIGH,
        ),
        (icmp4([HOST, SHARED], 3, 4, 1400, &sent), BR, B4_HIGH),
    ] {
        let ran = usual().with_external(frame4(&packet)).run();
        assert_eq!(tunnelled(&ran.internal[0], br, b4).1, after_hop(&packet));
        let bytes = 14 + packet.len();
        assert_all(
            &ran,
            &format!(
                "in-ipv4=1/{bytes} in-ipv4-frag-reassembly-unneeded=1 out-ipv6=1/{} \
                 out-ipv6-frag-not=1",
                bytes + 40
            ),
        );
    }
    let bytes = 14 + request.len();
    let came = format!(
        "in-ipv4=1/{bytes} in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv4-iface=1/{bytes}"
    );
    let mut damaged = request.clone();
    damaged[23] ^= 1;
    let ran = usual().with_external(frame4(&damaged)).run();
    assert_all(&ran, &format!("{came} drop-bad-checksum-icmpv4=1/{bytes}"));
    let ran = quiet().with_external(frame4(&request)).run();
    assert_all(&ran, &format!("{came} drop-in-by-policy-icmpv4=1/{bytes}"));
    let unbound = icmp4([HOST, [192, 0, 2, 3]], 8, 0, 0x1234_0001, b"ping");
    let ran = usual().with_external(frame4(&unbound)).run();
    assert_silent(&ran);
    assert_all(
        &ran,
        &format!("{came} drop-in-by-rfc7596-icmpv4=1/{bytes} drop-no-dest-softwire-ipv4=1/{bytes}"),
    );
    let only_silent = Case::with("generate-icmp-errors false;", "").like_snabb();
    let ran = only_silent.with_external(frame4(&unbound)).run();
    assert_all(
        &ran,
        &format!("{came} drop-no-dest-softwire-ipv4=1/{bytes} drop-out-by-policy-icmpv4-packets=1"),
    );
}

#[test]
fn icmpv6_errors_from_tunnels_are_translated_unchecked() {
    let from_inet = udp((HOST, 53), (WHOLE, 5), b"answer");
    // The quoted softwire is not in the table.
    let quoted = tunnel("2001:db8:ffff::9", "2001:db8::99", &from_inet);
    for (kind, code, word, answer) in [
        (1, 3, 0, Some((3, 1, 0))),
        (2, 0, 1400, Some((3, 4, 1360))),
        (3, 0, 0, Some((3, 1, 0))),
        (3, 1, 0, None),
        (4, 3, 0, Some((3, 1, 0))),
    ] {
        let mut packet = icmp6(["2001:db8::7", OWN6], kind, code, word, &quoted);
        // The checksum is not verified either.
        packet[42] ^= 1;
        let bytes = 14 + packet.len();
        let came = format!("in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1");
        let silent = Case::with("generate-icmp-errors false;", "").like_snabb();
        for case in [usual(), silent] {
            let ran = case.with_internal(frame6(&packet)).run();
            let Some((kind, code, word)) = answer else {
                assert_silent(&ran);
                let reason = "drop-over-time-but-not-hop-limit-icmpv6";
                let all = format!("{came} {reason}=1/{bytes} drop-all-ipv6-iface=1/{bytes}");
                assert_all(&ran, &all);
                continue;
            };
            assert_eq!(Head::of(&ran.external[0][14..]), of_error(255));
            let seen = out4(&ran.external[0]);
            assert_eq!(seen.icmp, Some((kind, code, word, from_inet.clone())));
            let error = 14 + 28 + from_inet.len();
            assert_all(
                &ran,
                &format!(
                    "{came} out-icmpv4-error=1/{error} out-ipv4=1/{error} out-ipv4-frag-not=1"
                ),
            );
        }
    }
}

#[test]
fn icmpv6_errors_about_packets_between_softwires_go_back() {
    let inner = udp((SHARED, 40000), (WHOLE, 5), b"to a neighbour");
    let quoted = tunnel(BR_WHOLE, B4_WHOLE, &inner);
    let packet = icmp6(["2001:db8::7", OWN6], 3, 0, 0, &quoted);
    let ran = usual().with_internal(frame6(&packet)).run();
    let (seen, error) = tunnelled(&ran.internal[0], BR, B4_HIGH);
    assert_eq!(Head::of(&error), of_error(254));
    assert_eq!(seen.icmp, Some((3, 1, 0, inner.clone())));
    let (bytes, error) = (14 + packet.len(), 14 + 28 + inner.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 out-icmpv4-error=1/{error} \
             out-ipv6=1/{} out-ipv6-frag-not=1",
            error + 40
        ),
    );
}

#[test]
fn icmp_of_b4s_is_checked_between_softwires_alone() {
    let mut out = icmp4([SHARED, HOST], 8, 0, 0x9000_0001, b"ping");
    out[23] ^= 1;
    let ran = usual()
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &out)))
        .run();
    assert_eq!(ran.external[0][14..], out);
    let mut between = icmp4([SHARED, WHOLE], 8, 0, 0x9000_0001, b"ping");
    between[23] ^= 1;
    let frame = frame6(&tunnel(B4_HIGH, BR, &between));
    let ran = usual().with_internal(frame.clone()).run();
    let (bytes, inner) = (frame.len(), 14 + between.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 hairpin-ipv4=1/{inner} \
             drop-all-ipv6-iface=1/{bytes} drop-bad-checksum-icmpv4=1/{inner}"
        ),
    );
}
