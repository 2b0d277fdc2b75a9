//! Cases of own addresses and next hops, and of frames with the wrong IP version.

use carina_wire::neighbour::{Neighbour, NeighbourKind, solicited_node};

use super::*;
use crate::neighbours::{arp, asking, octets};

const STATION: ([u8; 6], [u8; 4]) = ([2, 0, 0, 0, 0, 5], [10, 1, 1, 5]);

fn solicitation(target: &str) -> Vec<u8> {
    let message = Neighbour {
        kind: NeighbourKind::Solicitation,
        source: octets("fd00::5"),
        destination: solicited_node(octets(target)),
        target: octets(target),
        link: Some(STATION.0),
    };
    frame6(&message.encode())
}

#[test]
fn arp_counts_as_not_fragmented() {
    let ran = usual()
        .with_external(arp(false, STATION, ([0; 6], OWN4)))
        .run();
    assert_eq!(ran.external.len(), 1);
    assert_all(
        &ran,
        "in-arp-request=1/42 out-arp-reply=1/42 in-ipv4-frag-reassembly-unneeded=1 \
         out-ipv4-frag-not=1",
    );
    let as_rfc = Case::plain()
        .with_external(arp(false, STATION, ([0; 6], OWN4)))
        .run();
    assert_counters(&as_rfc, &[("in-ipv4-frag-reassembly-unneeded", 0)]);
}

#[test]
fn solicitations_for_the_own_address_alone_are_answered() {
    let came = "in-ndp-ns=1/86 in-ipv6-frag-reassembly-unneeded=1";
    let ran = usual().with_internal(solicitation(OWN6)).run();
    assert_eq!(ran.internal.len(), 1);
    assert_all(&ran, &format!("{came} out-ndp-na=1/86 out-ipv6-frag-not=1"));
    let ran = usual().with_internal(solicitation("fd00::77")).run();
    assert_silent(&ran);
    assert_all(&ran, came);
}

#[test]
fn next_hops_are_asked_for_at_once() {
    let ran = asking()
        .like_snabb()
        .with_internal(solicitation("fd00::77"))
        .run();
    assert_eq!((ran.external.len(), ran.internal.len()), (1, 1));
    assert_all(
        &ran,
        "in-ndp-ns=1/86 in-ipv6-frag-reassembly-unneeded=1 out-arp-request=1/42 out-ndp-ns=1/86 \
         out-ipv4-frag-not=1 out-ipv6-frag-not=1",
    );
}

#[test]
fn packets_that_wait_for_a_next_hop_have_not_left() {
    let out = udp((SHARED, 40000), (HOST, 80), b"request");
    let between = udp((SHARED, 40000), (WHOLE, 5), b"request");
    let mut case = asking().like_snabb();
    case.configuration = case
        .configuration
        .replace("ip 10.1.1.9", "mac 02:00:00:00:00:09");
    let case = case.with_internal(frame6(&tunnel(B4_HIGH, BR, &out)));
    let answer = Neighbour {
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
    let last = frame6(&tunnel(B4_HIGH, BR, &between));
    let configuration = case.configuration.clone();
    let waits = Case {
        configuration,
        ..case
    }
    .with_internal(last.clone());
    let (bytes, inner) = (last.len(), last.len() - 40);
    let both = format!(
        "in-ipv6=2/{} hairpin-ipv4=1/{inner} out-ipv4=1/{inner} out-ipv4-frag-not=1 \
         out-ipv6=1/{bytes} out-ndp-ns=1/86",
        2 * bytes
    );
    let ran = waits.run();
    assert_eq!((ran.external.len(), ran.internal.len()), (1, 1));
    assert_all(
        &ran,
        &format!("{both} in-ipv6-frag-reassembly-unneeded=2 out-ipv6-frag-not=1"),
    );
    let ran = waits.with_internal(frame6(&answer.encode())).run();
    assert_eq!(ran.internal.len(), 2);
    tunnelled(&ran.internal[1], BR_WHOLE, B4_WHOLE);
    assert_all(
        &ran,
        &format!("{both} in-ndp-na=1/86 in-ipv6-frag-reassembly-unneeded=3 out-ipv6-frag-not=2"),
    );
}

#[test]
fn frames_of_the_wrong_family_need_no_reassembly() {
    let of6 = frame6(&tunnel(
        B4_HIGH,
        BR,
        &udp((SHARED, 40000), (HOST, 80), b"x"),
    ));
    let of4 = frame4(&udp((HOST, 53), (WHOLE, 5), b"answer"));
    let case = quiet()
        .with_external(of6.clone())
        .with_internal(of4.clone());
    // On a stick each frame would reach the right side, so this runs on two interfaces.
    let ran = case.run_with([None, None], false);
    assert_silent(&ran);
    assert_all(
        &ran,
        &format!(
            "drop-all-ipv4-iface=1/{0} drop-misplaced-not-ipv4=1/{0} \
             in-ipv4-frag-reassembly-unneeded=1 drop-all-ipv6-iface=1/{1} \
             drop-misplaced-not-ipv6=1/{1} in-ipv6-frag-reassembly-unneeded=1",
            of6.len(),
            of4.len()
        ),
    );
}

#[test]
fn pings_of_own_addresses_are_answered_beside_data() {
    let ping4 = icmp4([HOST, OWN4], 8, 0, 0x0001_0002, b"ping");
    let ping6 = icmp6(["2001:db8::7", OWN6], 128, 0, 0x0001_0002, b"ping");
    let into = udp((HOST, 53), (WHOLE, 5), b"answer");
    let inner = udp((SHARED, 40000), (HOST, 80), b"request");
    let out = tunnel(B4_HIGH, BR, &inner);
    let ran = quiet()
        .with_external(frame4(&ping4))
        .with_external(frame4(&into))
        .with_internal(frame6(&ping6))
        .with_internal(frame6(&out))
        .run();
    assert_eq!((ran.external.len(), ran.internal.len()), (2, 2));
    assert_eq!(Head::of(&ran.external[0][14..]).ttl, 64);
    assert_eq!(out6(&ran.internal[1]).0.hop_limit, 64);
    let (ping4, ping6) = (14 + ping4.len(), 14 + ping6.len());
    assert_all(
        &ran,
        &format!(
            "in-icmpv4-echo=1/{ping4} out-icmpv4-echo=1/{ping4} in-icmpv6-echo=1/{ping6} \
             out-icmpv6-echo=1/{ping6} in-ipv4=1/{} out-ipv6=1/{} in-ipv6=1/{} out-ipv4=1/{} \
             in-ipv4-frag-reassembly-unneeded=2 in-ipv6-frag-reassembly-unneeded=2 \
             out-ipv4-frag-not=2 out-ipv6-frag-not=2",
            14 + into.len(),
            54 + into.len(),
            14 + out.len(),
            14 + inner.len()
        ),
    );
}
