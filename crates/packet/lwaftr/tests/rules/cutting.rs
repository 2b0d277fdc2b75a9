//! Trials of rules 24 to 32: MTUs, fragmentation, reassembly, filters, checksums.

use super::forwarding::{FAR, from_host, softwire};
use super::{Trial, trial};
use crate::fragments::{cut4, cut6};
use crate::harness::*;

pub(super) fn trials() -> Vec<Trial> {
    let all = [
        too_long(),
        fragments6(),
        fragments4(),
        too_long_for_the_internet(),
        bounds(),
        filters(),
    ];
    all.into_iter().flatten().collect()
}

/// A packet of `bytes` bytes from the Internet, with or without DF.
fn long(bytes: usize, dont_fragment: bool) -> Vec<u8> {
    let mut packet = udp((HOST, FAR), (WHOLE, 5), &vec![7; bytes - 28]);
    edit4(&mut packet, |header| header.dont_fragment = dont_fragment);
    packet
}

fn part(offset: u32, more: u8, bytes: u32) -> String {
    format!(
        "ipv6.src={BR_WHOLE} ipv6.dst={B4_WHOLE} ipv6.nxt=44 ipv6.fraghdr.nxt=4 \
         ipv6.fraghdr.offset={offset} ipv6.fraghdr.more={more} ipv6.plen={bytes}"
    )
}

fn too_long() -> Vec<Trial> {
    let case = |packet: &[u8]| Case::plain().with_external(frame4(packet));
    let mut short = case(&long(1500, false));
    let [usual, least] = [1500, 1280].map(|mtu| format!("internal-interface {{ mtu {mtu};"));
    short.configuration = short.configuration.replace(&usual, &least);
    vec![
        trial(24, "must not be cut", case(&long(1461, true)))
            .to4("ip.dst=198.51.100.7,192.0.2.2 icmp.type=3 icmp.code=4 icmp.mtu=1460")
            .counts(
                "in-ipv4=1 drop-over-mtu-but-dont-fragment-ipv4=1 drop-all-ipv4-iface=1 \
                 out-icmpv4-error=1 out-ipv4=1",
            ),
        trial(24, "just fits", case(&long(1460, true)))
            .to6(softwire(BR_WHOLE, B4_WHOLE) + " ipv6.plen=1460 ip.flags.df=1")
            .counts("in-ipv4=1 out-ipv6=1"),
        // The inner packet is whole: it is not an IPv4 fragment, and has its full length.
        trial(24, "is cut outside", case(&long(1461, false)))
            .to6(part(0, 1, 1456) + " ip.len=1461 ip.flags.mf=0 ip.ttl=63")
            .to6(part(181, 0, 21))
            .counts("in-ipv4=1 out-ipv6=1 out-ipv6-frag=2"),
        trial(25, "1448 bytes of 1500", case(&long(1500, false)))
            .to6(part(0, 1, 1456))
            .to6(part(181, 0, 60))
            .counts("in-ipv4=1 out-ipv6=1 out-ipv6-frag=2"),
        trial(25, "1232 bytes of 1280", short)
            .to6(part(0, 1, 1240))
            .to6(part(154, 0, 276))
            .counts("in-ipv4=1 out-ipv6=1 out-ipv6-frag=2"),
    ]
}

fn fragments6() -> Vec<Trial> {
    let inner = udp((SHARED, 40000), (HOST, FAR), &[1; 1400]);
    let packet = tunnel(B4_HIGH, BR, &inner);
    let parts = cut6(&packet, 77, &[800]);
    let overlapping = cut6(&packet, 77, &[792]);
    let odd = cut6(&packet, 77, &[801]);
    let mut too_long = parts[1].clone();
    too_long[42..44].copy_from_slice(&0xfff8_u16.to_be_bytes());
    let lone = cut6(&packet, 78, &[]);
    let whole = "ip.src=192.0.2.1 ip.dst=198.51.100.7 ip.len=1428 udp.checksum.status=1";
    let case = |parts: &[&Vec<u8>]| {
        parts
            .iter()
            .fold(Case::plain(), |case, part| case.with_internal(frame6(part)))
    };
    let error = |pointer: u32| {
        format!(
            "ipv6.src={BR},{B4_HIGH} ipv6.dst={B4_HIGH},{BR} icmpv6.type=4 icmpv6.code=0 \
             icmpv6.pointer={pointer}"
        )
    };
    vec![
        trial(26, "in any order", case(&[&parts[1], &parts[0]]))
            .to4(whole)
            .counts(
                "in-ipv6=1 in-ipv6-frag-needs-reassembly=2 in-ipv6-frag-reassembled=1 out-ipv4=1",
            ),
        trial(26, "one that is the whole packet", case(&[&lone[0]]))
            .to4(whole)
            .counts("in-ipv6=1 out-ipv4=1"),
        trial(
            26,
            "an overlap discards all",
            case(&[&parts[0], &overlapping[1], &parts[1]]),
        )
        .counts("in-ipv6-frag-needs-reassembly=3 drop-ipv6-frag-invalid-reassembly=1"),
        trial(26, "a length that only the last has", case(&[&odd[0]]))
            .to6(error(4))
            .counts(
                "in-ipv6-frag-needs-reassembly=1 drop-ipv6-frag-invalid-reassembly=1 \
                 out-icmpv6-error=1 out-ipv6=1",
            ),
        trial(26, "longer than any packet", case(&[&too_long]))
            .to6(error(42))
            .counts(
                "in-ipv6-frag-needs-reassembly=1 drop-ipv6-frag-invalid-reassembly=1 \
                 out-icmpv6-error=1 out-ipv6=1",
            ),
        trial(
            26,
            "silently, as Snabb has it",
            case(&[&odd[0]]).like_snabb(),
        )
        .counts("in-ipv6-frag-needs-reassembly=1 drop-ipv6-frag-invalid-reassembly=1"),
        // The second frame only lets 61 s pass; then the AFTR sends an error about the first
        // fragment.
        trial(
            26,
            "incomplete for 60 s",
            case(&[&parts[0], &lone[0]]).later(61),
        )
        .to6(format!(
            "ipv6.src={BR},{B4_HIGH} icmpv6.type=3 icmpv6.code=1"
        ))
        .to4(whole)
        .counts(
            "in-ipv6=1 in-ipv6-frag-needs-reassembly=1 drop-ipv6-frag-expired=1 \
             out-icmpv6-error=1 out-ipv6=1 out-ipv4=1",
        ),
    ]
}

fn fragments4() -> Vec<Trial> {
    let packet = udp((HOST, FAR), (SHARED, 40000), &[9; 600]);
    let parts = cut4(&packet, &[200, 400]);
    let mut all = Vec::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let case = order.iter().fold(Case::plain(), |case, at| {
            case.with_external(frame4(&parts[*at]))
        });
        all.push(
            trial(27, "from the Internet", case)
                .to6(softwire(BR, B4_HIGH) + " ip.len=628 ip.flags.mf=0 udp.checksum.status=1")
                .counts(
                    "in-ipv4=1 in-ipv4-frag-needs-reassembly=3 in-ipv4-frag-reassembled=1 \
                     out-ipv6=1",
                ),
        );
    }
    let late = Case::plain()
        .with_external(frame4(&parts[0]))
        .with_external(frame4(&from_host((WHOLE, 5))))
        .later(31);
    all.push(
        trial(27, "incomplete for 30 s", late)
            .to4("ip.dst=198.51.100.7,192.0.2.1 icmp.type=11 icmp.code=1")
            .to6(softwire(BR_WHOLE, B4_WHOLE))
            .counts(
                "in-ipv4=1 in-ipv4-frag-needs-reassembly=1 drop-ipv4-frag-expired=1 \
                 out-icmpv4-error=1 out-ipv4=1 out-ipv6=1",
            ),
    );
    // Two customers who share an address send the same identification at the same time.
    let one = udp((SHARED, 40000), (HOST, FAR), &[1; 600]);
    let two = udp((SHARED, 400), (HOST, FAR), &[2; 600]);
    let (first, second) = (cut4(&one, &[304]), cut4(&two, &[304]));
    let within = Case::plain()
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &first[0])))
        .with_internal(frame6(&tunnel(B4_LOW, BR, &second[1])))
        .with_internal(frame6(&tunnel(B4_HIGH, BR, &first[1])))
        .with_internal(frame6(&tunnel(B4_LOW, BR, &second[0])));
    all.push(
        trial(28, "of two customers", within)
            .to4("udp.srcport=40000 ip.len=628 ip.flags.mf=0 udp.checksum.status=1")
            .to4("udp.srcport=400 ip.len=628 ip.flags.mf=0 udp.checksum.status=1")
            .counts(
                "in-ipv6=4 in-ipv4-frag-needs-reassembly=4 in-ipv4-frag-reassembled=2 out-ipv4=2",
            ),
    );
    all
}

/// A packet of 1400 bytes from a tunnel, to an Internet side with an MTU of 1000.
fn to_short(dont_fragment: bool) -> Case {
    let mut inner = udp((SHARED, 40000), (HOST, FAR), &[7; 1372]);
    edit4(&mut inner, |header| {
        header.dont_fragment = dont_fragment;
        header.identification = 0x4321;
    });
    let mut case = Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &inner)));
    let [long, short] = [1500, 1000].map(|mtu| format!("external-interface {{ mtu {mtu};"));
    case.configuration = case.configuration.replace(&long, &short);
    case
}

fn too_long_for_the_internet() -> Vec<Trial> {
    const DROPPED: &str = "in-ipv6=1 drop-over-mtu-but-dont-fragment-ipv4=1 drop-all-ipv6-iface=1";
    vec![
        trial(29, "is cut", to_short(false))
            .to4("ip.id=0x4321 ip.len=996 ip.flags.mf=1 ip.frag_offset=0 ip.ttl=63")
            .to4("ip.id=0x4321 ip.len=424 ip.flags.mf=0 ip.frag_offset=122 ip.ttl=63")
            .counts("in-ipv6=1 out-ipv4=1 out-ipv4-frag=2"),
        trial(29, "must not be cut", to_short(true))
            .to6(
                softwire(BR, B4_HIGH)
                    + " ip.src=10.1.1.1,192.0.2.1 icmp.type=3 icmp.code=4 icmp.mtu=1000",
            )
            .counts(
                "in-ipv6=1 drop-over-mtu-but-dont-fragment-ipv4=1 drop-all-ipv6-iface=1 \
                 out-icmpv4-error=1 out-ipv6=1",
            ),
        trial(29, "silently, as Snabb has it", to_short(true).like_snabb()).counts(DROPPED),
    ]
}

fn bounds() -> Vec<Trial> {
    let packet = udp((HOST, FAR), (SHARED, 40000), &[9; 600]);
    let three = cut4(&packet, &[200, 400]).into_iter().fold(
        Case::with("reassembly { max-fragments-per-packet 2; }", ""),
        |case, part| case.with_external(frame4(&part)),
    );
    let mut five = Case::with("reassembly { max-packets 2; }", "");
    for id in 0..5 {
        let mut packet = packet.clone();
        edit4(&mut packet, |header| header.identification = id);
        five = five.with_external(frame4(&cut4(&packet, &[200])[0]));
    }
    let off = "reassembly { max-packets 0; }";
    let tunnelled = tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (HOST, FAR), &[1; 600]));
    let none = Case::with(off, off)
        .with_external(frame4(&cut4(&packet, &[200])[0]))
        .with_internal(frame6(&cut6(&tunnelled, 5, &[320])[0]));
    vec![
        trial(30, "of fragments of a packet", three)
            .counts("in-ipv4-frag-needs-reassembly=3 drop-ipv4-frag-invalid-reassembly=1"),
        trial(30, "of packets", five)
            .counts("in-ipv4-frag-needs-reassembly=5 drop-ipv4-frag-random-evicted=3"),
        trial(30, "switched off", none).counts(
            "in-ipv4-frag-needs-reassembly=1 in-ipv6-frag-needs-reassembly=1 \
             drop-ipv4-frag-disabled=1 drop-ipv6-frag-disabled=1",
        ),
    ]
}

fn filters() -> Vec<Trial> {
    let packet = |port| frame4(&udp((HOST, FAR), (WHOLE, port), &[9; 600]));
    // Later fragments have no port for the filter to match.
    let mut whole = Case::with("ingress-filter \"udp dst port 5\";", "");
    let parts = cut4(&udp((HOST, FAR), (WHOLE, 5), &[9; 600]), &[304]);
    for part in parts.iter().rev() {
        whole = whole.with_external(frame4(part));
    }
    let mut odd = udp((SHARED, 40000), (HOST, FAR), &[3; 33]);
    edit4(&mut odd, |header| header.time_to_live = 9);
    vec![
        trial(31, "whole packets", whole.with_external(packet(6)))
            .to6(softwire(BR_WHOLE, B4_WHOLE) + " udp.dstport=5 ip.len=628")
            .counts(
                "in-ipv4=1 in-ipv4-frag-needs-reassembly=2 in-ipv4-frag-reassembled=1 out-ipv6=1 \
                 drop-filtered-in-ipv4=1 drop-all-ipv4-iface=1",
            ),
        trial(
            31,
            "of what leaves",
            Case::with("", "egress-filter \"ip6 and not host 2001:db8::3\";")
                .with_external(packet(5)),
        )
        .counts("in-ipv4=1 out-ipv6=1 drop-filtered-out-ipv6=1"),
        trial(
            31,
            "of what comes from B4s, before ping and look-up",
            Case::with("", "ingress-filter \"not icmp6\";").with_internal(frame6(&icmp6(
                ["2001:db8::7", OWN6],
                128,
                0,
                1,
                b"ping",
            ))),
        )
        .counts("drop-filtered-in-ipv6=1 drop-all-ipv6-iface=1"),
        trial(
            32,
            "out of a tunnel",
            Case::plain().with_internal(frame6(&tunnel(B4_HIGH, BR, &odd))),
        )
        .to4("ip.ttl=8 ip.checksum.status=1 udp.checksum.status=1")
        .counts("in-ipv6=1 out-ipv4=1"),
    ]
}
