//! Trials of rules 1 to 15: the binding table, encapsulation and decapsulation.

use std::net::Ipv4Addr;

use etherparse::{IpDscp, IpEcn, PacketBuilder};

use super::{Trial, trial};
use crate::extensions::{LIMIT, behind};
use crate::harness::*;

/// A port of the host in the Internet, chosen so that no parser guesses a protocol from it.
pub(super) const FAR: u16 = 33333;

/// A UDP packet from that host, and one to it.
pub(super) fn from_host(to: ([u8; 4], u16)) -> Vec<u8> {
    udp((HOST, FAR), to, b"answer")
}

pub(super) fn to_host(from: ([u8; 4], u16)) -> Vec<u8> {
    udp(from, (HOST, FAR), b"request")
}

/// The tshark fields of a packet in a softwire with these two ends.
pub(super) fn softwire(br: &str, b4: &str) -> String {
    format!("ipv6.src={br} ipv6.dst={b4} ipv6.nxt=4")
}

/// A case whose table also has a softwire with 4 offset bits and 4 bits of PSID.
fn with_offset() -> Case {
    let mut case = Case::plain();
    case.configuration = case.configuration.replace(
        "binding-table {",
        "binding-table { softwire { ipv4 192.0.2.4; psid 2; b4-ipv6 2001:db8::4; \
         br-address 2001:db8:ffff::1; \
         port-set { psid-length 4; reserved-ports-bit-count 4; } }",
    );
    case
}

pub(super) fn trials() -> Vec<Trial> {
    let all = [
        table(),
        out_of_tunnels(),
        into_tunnels(),
        headers(),
        refused_icmp(),
        ports(),
        errors(),
        other_protocols(),
    ];
    all.into_iter().flatten().collect()
}

fn table() -> Vec<Trial> {
    let mut all = vec![
        trial(
            1,
            "three softwires of two addresses",
            Case::plain()
                .with_external(frame4(&from_host((SHARED, 0x7fff))))
                .with_external(frame4(&from_host((SHARED, 0x8000))))
                .with_external(frame4(&from_host((WHOLE, 5)))),
        )
        .to6(softwire(BR, B4_LOW) + " ip.dst=192.0.2.1 udp.dstport=32767")
        .to6(softwire(BR, B4_HIGH) + " ip.dst=192.0.2.1 udp.dstport=32768")
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ip.dst=192.0.2.2 udp.dstport=5")
        .counts("in-ipv4=3 out-ipv6=3"),
    ];
    const FOUR: [u8; 4] = [192, 0, 2, 4];
    let psid = |port| with_offset().with_external(frame4(&from_host((FOUR, port))));
    for port in [0x1200, 0x12ff, 0xf280] {
        let found = softwire(BR, "2001:db8::4") + &format!(" udp.dstport={port}");
        all.push(
            trial(2, "ports of the set", psid(port))
                .to6(found)
                .counts("in-ipv4=1 out-ipv6=1"),
        );
    }
    const UNOWNED: &str = "in-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv4-iface=1 \
        out-icmpv4-error=1 out-ipv4=1";
    const ERROR: &str = "icmp.type=3 icmp.code=1 ip.dst=198.51.100.7,192.0.2.4";
    for port in [0x11ff, 0x1300] {
        let other = trial(2, "ports of other sets", psid(port));
        all.push(other.to4(ERROR).counts(UNOWNED));
    }
    // This port also has PSID 2, but is below the lowest port of a set.
    all.push(
        trial(3, "a port below 2^(16 - a)", psid(0x0234))
            .to4(ERROR)
            .counts(UNOWNED),
    );
    all.push(
        trial(3, "the same, as Snabb has it", psid(0x0234).like_snabb())
            .to6(softwire(BR, "2001:db8::4"))
            .counts("in-ipv4=1 out-ipv6=1"),
    );
    all
}

fn out_of_tunnels() -> Vec<Trial> {
    let mut all = passed_out_of_tunnels();
    all.extend(refused_out_of_tunnels());
    all
}

fn passed_out_of_tunnels() -> Vec<Trial> {
    let request = to_host((SHARED, 40000));
    vec![
        trial(
            5,
            "UDP is not looked into, nor hop-by-hop options in a wrong place",
            Case::plain()
                .with_internal(frame6(&ipv6(B4_LOW, BR, 17, &[0; 20])))
                .with_internal(frame6(&ipv6(B4_LOW, BR, 60, &[0; 20]))),
        )
        .counts("in-ipv6=2 drop-unknown-protocol-ipv6=2 drop-all-ipv6-iface=2"),
        trial(
            5,
            "behind the tunnel encapsulation limit",
            Case::plain().with_internal(frame6(&behind(
                &tunnel(B4_HIGH, BR, &request),
                &[(60, LIMIT)],
            ))),
        )
        .to4("ip.src=192.0.2.1 ip.dst=198.51.100.7 ip.ttl=63 udp.checksum.status=1")
        .counts("in-ipv6=1 out-ipv4=1"),
        trial(
            8,
            "to the Internet",
            Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &request))),
        )
        .to4(
            "ip.src=192.0.2.1 ip.dst=198.51.100.7 ip.ttl=63 udp.srcport=40000 udp.dstport=33333 \
             udp.checksum.status=1",
        )
        .counts("in-ipv6=1 out-ipv4=1"),
        trial(
            8,
            "no hop, as Snabb has it",
            Case::plain()
                .like_snabb()
                .with_internal(frame6(&tunnel(B4_HIGH, BR, &request))),
        )
        .to4("ip.src=192.0.2.1 ip.ttl=64")
        .counts("in-ipv6=1 out-ipv4=1"),
    ]
}

fn refused_out_of_tunnels() -> Vec<Trial> {
    let request = to_host((SHARED, 40000));
    let mut all = Vec::new();
    const REFUSED: &str = "in-ipv6=1 drop-no-source-softwire-ipv6=1 drop-all-ipv6-iface=1 \
        out-icmpv6-error=1 out-ipv6=1";
    for (rule, what, b4, br, from) in [
        (6, "another B4", B4_LOW, BR, BR),
        (6, "another BR address", B4_HIGH, BR_WHOLE, BR),
        (7, "neither", "2001:db8::77", "2001:db8:ffff::9", BR),
    ] {
        let case = || Case::plain().with_internal(frame6(&tunnel(b4, br, &request)));
        // tshark lists the fields of the quoted packet after those of the error.
        let error = |from: &str| {
            format!(
                "ipv6.src={from},{b4} ipv6.dst={b4},{br} ipv6.nxt=58,4 icmpv6.type=1 icmpv6.code=5 \
                 icmpv6.checksum.status=1 ip.src=192.0.2.1"
            )
        };
        let refused = error(from);
        all.push(
            trial(rule, what, case())
                .to6(refused.clone())
                .counts(REFUSED),
        );
        let snabb = trial(rule, "the same, as Snabb has it", case().like_snabb());
        all.push(snabb.to6(refused + " ipv6.hlim=255,64").counts(REFUSED));
    }
    let unowned = to_host(([192, 0, 2, 3], 5));
    let case = Case::plain().with_internal(frame6(&tunnel(B4_LOW, BR_WHOLE, &unowned)));
    all.push(
        trial(7, "an address without softwire", case)
            .to6(format!(
                "ipv6.src={BR_WHOLE},{B4_LOW} icmpv6.type=1 icmpv6.code=5"
            ))
            .counts(REFUSED),
    );
    all
}

fn into_tunnels() -> Vec<Trial> {
    let unowned = [192, 0, 2, 3];
    let mut all = vec![
        trial(
            9,
            "unreachable",
            Case::plain().with_external(frame4(&from_host((unowned, 80)))),
        )
        .to4(
            "ip.src=10.1.1.1,198.51.100.7 ip.dst=198.51.100.7,192.0.2.3 icmp.type=3 icmp.code=1 \
             icmp.checksum.status=1",
        )
        .counts(
            "in-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv4-iface=1 out-icmpv4-error=1 \
             out-ipv4=1",
        ),
        trial(
            9,
            "ICMP silently",
            Case::plain().with_external(frame4(&icmp4([HOST, unowned], 8, 0, 0, b"ping"))),
        )
        .counts("in-ipv4=1 drop-in-by-rfc7596-icmpv4=1 drop-all-ipv4-iface=1"),
        trial(
            10,
            "padding of Ethernet",
            Case::plain().with_external([frame4(&from_host((WHOLE, 5))), vec![0xee; 12]].concat()),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ipv6.plen=34 ip.len=34")
        .counts("in-ipv4=1 out-ipv6=1"),
    ];
    let good = from_host((WHOLE, 5));
    // Damage version, header length, total length, and checksum.
    for (at, value) in [(0, 0x65), (0, 0x44), (3, 0xff), (10, good[10] ^ 1)] {
        let mut bad = good.clone();
        bad[at] = value;
        all.push(
            trial(10, "damaged", Case::plain().with_external(frame4(&bad)))
                .counts("drop-malformed-ipv4=1 drop-all-ipv4-iface=1"),
        );
        let within = Case::plain().with_internal(frame6(&tunnel(B4_WHOLE, BR_WHOLE, &bad)));
        all.push(
            trial(10, "damaged, in a tunnel", within)
                .counts("in-ipv6=1 drop-malformed-ipv4=1 drop-all-ipv6-iface=1"),
        );
    }
    let ttl = |ttl| {
        let mut packet = from_host((WHOLE, 5));
        edit4(&mut packet, |header| header.time_to_live = ttl);
        Case::plain().with_external(frame4(&packet))
    };
    for hops in [0, 1] {
        all.push(
            trial(11, "no hop left", ttl(hops))
                .to4(format!(
                    "ip.dst=198.51.100.7,192.0.2.2 icmp.type=11 icmp.code=0 ip.ttl=64,{hops}"
                ))
                .counts(
                    "in-ipv4=1 drop-ttl-zero-ipv4=1 drop-all-ipv4-iface=1 out-icmpv4-error=1 \
                     out-ipv4=1",
                ),
        );
    }
    all.push(
        trial(11, "the last hop but one", ttl(2))
            .to6(softwire(BR_WHOLE, B4_WHOLE) + " ip.ttl=1 ip.checksum.status=1")
            .counts("in-ipv4=1 out-ipv6=1"),
    );
    all
}

fn headers() -> Vec<Trial> {
    let marked = |dscp: u8, ecn: u8| {
        let mut packet = from_host((WHOLE, 5));
        edit4(&mut packet, |header| {
            header.dscp = IpDscp::try_new(dscp).unwrap();
            header.ecn = IpEcn::try_new(ecn).unwrap();
        });
        packet
    };
    let mut all = vec![
        trial(
            12,
            "as nothing is said",
            Case::plain().with_external(frame4(&from_host((WHOLE, 5)))),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ipv6.hlim=64 ipv6.flow=0x000000 ipv6.plen=34")
        .counts("in-ipv4=1 out-ipv6=1"),
        trial(
            12,
            "a flow label",
            Case::with("", "flow-label 70000;").with_external(frame4(&from_host((WHOLE, 5)))),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ipv6.flow=0x011170")
        .counts("in-ipv4=1 out-ipv6=1"),
        trial(
            13,
            "into the tunnel",
            Case::plain().with_external(frame4(&marked(46, 2))),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ipv6.tclass=0x000000ba ip.dsfield=0xba")
        .counts("in-ipv4=1 out-ipv6=1"),
    ];
    for (inner, snabb, left) in [
        (1, false, Some("0x03")),
        (2, false, Some("0x03")),
        (0, false, None),
        (1, true, Some("0x01")),
        (0, true, Some("0x00")),
    ] {
        let mut packet = to_host((WHOLE, 5));
        edit4(&mut packet, |header| {
            header.ecn = IpEcn::try_new(inner).unwrap()
        });
        let mut outer = tunnel(B4_WHOLE, BR_WHOLE, &packet);
        // Traffic class of DSCP 0 and ECN "congestion experienced".
        outer[1] = 0x30;
        let case = Case::plain().with_internal(frame6(&outer));
        let case = if snabb { case.like_snabb() } else { case };
        let marked = trial(13, "out of the tunnel, congested", case);
        all.push(match left {
            Some(field) => marked
                .to4(format!("ip.dsfield={field} ip.checksum.status=1"))
                .counts("in-ipv6=1 out-ipv4=1"),
            None => marked.counts("in-ipv6=1 drop-ce-but-not-ect-ipv4=1 drop-all-ipv6-iface=1"),
        });
    }
    all
}

fn refused_icmp() -> Vec<Trial> {
    let echo = icmp4([HOST, WHOLE], 8, 0, 7 << 16, b"ping");
    let refused = || Case::with("allow-incoming-icmp false;", "");
    let between = tunnel(
        B4_HIGH,
        BR,
        &icmp4([SHARED, WHOLE], 8, 0, 0x9000_0001, b"ping"),
    );
    let mut damaged = echo.clone();
    damaged[22] ^= 1;
    vec![
        trial(14, "refused", refused().with_external(frame4(&echo)))
            .counts("in-ipv4=1 drop-in-by-policy-icmpv4=1 drop-all-ipv4-iface=1"),
        trial(
            14,
            "not refused between softwires",
            refused().with_internal(frame6(&between)),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " icmp.type=8")
        .counts("in-ipv6=1 hairpin-ipv4=1 out-ipv6=1"),
        trial(
            14,
            "refused there too, as Snabb has it",
            refused().like_snabb().with_internal(frame6(&between)),
        )
        .counts("in-ipv6=1 hairpin-ipv4=1 drop-in-by-policy-icmpv4=1 drop-all-ipv6-iface=1"),
        trial(
            14,
            "with a wrong checksum",
            Case::plain()
                .with_external(frame4(&damaged))
                .with_internal(frame6(&tunnel(B4_WHOLE, BR_WHOLE, &damaged))),
        )
        .counts(
            "in-ipv4=1 in-ipv6=1 drop-bad-checksum-icmpv4=2 drop-all-ipv4-iface=1 \
             drop-all-ipv6-iface=1",
        ),
    ]
}

/// A packet of a protocol whose header begins with the ports.
fn with_ports(protocol: u8, ends: [[u8; 4]; 2], ports: [u16; 2]) -> Vec<u8> {
    let mut packet = udp((ends[0], ports[0]), (ends[1], ports[1]), &[0; 24]);
    edit4(&mut packet, |header| header.protocol = protocol.into());
    packet
}

fn tcp(from: ([u8; 4], u16), to: ([u8; 4], u16)) -> Vec<u8> {
    let mut packet = Vec::new();
    PacketBuilder::ipv4(from.0, to.0, 64)
        .tcp(from.1, to.1, 7, 1000)
        .write(&mut packet, b"segment")
        .unwrap();
    packet
}

fn ports() -> Vec<Trial> {
    let high = || softwire(BR, B4_HIGH);
    let echo = icmp4([SHARED, HOST], 8, 0, 0x9000_0001, b"ping");
    let host = format!("ip.dst={}", Ipv4Addr::from(HOST));
    vec![
        trial(
            15,
            "TCP",
            Case::plain()
                .with_external(frame4(&tcp((HOST, FAR), (SHARED, 40000))))
                .with_internal(frame6(&tunnel(
                    B4_HIGH,
                    BR,
                    &tcp((SHARED, 40000), (HOST, FAR)),
                ))),
        )
        .to6(high() + " tcp.dstport=40000 tcp.checksum.status=1")
        .to4(format!("{host} tcp.srcport=40000 tcp.checksum.status=1"))
        .counts("in-ipv4=1 in-ipv6=1 out-ipv4=1 out-ipv6=1"),
        trial(
            15,
            "echoes, by their identifier",
            Case::plain()
                .with_external(frame4(&icmp4([HOST, SHARED], 8, 0, 0x1234_0001, b"a")))
                .with_external(frame4(&icmp4([HOST, SHARED], 0, 0, 0x8234_0001, b"b")))
                .with_internal(frame6(&tunnel(B4_HIGH, BR, &echo)))
                .with_internal(frame6(&tunnel(
                    B4_LOW,
                    BR,
                    &icmp4([SHARED, HOST], 0, 0, 0x1000_0001, b"d"),
                ))),
        )
        .to6(softwire(BR, B4_LOW) + " icmp.type=8 icmp.ident=4660")
        .to6(high() + " icmp.type=0 icmp.ident=33332")
        .to4(format!("{host} icmp.type=8 icmp.ident=36864"))
        .to4(format!("{host} icmp.type=0 icmp.ident=4096"))
        .counts("in-ipv4=2 in-ipv6=2 out-ipv4=2 out-ipv6=2"),
        trial(
            15,
            "echo requests have port 0, as Snabb has it",
            Case::plain().like_snabb().with_external(frame4(&icmp4(
                [HOST, SHARED],
                8,
                0,
                0x9234_0001,
                b"a",
            ))),
        )
        .to6(softwire(BR, B4_LOW) + " icmp.ident=37428")
        .counts("in-ipv4=1 out-ipv6=1"),
    ]
}

fn errors() -> Vec<Trial> {
    const ROUTER: [u8; 4] = [198, 51, 100, 1];
    let high = || softwire(BR, B4_HIGH);
    let sent = to_host((SHARED, 40000));
    let received = from_host((SHARED, 40000));
    let echo = icmp4([SHARED, HOST], 8, 0, 0x9000_0001, b"ping");
    let error = tunnel(B4_HIGH, BR, &icmp4([SHARED, HOST], 3, 3, 0, &received));
    vec![
        trial(
            15,
            "errors from the Internet, by the source port that they quote",
            Case::plain()
                .with_external(frame4(&icmp4([ROUTER, SHARED], 3, 4, 1400, &sent[..28])))
                .with_external(frame4(&icmp4([ROUTER, SHARED], 11, 0, 0, &echo))),
        )
        .to6(high() + " icmp.type=3 icmp.code=4 icmp.mtu=1400 ip.src=198.51.100.1,192.0.2.1")
        .to6(high() + " icmp.type=11,8 icmp.ident=36864")
        .counts("in-ipv4=2 out-ipv6=2"),
        trial(
            15,
            "an error that quotes too little",
            Case::plain().with_external(frame4(&icmp4([ROUTER, SHARED], 11, 0, 0, &echo[..19]))),
        )
        .counts("in-ipv4=1 drop-in-by-rfc7596-icmpv4=1 drop-all-ipv4-iface=1"),
        trial(
            15,
            "errors from a B4, by the destination port that they quote",
            Case::plain().with_internal(frame6(&error)),
        )
        .to4("ip.src=192.0.2.1,198.51.100.7 icmp.type=3 icmp.code=3")
        .counts("in-ipv6=1 out-ipv4=1"),
    ]
}

fn other_protocols() -> Vec<Trial> {
    let high = || softwire(BR, B4_HIGH);
    let host = format!("ip.dst={}", Ipv4Addr::from(HOST));
    let mut all = Vec::new();
    for protocol in [33, 132, 136] {
        let into = with_ports(protocol, [HOST, SHARED], [FAR, 40000]);
        let out = with_ports(protocol, [SHARED, HOST], [40000, FAR]);
        all.push(
            trial(
                15,
                "DCCP, SCTP and UDP-Lite, which begin with ports",
                Case::plain()
                    .with_external(frame4(&into))
                    .with_internal(frame6(&tunnel(B4_HIGH, BR, &out))),
            )
            .to6(high() + &format!(" ip.proto={protocol}"))
            .to4(format!("{host} ip.proto={protocol}"))
            .counts("in-ipv4=1 in-ipv6=1 out-ipv4=1 out-ipv6=1"),
        );
    }
    // ESP has no port: it reaches the owner of an unshared address, but no customer behind a shared
    // address.
    let esp = |to| Case::plain().with_external(frame4(&with_ports(50, [HOST, to], [0, 9])));
    all.push(
        trial(15, "no port, a whole address", esp(WHOLE))
            .to6(softwire(BR_WHOLE, B4_WHOLE) + " ip.proto=50")
            .counts("in-ipv4=1 out-ipv6=1"),
    );
    all.push(
        trial(15, "no port, a shared address", esp(SHARED))
            .to4("icmp.type=3 icmp.code=1")
            .counts(
                "in-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv4-iface=1 out-icmpv4-error=1 \
                 out-ipv4=1",
            ),
    );
    all
}
