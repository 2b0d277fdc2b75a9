//! Tests of the own addresses: ARP, neighbour discovery, echo.

use carina_wire::inet::Arp4;
use carina_wire::neighbour::{Neighbour, NeighbourKind, group_mac, solicited_node};

use crate::harness::*;

pub(crate) fn asking() -> Case {
    let mut case = Case::plain();
    case.configuration = case
        .configuration
        .replacen("mac 02:00:00:00:00:09", "ip 10.1.1.9", 1)
        .replacen("mac 02:00:00:00:00:09", "ip fd00::9", 1);
    case
}

pub(crate) fn arp(
    is_reply: bool,
    sender: ([u8; 6], [u8; 4]),
    target: ([u8; 6], [u8; 4]),
) -> Vec<u8> {
    let arp = Arp4 {
        is_reply,
        sender,
        target,
    };
    ether(0x0806, &arp.encode())
}

pub(crate) fn octets(text: &str) -> [u8; 16] {
    text.parse::<std::net::Ipv6Addr>().unwrap().octets()
}

#[test]
fn arp_for_the_own_address_is_answered() {
    let station = ([2, 0, 0, 0, 0, 5], [10, 1, 1, 5]);
    let request = arp(false, station, ([0; 6], OWN4));
    let ran = Case::plain()
        .with_external(request)
        .with_external(arp(false, station, ([0; 6], [10, 1, 1, 77])))
        .run();
    assert_eq!(ran.external.len(), 1);
    let reply = &ran.external[0];
    assert_eq!(
        (&reply[..6], &reply[6..14]),
        (&station.0[..], &[2, 0, 0, 0, 0, 1, 8, 6][..])
    );
    let expected = Arp4 {
        is_reply: true,
        sender: (OWN_MAC, OWN4),
        target: station,
    };
    assert_eq!(Arp4::decode(&reply[14..]), Some(expected));
    assert_counters(
        &ran,
        &[("in-arp-request-packets", 2), ("out-arp-reply-packets", 1)],
    );
    let ran = Case::plain().with_external(ether(0x0806, &[0; 28])).run();
    assert_counters(&ran, &[("drop-malformed-arp-packets", 1)]);
}

#[test]
fn next_hops_are_asked_for_and_packets_wait_for_them() {
    let packet = frame4(&udp((HOST, 53), (WHOLE, 5), b"answer"));
    let back = frame6(&tunnel(
        B4_WHOLE,
        BR_WHOLE,
        &udp((WHOLE, 5), (HOST, 53), b"x"),
    ));
    let ran = asking()
        .with_external(packet.clone())
        .with_internal(back.clone())
        .run();
    assert_eq!((ran.external.len(), ran.internal.len()), (1, 1));
    let asked = Arp4::decode(&ran.external[0][14..]).unwrap();
    assert_eq!((asked.is_reply, asked.target.1), (false, [10, 1, 1, 9]));
    assert_eq!(ran.external[0][..6], [0xff; 6]);
    let solicited = Neighbour::decode(&ran.internal[0][14..]).unwrap();
    let next = octets("fd00::9");
    assert_eq!(solicited.destination, solicited_node(next));
    assert_eq!((solicited.target, solicited.link), (next, Some(OWN_MAC)));
    assert_eq!(ran.internal[0][..6], group_mac(solicited_node(next)));

    let ran = asking()
        .with_external(packet)
        .with_internal(back)
        .with_external(arp(true, (NEXT_MAC, [10, 1, 1, 9]), (OWN_MAC, OWN4)))
        .with_internal(frame6(&advertisement(true, NEXT_MAC).encode()))
        .run();
    assert_eq!(out4(&ran.external[1]).destination, HOST);
    into(&ran.internal[1], BR_WHOLE, B4_WHOLE);
    assert_counters(
        &ran,
        &[
            ("out-arp-request-packets", 1),
            ("in-arp-reply-packets", 1),
            ("out-ndp-ns-packets", 1),
            ("in-ndp-na-packets", 1),
        ],
    );
}

/// An advertisement of the internal next hop: solicited by this AFTR, or unsolicited to all nodes.
fn advertisement(is_solicited: bool, mac: [u8; 6]) -> Neighbour {
    Neighbour {
        kind: NeighbourKind::Advertisement {
            is_solicited,
            is_router: true,
            is_override: true,
        },
        source: octets("fd00::9"),
        destination: octets(if is_solicited { OWN6 } else { "ff02::1" }),
        target: octets("fd00::9"),
        link: Some(mac),
    }
}

/// MAC address of the router that replaces the next hops.
const SWAPPED: [u8; 6] = [2, 0, 0, 0, 0, 0x99];

#[test]
fn router_that_takes_the_next_hops_place_gets_all_at_once() {
    let next4 = |mac, target| arp(false, (mac, [10, 1, 1, 9]), target);
    let gratuitous = ([0; 6], [10, 1, 1, 9]);
    for announcement in [
        next4(SWAPPED, gratuitous),
        arp(true, (SWAPPED, [10, 1, 1, 9]), (SWAPPED, [10, 1, 1, 9])),
        next4(SWAPPED, ([0; 6], [10, 1, 1, 77])),
    ] {
        let ran = asking()
            .with_external(arp(true, (NEXT_MAC, [10, 1, 1, 9]), (OWN_MAC, OWN4)))
            .with_external(announcement)
            .with_internal(frame6(&advertisement(true, NEXT_MAC).encode()))
            .with_internal(frame6(&advertisement(false, SWAPPED).encode()))
            .with_external(frame4(&udp((HOST, 53), (WHOLE, 5), b"in")))
            .with_internal(frame6(&tunnel(
                B4_WHOLE,
                BR_WHOLE,
                &udp((WHOLE, 5), (HOST, 53), b"out"),
            )))
            .later(2)
            .run();
        let stations = |frames: &[Vec<u8>], is_packet: &dyn Fn(&[u8]) -> bool| -> Vec<Vec<u8>> {
            let packets = frames.iter().filter(|frame| is_packet(frame));
            packets.map(|frame| frame[..6].to_vec()).collect()
        };
        assert_eq!(
            stations(&ran.external, &|frame| frame[12..14] == [8, 0]),
            [SWAPPED]
        );
        assert_eq!(stations(&ran.internal, &|frame| frame[20] == 4), [SWAPPED]);
        // The AFTR verifies the announcement with a request of its own.
        assert!(counter(&ran.counters, "out-arp-request-packets") > 1);
        assert!(counter(&ran.counters, "out-ndp-ns-packets") > 1);
    }
}

#[test]
fn announcements_of_others_change_no_next_hop() {
    let other = advertisement(false, SWAPPED);
    let other = Neighbour {
        target: octets("fd00::8"),
        ..other
    };
    let ran = asking()
        .with_external(arp(true, (NEXT_MAC, [10, 1, 1, 9]), (OWN_MAC, OWN4)))
        .with_external(arp(
            false,
            (SWAPPED, [10, 1, 1, 8]),
            ([0; 6], [10, 1, 1, 8]),
        ))
        .with_external(arp(true, ([0xff; 6], [10, 1, 1, 9]), (OWN_MAC, OWN4)))
        .with_internal(frame6(&advertisement(true, NEXT_MAC).encode()))
        .with_internal(frame6(&other.encode()))
        .with_external(frame4(&udp((HOST, 53), (WHOLE, 5), b"in")))
        .with_internal(frame6(&tunnel(
            B4_WHOLE,
            BR_WHOLE,
            &udp((WHOLE, 5), (HOST, 53), b"out"),
        )))
        .run();
    assert_eq!(out4(ran.external.last().unwrap()).destination, HOST);
    into(ran.internal.last().unwrap(), BR_WHOLE, B4_WHOLE);
}

#[test]
fn what_waits_for_a_next_hop_is_bounded() {
    let mut case = asking();
    for port in 0..70 {
        case = case.with_external(frame4(&udp((HOST, 53), (WHOLE, port), b"x")));
    }
    let ran = case.run();
    assert_counters(&ran, &[("drop-unresolved-ipv6-packets", 6)]);
}

#[test]
fn neighbours_learn_the_own_address() {
    let solicitation = |source: &str, link| Neighbour {
        kind: NeighbourKind::Solicitation,
        source: octets(source),
        destination: solicited_node(octets(OWN6)),
        target: octets(OWN6),
        link,
    };
    let asked = solicitation("fd00::5", Some([2, 0, 0, 0, 0, 5]));
    let ran = Case::plain().with_internal(frame6(&asked.encode())).run();
    let given = Neighbour::decode(&ran.internal[0][14..]).unwrap();
    let kind = NeighbourKind::Advertisement {
        is_solicited: true,
        is_router: true,
        is_override: true,
    };
    assert_eq!((given.kind, given.destination), (kind, octets("fd00::5")));
    assert_eq!((given.target, given.link), (octets(OWN6), Some(OWN_MAC)));
    assert_eq!(ran.internal[0][..6], [2, 0, 0, 0, 0, 5]);
    assert_counters(&ran, &[("in-ndp-ns-packets", 1), ("out-ndp-na-packets", 1)]);

    let mut other = asked;
    other.target = octets("fd00::2");
    let ran = Case::plain().with_internal(frame6(&other.encode())).run();
    assert_eq!(ran.internal.len(), 0);
    let mut distant = asked.encode();
    distant[7] = 254;
    let ran = Case::plain().with_internal(frame6(&distant)).run();
    assert_counters(&ran, &[("drop-malformed-ndp-packets", 1)]);
}

#[test]
fn pings_of_own_addresses_are_answered() {
    let request = icmp4([HOST, OWN4], 8, 0, 0x0001_0002, b"ping");
    let ran = Case::plain().with_external(frame4(&request)).run();
    let seen = out4(&ran.external[0]);
    assert_eq!((seen.source, seen.destination), (OWN4, HOST));
    assert_eq!(seen.icmp, Some((0, 0, 0x0001_0002, b"ping".to_vec())));
    assert_counters(
        &ran,
        &[
            ("in-icmpv4-echo-packets", 1),
            ("out-icmpv4-echo-packets", 1),
            ("in-ipv4-packets", 0),
        ],
    );
    let request = icmp6(["2001:db8::7", OWN6], 128, 0, 0x0001_0002, b"ping");
    let ran = Case::plain().with_internal(frame6(&request)).run();
    let expected = icmp6([OWN6, "2001:db8::7"], 129, 0, 0x0001_0002, b"ping");
    assert_eq!(ran.internal[0][14..], expected);
    assert_counters(
        &ran,
        &[
            ("in-icmpv6-echo-packets", 1),
            ("out-icmpv6-echo-packets", 1),
        ],
    );
    let mut damaged = request;
    damaged[48] ^= 1;
    let ran = Case::plain().with_internal(frame6(&damaged)).run();
    assert_counters(&ran, &[("drop-bad-checksum-icmpv6-packets", 1)]);
}
