//! Cases of encapsulation, decapsulation and hairpinning.

use etherparse::IpDscp;

use super::*;

#[test]
fn packets_of_the_table_leave_with_hop_limit_255() {
    let mut packet = udp((HOST, 53), (WHOLE, 5), b"answer");
    edit4(&mut packet, |header| {
        header.dscp = IpDscp::try_new(46).unwrap()
    });
    let ran = usual().with_external(frame4(&packet)).run();
    let (seen, inner) = tunnelled(&ran.internal[0], BR_WHOLE, B4_WHOLE);
    assert_eq!((seen.class, inner), (46 << 2, after_hop(&packet)));
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

#[test]
fn packets_of_b4s_leave_without_a_hop() {
    let inner = udp((SHARED, 40000), (HOST, 80), b"request");
    let frame = frame6(&tunnel(B4_HIGH, BR, &inner));
    let ran = usual().with_internal(frame.clone()).run();
    assert_eq!(ran.external[0][14..], inner);
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{} in-ipv6-frag-reassembly-unneeded=1 out-ipv4=1/{} out-ipv4-frag-not=1",
            frame.len(),
            14 + inner.len()
        ),
    );
}

#[test]
fn packets_between_softwires_make_one_hop() {
    // Between two softwires of the same BR address, then to and from one of another BR address.
    for (from, b4, br, to, far, far_br) in [
        ((SHARED, 40000), B4_HIGH, BR, (SHARED, 5), B4_LOW, BR),
        ((SHARED, 40000), B4_HIGH, BR, (WHOLE, 5), B4_WHOLE, BR_WHOLE),
        ((WHOLE, 5), B4_WHOLE, BR_WHOLE, (SHARED, 5), B4_LOW, BR),
    ] {
        let inner = udp(from, to, b"to a neighbour");
        let frame = frame6(&tunnel(b4, br, &inner));
        for count in [1, 64] {
            let case = (0..count).fold(quiet(), |case, _| case.with_internal(frame.clone()));
            let ran = case.run();
            assert_eq!(ran.internal.len(), count);
            let (_, left) = tunnelled(&ran.internal[count - 1], far_br, far);
            assert_eq!(left, after_hop(&inner));
            let (bytes, inner) = (count * frame.len(), count * (14 + inner.len()));
            assert_all(
                &ran,
                &format!(
                    "in-ipv6={count}/{bytes} in-ipv6-frag-reassembly-unneeded={count} \
                     hairpin-ipv4={count}/{inner} out-ipv6={count}/{bytes} \
                     out-ipv6-frag-not={count}"
                ),
            );
        }
    }
}

#[test]
fn without_hairpinning_they_leave_by_ipv4() {
    let inner = udp((SHARED, 40000), (SHARED, 5), b"to a neighbour");
    let frame = frame6(&tunnel(B4_HIGH, BR, &inner));
    let case = Case::with("", "hairpinning false;").like_snabb();
    let ran = case.with_internal(frame.clone()).run();
    assert_eq!(ran.external[0][14..], inner);
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{} in-ipv6-frag-reassembly-unneeded=1 out-ipv4=1/{} out-ipv4-frag-not=1",
            frame.len(),
            14 + inner.len()
        ),
    );
}

#[test]
fn a_ping_between_softwires_goes_to_the_owner_of_port_0() {
    let request = icmp4([SHARED, WHOLE], 8, 0, 0x9000_0001, b"ping");
    let reply = icmp4([WHOLE, SHARED], 0, 0, 0x9000_0001, b"ping");
    for (inner, b4, br, far, far_br) in [
        (&request, B4_HIGH, BR, B4_WHOLE, BR_WHOLE),
        (&reply, B4_WHOLE, BR_WHOLE, B4_HIGH, BR),
    ] {
        let frame = frame6(&tunnel(b4, br, inner));
        let ran = usual().with_internal(frame.clone()).run();
        let (_, left) = tunnelled(&ran.internal[0], far_br, far);
        assert_eq!(left, after_hop(inner));
        let bytes = frame.len();
        assert_all(
            &ran,
            &format!(
                "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 hairpin-ipv4=1/{} \
                 out-ipv6=1/{bytes} out-ipv6-frag-not=1",
                bytes - 40
            ),
        );
    }
}

/// The case without the softwire that owns port 0 of the shared address.
fn without_port_0(case: Case) -> Case {
    let shared = "softwire { ipv4 192.0.2.1; psid 0; b4-ipv6 2001:db8::1; \
        br-address 2001:db8:ffff::1; port-set { psid-length 1; } }";
    assert!(case.configuration.contains(shared));
    let configuration = case.configuration.replace(shared, "");
    Case {
        configuration,
        ..case
    }
}

#[test]
fn a_ping_to_an_unowned_port_0_counts_twice() {
    let request = icmp4([WHOLE, SHARED], 8, 0, 0x9000_0001, b"ping");
    let frame = frame6(&tunnel(B4_WHOLE, BR_WHOLE, &request));
    let case = || without_port_0(usual());
    let ran = case().with_internal(frame.clone()).run();
    assert_silent(&ran);
    let (bytes, inner) = (frame.len(), 14 + request.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 hairpin-ipv4=1/{inner} \
             drop-all-ipv6-iface=1/{bytes} drop-in-by-rfc7596-icmpv4=1/{inner} \
             drop-no-dest-softwire-ipv4=1/{inner}"
        ),
    );
    // An echo reply from a softwire that does not own port 0.
    let reply = icmp4([SHARED, WHOLE], 0, 0, 0x9000_0001, b"ping");
    let packet = tunnel(B4_HIGH, BR, &reply);
    let ran = case().with_internal(frame6(&packet)).run();
    let (header, message) = out6(&ran.internal[0]);
    assert_eq!((header.hop_limit, &message[8..]), (255, &packet[..]));
    let (bytes, error) = (14 + packet.len(), 14 + 48 + packet.len());
    assert_all(
        &ran,
        &format!(
            "in-ipv6=1/{bytes} in-ipv6-frag-reassembly-unneeded=1 drop-all-ipv6-iface=1/{bytes} \
             drop-no-source-softwire-ipv6=1/{bytes} out-icmpv6-error=1/{error} \
             out-ipv6=1/{error} out-ipv6-frag-not=1"
        ),
    );
}

#[test]
fn protocols_without_ports_are_looked_up_by_their_first_bytes() {
    let gre = |payload: &[u8]| {
        let mut packet = udp((HOST, 0), (SHARED, 0), b"");
        packet.truncate(20);
        packet.extend(payload);
        edit4(&mut packet, |header| {
            header.protocol = etherparse::IpNumber::GRE;
            header.total_len = (20 + payload.len()) as u16;
        });
        packet
    };
    // The second 16-bit word of GRE is the type of its payload, 0x0800 or 0x88be; Snabb's rules
    // take it for a port.
    let [low, high] = [[0, 0, 8, 0], [0x10, 0, 0x88, 0xbe]].map(|head| gre(&head));
    let ran = usual()
        .with_external(frame4(&low))
        .with_external(frame4(&high))
        .run();
    tunnelled(&ran.internal[0], BR, B4_LOW);
    tunnelled(&ran.internal[1], BR, B4_HIGH);
    let as_rfc = Case::plain().with_external(frame4(&low)).run();
    assert_counters(&as_rfc, &[("drop-no-dest-softwire-ipv4-packets", 1)]);
}

#[test]
fn filters_accept_and_drop() {
    let into = frame4(&udp((HOST, 53), (WHOLE, 5), b"answer"));
    let inner = udp((SHARED, 40000), (HOST, 80), b"request");
    let out = frame6(&tunnel(B4_HIGH, BR, &inner));
    for (external, internal, passes) in [
        ("ingress-filter \"ip\";", "ingress-filter \"ip6\";", true),
        ("ingress-filter \"tcp\";", "ingress-filter \"tcp\";", false),
        ("egress-filter \"ip\";", "egress-filter \"ip6\";", true),
    ] {
        let ran = Case::with(external, internal)
            .like_snabb()
            .with_external(into.clone())
            .with_internal(out.clone())
            .run();
        let counted = if passes {
            format!(
                "in-ipv4=1/{0} in-ipv6=1/{1} in-ipv4-frag-reassembly-unneeded=1 \
                 in-ipv6-frag-reassembly-unneeded=1 out-ipv6=1/{2} out-ipv4=1/{3} \
                 out-ipv6-frag-not=1 out-ipv4-frag-not=1",
                into.len(),
                out.len(),
                into.len() + 40,
                out.len() - 40
            )
        } else {
            "in-ipv4-frag-reassembly-unneeded=1 in-ipv6-frag-reassembly-unneeded=1".into()
        };
        assert_all(&ran, &counted);
        let left = (ran.external.len(), ran.internal.len());
        assert_eq!(left, (usize::from(passes), usize::from(passes)));
    }
}
