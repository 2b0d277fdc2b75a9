//! Runs the examples in `examples/lua`: packets in, packets out, read by an independent parser.

use etherparse::{SlicedPacket, TransportSlice};

use crate::notation::frame;
use crate::rig::Rig;

#[test]
fn filter_lets_its_port_pass() {
    let mut rig = Rig::example("filter.toml", &[("source", "in")], &[("sink", "out")]);
    let passing = [
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5 > 9 | \"x\""),
        frame(":1 > :2 | ip6 fe80::1 > fe80::2 | udp 5 > 9 | \"x\""),
    ];
    let others = [
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 9 > 5 | \"x\""),
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | tcp 5 > 9 flags 02"),
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 fragment 8 proto 17 | \"0000000000000000\""),
        frame(":1 > * | arp request :1 10.0.0.1 > :0 10.0.0.2"),
        frame(":1 > :2 | ip6 fe80::1 > fe80::2 | udp 9 > 5 | \"x\""),
        frame(":1 > :2 type 0800 | hex 4500"),
        Vec::new(),
    ];
    rig.feed("in", passing.iter().chain(&others).cloned());
    assert_eq!(rig.out("out"), passing);
    assert_eq!(rig.notices(), [""; 0]);
    assert_eq!(
        (
            rig.counter("filter/passed"),
            rig.counter("filter/drop_filter")
        ),
        (2, 7)
    );
}

#[test]
fn count_knows_what_went_by() {
    let mut rig = Rig::example("count.toml", &[("source", "in")], &[("sink", "out")]);
    let packets = [
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5 > 9 | \"x\""),
        frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 | udp 5 > 9 | \"xyz\""),
        frame(":1 > :2 | ip6 fe80::1 > fe80::2 | udp 5 > 9 | \"x\""),
        frame(":1 > * | arp request :1 10.0.0.1 > :0 10.0.0.2"),
        b"short".to_vec(),
    ];
    rig.feed("in", packets.clone());
    assert_eq!(rig.out("out"), packets);
    assert_eq!(rig.notices(), [""; 0]);
    let counts = ["ipv4", "ipv6", "arp", "other"].map(|name| {
        let of = |what| rig.counter(&format!("count/{name}_{what}"));
        (of("packets"), of("bytes"))
    });
    assert_eq!(counts, [(2, 43 + 45), (1, 63), (1, 42), (1, 5)]);
}

fn nat() -> Rig {
    let ports = [("inside", "inside"), ("outside", "outside")];
    Rig::between("nat.toml", "nat", &ports)
}

/// The only packet that came out; its checksums must be right.
fn only(rig: &Rig, port: &str) -> Vec<u8> {
    let mut out = rig.out(port);
    assert_eq!(out.len(), 1, "{:?}", rig.notices());
    let packet = out.remove(0);
    assert_like_rust(&packet);
    packet
}

fn assert_like_rust(packet: &[u8]) {
    let sliced = SlicedPacket::from_ethernet(packet).unwrap();
    let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else {
        panic!("{packet:02x?}");
    };
    let header = ip.header().to_header();
    assert_eq!(header.header_checksum, header.calc_header_checksum());
    match &sliced.transport {
        Some(TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
            let found = udp.to_header();
            let right = found.calc_checksum_ipv4(&header, udp.payload()).unwrap();
            assert_eq!(found.checksum, right);
        }
        Some(TransportSlice::Tcp(tcp)) => {
            let found = tcp.to_header();
            let right = found.calc_checksum_ipv4(&header, tcp.payload()).unwrap();
            assert_eq!(found.checksum, right);
        }
        Some(TransportSlice::Icmpv4(icmp)) => {
            let found = icmp.header();
            assert_eq!(
                found.checksum,
                found.icmp_type.calc_checksum(icmp.payload())
            );
        }
        _ => {}
    }
}

#[test]
fn nat_translates_both_ways_with_right_checksums() {
    let mut rig = nat();
    for (out, translated, back, delivered) in [
        (
            ":1 > :2 | ip 10.0.0.5 > 198.51.100.7 | udp 5000 > 53 | \"question\"",
            ":1 > :2 | ip 192.0.2.1 > 198.51.100.7 | udp 1024 > 53 | \"question\"",
            ":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | udp 53 > 1024 | \"answer\"",
            ":1 > :2 | ip 198.51.100.7 > 10.0.0.5 | udp 53 > 5000 | \"answer\"",
        ),
        (
            ":1 > :2 | ip 10.0.0.6 > 198.51.100.7 | tcp 5000 > 80 flags 02 | \"odd\"",
            ":1 > :2 | ip 192.0.2.1 > 198.51.100.7 | tcp 1025 > 80 flags 02 | \"odd\"",
            ":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | tcp 80 > 1025 flags 12 | \"\"",
            ":1 > :2 | ip 198.51.100.7 > 10.0.0.6 | tcp 80 > 5000 flags 12 | \"\"",
        ),
        (
            ":1 > :2 | ip 10.0.0.7 > 198.51.100.7 | echo request 77 1 | \"ping\"",
            ":1 > :2 | ip 192.0.2.1 > 198.51.100.7 | echo request 1026 1 | \"ping\"",
            ":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | echo reply 1026 1 | \"ping\"",
            ":1 > :2 | ip 198.51.100.7 > 10.0.0.7 | echo reply 77 1 | \"ping\"",
        ),
    ] {
        rig.feed("inside", [frame(out)]);
        assert_eq!(only(&rig, "outside"), frame(translated));
        rig.feed("outside", [frame(back)]);
        assert_eq!(only(&rig, "inside"), frame(delivered));
    }
    // A host and port keep their mapping, whichever peer they send to.
    rig.feed(
        "inside",
        [frame(
            ":1 > :2 | ip 10.0.0.5 > 203.0.113.9 | udp 5000 > 99 | \"x\"",
        )],
    );
    let wanted = frame(":1 > :2 | ip 192.0.2.1 > 203.0.113.9 | udp 1024 > 99 | \"x\"");
    assert_eq!(only(&rig, "outside"), wanted);
    assert_eq!((rig.counter("nat/out"), rig.counter("nat/back")), (4, 3));
    assert_eq!(rig.counter("nat/mapped"), 3);
}

#[test]
fn nat_drops_what_was_not_asked_for_and_forgets() {
    let mut rig = nat();
    rig.feed(
        "outside",
        [
            frame(":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | udp 53 > 1024 | \"x\""),
            frame(":1 > :2 | ip 198.51.100.7 > 192.0.2.9 | udp 53 > 1024 | \"x\""),
            frame(":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | echo request 1024 1 | \"x\""),
        ],
    );
    rig.feed(
        "inside",
        [
            frame(":1 > * | arp request :1 10.0.0.1 > :0 10.0.0.2"),
            frame(":1 > :2 | ip 10.0.0.1 > 10.0.0.2 fragment 8 proto 17 | \"0000000000000000\""),
        ],
    );
    assert_eq!((rig.out("inside").len(), rig.out("outside").len()), (0, 0));
    assert_eq!(rig.counter("nat/drop_no_mapping"), 1);
    assert_eq!(rig.counter("nat/drop_not_translated"), 4);
    rig.feed(
        "inside",
        [frame(
            ":1 > :2 | ip 10.0.0.5 > 198.51.100.7 | udp 5 > 53 | \"x\"",
        )],
    );
    rig.pass_ms(100_000);
    assert_eq!(rig.counter("nat/expired"), 0);
    rig.pass_ms(30_000);
    assert_eq!(rig.counter("nat/expired"), 1);
    rig.out("outside");
    rig.feed(
        "outside",
        [frame(
            ":1 > :2 | ip 198.51.100.7 > 192.0.2.1 | udp 53 > 1024 | \"x\"",
        )],
    );
    assert_eq!(rig.out("inside").len(), 0);
    assert_eq!(rig.notices(), [""; 0]);
}
