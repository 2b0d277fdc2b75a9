//! Trials of rules 33 to 36: own addresses and next hops, VLANs, IP versions.

use carina_time::Instant;
use carina_wire::neighbour::{Neighbour, NeighbourKind, solicited_node};

use super::forwarding::{from_host, softwire, to_host};
use super::{Trial, trial};
use crate::harness::*;
use crate::neighbours::{arp, asking, octets};

pub(super) fn trials() -> Vec<Trial> {
    let all = [
        arp_trials(),
        neighbours(),
        advertisements(),
        echoes(),
        families(),
    ];
    all.into_iter().flatten().collect()
}

const STATION: ([u8; 6], [u8; 4]) = ([2, 0, 0, 0, 0, 5], [10, 1, 1, 5]);
const NEXT4: ([u8; 6], [u8; 4]) = (NEXT_MAC, [10, 1, 1, 9]);
/// The first ARP request and the first neighbour solicitation for each next hop.
const ASKED4: &str = "eth.dst=ff:ff:ff:ff:ff:ff arp.opcode=1 arp.src.proto_ipv4=10.1.1.1 \
    arp.src.hw_mac=02:00:00:00:00:01 arp.dst.proto_ipv4=10.1.1.9";
const ASKED6: &str = "eth.dst=33:33:ff:00:00:09 ipv6.src=fd00::1 ipv6.dst=ff02::1:ff00:9 \
    ipv6.hlim=255 icmpv6.type=135 icmpv6.nd.ns.target_address=fd00::9 icmpv6.opt.type=1 \
    icmpv6.opt.linkaddr=02:00:00:00:00:01 icmpv6.checksum.status=1";

fn arp_trials() -> Vec<Trial> {
    let packet = frame6(&tunnel(B4_WHOLE, BR_WHOLE, &to_host((WHOLE, 5))));
    let mut waiting = asking().with_internal(packet.clone()).with_external(arp(
        false,
        STATION,
        ([0; 6], [10, 1, 1, 77]),
    ));
    let later = Instant::from_millis(1);
    let reply = arp(true, NEXT4, (OWN_MAC, OWN4));
    waiting.external.push((later, reply));
    vec![
        trial(
            33,
            "requests for the own address",
            Case::plain()
                .with_external(arp(false, STATION, ([0; 6], OWN4)))
                .with_external(arp(false, STATION, ([0; 6], [10, 1, 1, 77]))),
        )
        .to4(
            "eth.dst=02:00:00:00:00:05 arp.opcode=2 arp.src.hw_mac=02:00:00:00:00:01 \
             arp.src.proto_ipv4=10.1.1.1 arp.dst.hw_mac=02:00:00:00:00:05 \
             arp.dst.proto_ipv4=10.1.1.5",
        )
        .counts("in-arp-request=2 out-arp-reply=1"),
        trial(
            33,
            "damaged",
            Case::plain().with_external(ether(0x0806, &[0; 28])),
        )
        .counts("drop-malformed-arp=1 drop-all-ipv4-iface=1"),
        trial(
            33,
            "the next hop is asked for",
            asking().with_internal(packet),
        )
        .to4(ASKED4)
        .to6(ASKED6)
        .counts("in-ipv6=1 out-ipv4=1 out-arp-request=1 out-ndp-ns=1"),
        trial(33, "packets wait for its answer", waiting)
            .to4(ASKED4)
            .to4("ip.src=192.0.2.2 ip.dst=198.51.100.7")
            .to6(ASKED6)
            .counts(
                "in-ipv6=1 out-ipv4=1 out-arp-request=1 out-ndp-ns=1 in-arp-request=1 \
                 in-arp-reply=1",
            ),
    ]
}

fn solicitation(source: &str, target: &str, link: Option<[u8; 6]>) -> Neighbour {
    Neighbour {
        kind: NeighbourKind::Solicitation,
        source: octets(source),
        destination: solicited_node(octets(target)),
        target: octets(target),
        link,
    }
}

/// A message with changed bytes and a recomputed checksum.
fn changed(message: &Neighbour, change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut packet = message.encode().to_vec();
    change(&mut packet);
    packet[42..44].fill(0);
    let pseudo = [&packet[8..40], &[0, 0], &packet[4..6], &[0, 0, 0, 58]].concat();
    let sum = !(ones_sum(&[&pseudo[..], &packet[40..]].concat()) as u16);
    packet[42..44].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn neighbours() -> Vec<Trial> {
    let from = [2, 0, 0, 0, 0, 5];
    let good = solicitation("fd00::5", OWN6, Some(from));
    let case = |packet: &[u8]| Case::plain().with_internal(frame6(packet));
    let answer = "ipv6.src=fd00::1 ipv6.hlim=255 icmpv6.type=136 icmpv6.code=0 \
        icmpv6.nd.na.target_address=fd00::1 icmpv6.nd.na.flag.r=1 icmpv6.opt.type=2 \
        icmpv6.opt.linkaddr=02:00:00:00:00:01 icmpv6.checksum.status=1";
    let mut all = vec![
        trial(34, "a solicitation", case(&good.encode()))
            .to6(format!(
                "{answer} eth.dst=02:00:00:00:00:05 ipv6.dst=fd00::5 icmpv6.nd.na.flag.s=1"
            ))
            .counts("in-ndp-ns=1 out-ndp-na=1"),
        trial(
            34,
            "of who has no address yet",
            case(&changed(
                &solicitation("::", OWN6, Some(from)),
                // A solicitation from the unspecified address must not have this option. (RFC 4861
                // §4.3)
                |packet| {
                    packet.truncate(64);
                    packet[5] = 24;
                },
            )),
        )
        .to6(format!(
            "{answer} eth.dst=33:33:00:00:00:01 ipv6.dst=ff02::1 icmpv6.nd.na.flag.s=0"
        ))
        .counts("in-ndp-ns=1 out-ndp-na=1"),
        trial(
            34,
            "for another address",
            case(&solicitation("fd00::5", "fd00::2", Some(from)).encode()),
        )
        .counts("in-ndp-ns=1"),
    ];
    let mut wrong_sum = good.encode().to_vec();
    wrong_sum[70] ^= 1;
    for (what, packet) in [
        (
            "from beyond a router",
            changed(&good, |packet| packet[7] = 254),
        ),
        ("with a code", changed(&good, |packet| packet[41] = 1)),
        ("with a wrong checksum", wrong_sum),
        (
            "with an option of no length",
            changed(&good, |packet| packet[65] = 0),
        ),
        ("for a group", changed(&good, |packet| packet[48] = 0xff)),
        (
            "from no address, with an option",
            solicitation("::", OWN6, Some(from)).encode().to_vec(),
        ),
    ] {
        all.push(
            trial(34, what, case(&packet)).counts("drop-malformed-ndp=1 drop-all-ipv6-iface=1"),
        );
    }
    all
}

fn advertisements() -> Vec<Trial> {
    let mut all = Vec::new();
    let given = |is_solicited, target: &str| {
        let message = Neighbour {
            kind: NeighbourKind::Advertisement {
                is_solicited,
                is_router: true,
                is_override: true,
            },
            source: octets("fd00::9"),
            destination: octets(if is_solicited { OWN6 } else { "ff02::1" }),
            target: octets(target),
            link: Some(NEXT_MAC),
        };
        frame6(&message.encode())
    };
    let waiting = || asking().with_external(frame4(&from_host((WHOLE, 5))));
    all.push(
        trial(
            34,
            "an advertisement of another",
            waiting().with_internal(given(true, "fd00::8")),
        )
        .to4(ASKED4)
        .to6(ASKED6)
        .counts("in-ipv4=1 out-ipv6=1 out-arp-request=1 out-ndp-ns=1 in-ndp-na=1"),
    );
    for (what, frame) in [
        ("the next hop's answer", given(true, "fd00::9")),
        (
            "the next hop's announcement to all",
            given(false, "fd00::9"),
        ),
    ] {
        all.push(
            trial(34, what, waiting().with_internal(frame))
                .to4(ASKED4)
                .to6(ASKED6)
                .to6(softwire(BR_WHOLE, B4_WHOLE))
                .counts("in-ipv4=1 out-ipv6=1 out-arp-request=1 out-ndp-ns=1 in-ndp-na=1"),
        );
    }
    all
}

fn echoes() -> Vec<Trial> {
    vec![
        trial(
            35,
            "of IPv4",
            Case::plain().with_external(frame4(&icmp4([HOST, OWN4], 8, 0, 0x0001_0002, b"ping"))),
        )
        .to4("ip.src=10.1.1.1 ip.dst=198.51.100.7 icmp.type=0 icmp.code=0 icmp.ident=1 icmp.seq=2")
        .counts("in-icmpv4-echo=1 out-icmpv4-echo=1"),
        trial(
            35,
            "of IPv6",
            Case::plain().with_internal(frame6(&icmp6(
                ["2001:db8::7", OWN6],
                128,
                0,
                0x0001_0002,
                b"ping",
            ))),
        )
        .to6(
            "ipv6.src=fd00::1 ipv6.dst=2001:db8::7 icmpv6.type=129 icmpv6.code=0 \
             icmpv6.echo.identifier=0x0001 icmpv6.checksum.status=1",
        )
        .counts("in-icmpv6-echo=1 out-icmpv6-echo=1"),
    ]
}

fn families() -> Vec<Trial> {
    let into = from_host((WHOLE, 5));
    let out = tunnel(B4_WHOLE, BR_WHOLE, &to_host((WHOLE, 5)));
    vec![
        trial(
            36,
            "another VLAN",
            Case::plain()
                .with_external(frame4(&into))
                .with_internal(frame6(&out)),
        )
        .with_stray(false, frame4(&into))
        .with_stray(true, frame6(&out))
        .to6(softwire(BR_WHOLE, B4_WHOLE))
        .to4("ip.src=192.0.2.2")
        .counts(
            "in-ipv4=1 in-ipv6=1 out-ipv4=1 out-ipv6=1 drop-wrong-vlan=2 drop-all-ipv4-iface=1 \
             drop-all-ipv6-iface=1",
        ),
        trial(
            36,
            "the other family",
            Case::plain()
                .with_external(frame6(&out))
                .with_internal(frame4(&into)),
        )
        .only_on(false)
        .counts(
            "drop-misplaced-not-ipv4=1 drop-misplaced-not-ipv6=1 drop-all-ipv4-iface=1 \
             drop-all-ipv6-iface=1",
        ),
        trial(
            36,
            "neither family, on a stick: the access network's",
            Case::plain().with_internal(ether(0x88cc, &[0; 50])),
        )
        .only_on(true)
        .counts(STICK),
    ]
}

const STICK: &str = "drop-misplaced-not-ipv6=1 drop-all-ipv6-iface=1";
