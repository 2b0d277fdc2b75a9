//! Trials of rules 16 to 23: errors that are sent, rate-limited and translated, and hairpinning.

use super::forwarding::{FAR, from_host, softwire, to_host};
use super::{Trial, trial};
use crate::harness::*;

const UNOWNED: [u8; 4] = [192, 0, 2, 3];

pub(super) fn trials() -> Vec<Trial> {
    let all = [
        unanswered(),
        answered(),
        hairpinned(),
        translated(),
        not_translated(),
        paths(),
    ];
    all.into_iter().flatten().collect()
}

fn unanswered() -> Vec<Trial> {
    const SILENT: &str = "in-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv4-iface=1";
    let mut all = Vec::new();
    for source in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]] {
        let packet = udp((source, FAR), (UNOWNED, 80), b"x");
        let case = Case::plain().with_external(frame4(&packet));
        all.push(trial(16, "a source that is no host", case).counts(SILENT));
    }
    let to_group = Case::plain().with_external(frame4(&from_host(([224, 0, 0, 5], 80))));
    all.push(trial(16, "to a group of IPv4", to_group).counts(SILENT));
    let mut group_mac = frame4(&from_host((UNOWNED, 80)));
    group_mac[0] = 1;
    all.push(
        trial(
            16,
            "to a group of stations",
            Case::plain().with_external(group_mac),
        )
        .counts(SILENT),
    );
    let mut error = icmp4([HOST, WHOLE], 3, 1, 0, &to_host((WHOLE, 5)));
    edit4(&mut error, |header| header.time_to_live = 1);
    all.push(
        trial(
            16,
            "about an error",
            Case::plain().with_external(frame4(&error)),
        )
        .counts("in-ipv4=1 drop-ttl-zero-ipv4=1 drop-all-ipv4-iface=1"),
    );
    let request = to_host((SHARED, 40000));
    for (what, b4, br) in [
        ("from a group of IPv6", "ff02::1", BR),
        ("from no address", "::", BR),
        ("to a group of IPv6", B4_LOW, "ff02::1"),
    ] {
        let case = Case::plain().with_internal(frame6(&tunnel(b4, br, &request)));
        all.push(
            trial(16, what, case)
                .counts("in-ipv6=1 drop-no-source-softwire-ipv6=1 drop-all-ipv6-iface=1"),
        );
    }
    all
}

fn answered() -> Vec<Trial> {
    let long = udp((HOST, FAR), (UNOWNED, 80), &[7; 1300]);
    let foreign = tunnel(B4_LOW, BR, &udp((SHARED, 40000), (HOST, FAR), &[7; 1300]));
    let mut no_hop = to_host((SHARED, 40000));
    edit4(&mut no_hop, |header| header.time_to_live = 1);
    let back = tunnel(B4_HIGH, BR, &no_hop);
    let mut all = vec![
        trial(
            17,
            "576 bytes of IPv4, 1280 of IPv6",
            Case::plain()
                .with_external(frame4(&long))
                .with_internal(frame6(&foreign)),
        )
        .to4("icmp.type=3 icmp.code=1 ip.len=576,1328")
        .to6("icmpv6.type=1 icmpv6.code=5 ipv6.plen=1240,1328")
        .counts(
            "in-ipv4=1 in-ipv6=1 drop-no-dest-softwire-ipv4=1 drop-no-source-softwire-ipv6=1 \
             drop-all-ipv4-iface=1 drop-all-ipv6-iface=1 out-icmpv4-error=1 out-icmpv6-error=1 \
             out-ipv4=1 out-ipv6=1",
        ),
        trial(
            18,
            "the own address, precedence 6",
            Case::plain().with_external(frame4(&from_host((UNOWNED, 80)))),
        )
        .to4("ip.src=10.1.1.1,198.51.100.7 ip.dsfield=0xc0,0x00 ip.ttl=64,64")
        .counts(
            "in-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv4-iface=1 out-icmpv4-error=1 \
             out-ipv4=1",
        ),
    ];
    for internal in ["", "hairpinning false;"] {
        all.push(
            trial(
                19,
                "through its softwire",
                Case::with("", internal).with_internal(frame6(&back)),
            )
            .to6(
                softwire(BR, B4_HIGH)
                    + " ip.src=10.1.1.1,192.0.2.1 ip.dst=192.0.2.1,198.51.100.7 icmp.type=11 \
                       icmp.code=0 ipv6.tclass=0x000000c0",
            )
            .counts(
                "in-ipv6=1 drop-ttl-zero-ipv4=1 drop-all-ipv6-iface=1 out-icmpv4-error=1 \
                 out-ipv6=1",
            ),
        );
    }
    all.extend(limited());
    all
}

fn limited() -> Vec<Trial> {
    let unreachable = frame4(&from_host((UNOWNED, 80)));
    let foreign = frame6(&tunnel(B4_LOW, BR, &to_host((SHARED, 40000))));
    let limit = "error-rate-limiting { packets 2; period 10; }";
    let mut case = Case::with(limit, limit);
    for _ in 0..5 {
        case = case
            .with_external(unreachable.clone())
            .with_internal(foreign.clone());
    }
    case = case
        .with_external(unreachable.clone())
        .with_internal(foreign.clone())
        .later(10);
    let mut limited = trial(20, "two in 10 s", case);
    for _ in 0..3 {
        limited = limited
            .to4("icmp.type=3 icmp.code=1")
            .to6("icmpv6.type=1 icmpv6.code=5");
    }
    let off = "generate-icmp-errors false;";
    vec![
        limited.counts(
            "in-ipv4=6 in-ipv6=6 drop-no-dest-softwire-ipv4=6 drop-no-source-softwire-ipv6=6 \
             drop-over-rate-limit-icmpv4=3 drop-over-rate-limit-icmpv6=3 drop-all-ipv4-iface=6 \
             drop-all-ipv6-iface=6 out-icmpv4-error=3 out-icmpv6-error=3 out-ipv4=3 out-ipv6=3",
        ),
        trial(
            20,
            "none",
            Case::with(off, off)
                .with_external(unreachable)
                .with_internal(foreign),
        )
        .counts(
            "in-ipv4=1 in-ipv6=1 drop-no-dest-softwire-ipv4=1 drop-no-source-softwire-ipv6=1 \
             drop-out-by-policy-icmpv4-packets=1 drop-out-by-policy-icmpv6-packets=1 \
             drop-all-ipv4-iface=1 drop-all-ipv6-iface=1",
        ),
    ]
}

fn hairpinned() -> Vec<Trial> {
    let between = tunnel(B4_HIGH, BR, &udp((SHARED, 40000), (WHOLE, 80), b"hello"));
    let mut unowned = Case::plain().with_internal(frame6(&tunnel(
        B4_HIGH,
        BR,
        &udp((SHARED, 40000), (SHARED, 80), b"hello"),
    )));
    // No B4 owns the lower ports any more.
    unowned.configuration = unowned
        .configuration
        .replace("psid 0; b4-ipv6 2001:db8::1", "psid 3; b4-ipv6 2001:db8::1");
    vec![
        trial(
            21,
            "with the BR address of the destination",
            Case::plain().with_internal(frame6(&between)),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ip.src=192.0.2.1 ip.dst=192.0.2.2 ip.ttl=63")
        .counts("in-ipv6=1 hairpin-ipv4=1 out-ipv6=1"),
        trial(
            21,
            "switched off",
            Case::with("", "hairpinning false;").with_internal(frame6(&between)),
        )
        .to4("ip.src=192.0.2.1 ip.dst=192.0.2.2 ip.ttl=63")
        .counts("in-ipv6=1 out-ipv4=1"),
        trial(21, "to a port without owner", unowned)
            .to6(softwire(BR, B4_HIGH) + " ip.src=10.1.1.1,192.0.2.1 icmp.type=3 icmp.code=1")
            .counts(
                "in-ipv6=1 hairpin-ipv4=1 drop-no-dest-softwire-ipv4=1 drop-all-ipv6-iface=1 \
                 out-icmpv4-error=1 out-ipv6=1",
            ),
    ]
}

const ROUTER6: &str = "2001:db8::99";

/// An ICMPv6 error from a router about a packet to a B4.
fn error(kind: u8, code: u8, word: u32, quoted: &[u8]) -> Vec<u8> {
    frame6(&icmp6([ROUTER6, BR], kind, code, word, quoted))
}

fn translated() -> Vec<Trial> {
    let sent = from_host((SHARED, 40000));
    let quoted = tunnel(BR, B4_HIGH, &sent);
    let mut all = Vec::new();
    for (kind, code, word, left) in [
        (1, 0, 0, "icmp.type=3 icmp.code=1"),
        (1, 4, 0, "icmp.type=3 icmp.code=1"),
        (3, 0, 0, "icmp.type=3 icmp.code=1"),
        (4, 2, 6, "icmp.type=3 icmp.code=1"),
        (2, 0, 1400, "icmp.type=3 icmp.code=4 icmp.mtu=1360"),
    ] {
        let case = Case::plain().with_internal(error(kind, code, word, &quoted));
        let learnt = "in-ipv6=1 out-icmpv4-error=1 out-ipv4=1 path-mtus=1";
        let counts = match kind {
            2 => learnt,
            _ => "in-ipv6=1 out-icmpv4-error=1 out-ipv4=1",
        };
        all.push(
            trial(22, "translated", case)
                .to4(format!(
                    "ip.src=10.1.1.1,198.51.100.7 ip.dst=198.51.100.7,192.0.2.1 {left}"
                ))
                .counts(counts),
        );
    }
    all
}

fn not_translated() -> Vec<Trial> {
    let sent = from_host((SHARED, 40000));
    let quoted = tunnel(BR, B4_HIGH, &sent);
    let mut all = Vec::new();
    for (kind, code, counts) in [
        (
            2,
            1,
            "in-ipv6=1 drop-too-big-type-but-not-code-icmpv6=1 drop-all-ipv6-iface=1",
        ),
        (
            3,
            1,
            "in-ipv6=1 drop-over-time-but-not-hop-limit-icmpv6=1 drop-all-ipv6-iface=1",
        ),
        (
            100,
            0,
            "in-ipv6=1 drop-unknown-protocol-icmpv6=1 drop-all-ipv6-iface=1",
        ),
    ] {
        let case = Case::plain().with_internal(error(kind, code, 0, &quoted));
        all.push(trial(22, "dropped", case).counts(counts));
    }
    const NOT_OURS: &str = "in-ipv6=1 drop-not-ours-icmpv6=1 drop-all-ipv6-iface=1";
    for wrong in [
        tunnel(BR, B4_LOW, &sent),
        tunnel(BR_WHOLE, B4_HIGH, &sent),
        tunnel(BR, B4_HIGH, &from_host((UNOWNED, 80))),
    ] {
        let case = Case::plain().with_internal(error(1, 0, 0, &wrong));
        all.push(trial(22, "about a packet that never was", case).counts(NOT_OURS));
    }
    let any = Case::plain().like_snabb();
    let any = any.with_internal(error(1, 0, 0, &tunnel(BR, B4_LOW, &sent)));
    all.push(
        trial(22, "about any packet, as Snabb has it", any)
            .to4("ip.dst=198.51.100.7,192.0.2.1 icmp.type=3 icmp.code=1")
            .counts("in-ipv6=1 out-icmpv4-error=1 out-ipv4=1"),
    );
    let hairpinned = tunnel(BR, B4_HIGH, &udp((WHOLE, 9), (SHARED, 40000), b"hello"));
    all.push(
        trial(
            22,
            "back into the softwire that it came from",
            Case::plain().with_internal(error(1, 0, 0, &hairpinned)),
        )
        .to6(softwire(BR_WHOLE, B4_WHOLE) + " ip.src=10.1.1.1,192.0.2.2 icmp.type=3 icmp.code=1")
        .counts("in-ipv6=1 out-icmpv4-error=1 out-ipv6=1"),
    );
    let refused = Case::with("", "allow-incoming-icmp false;");
    all.push(
        trial(
            22,
            "refused",
            refused.with_internal(error(1, 0, 0, &quoted)),
        )
        .counts("in-ipv6=1 drop-in-by-policy-icmpv6=1 drop-all-ipv6-iface=1"),
    );
    let mut damaged = error(1, 0, 0, &quoted);
    damaged[56] ^= 1;
    all.push(
        trial(
            22,
            "with a wrong checksum",
            Case::plain().with_internal(damaged),
        )
        .counts("in-ipv6=1 drop-bad-checksum-icmpv6=1 drop-all-ipv6-iface=1"),
    );
    all
}

fn paths() -> Vec<Trial> {
    let packet = udp((HOST, FAR), (WHOLE, 5), &[7; 1472]);
    let quoted = tunnel(BR_WHOLE, B4_WHOLE, &packet);
    let case = |mtu| {
        let error = icmp6([ROUTER6, BR_WHOLE], 2, 0, mtu, &quoted[..600]);
        // The last frame arrives after the router's error.
        let request = to_host((SHARED, 40000));
        Case::plain()
            .with_internal(frame6(&error))
            .with_internal(frame6(&tunnel(B4_HIGH, BR, &request)))
            .with_external(frame4(&from_host((SHARED, 40000))))
            .with_external(frame4(&packet))
            .later(10)
    };
    const REQUEST: &str = "ip.src=192.0.2.1 ip.dst=198.51.100.7 udp.srcport=40000";
    let to_other = || softwire(BR, B4_HIGH);
    let part = |offset: u32, more: u8, bytes: u32| {
        format!(
            "ipv6.dst={B4_WHOLE} ipv6.nxt=44 ipv6.fraghdr.offset={offset} \
             ipv6.fraghdr.more={more} ipv6.plen={bytes}"
        )
    };
    vec![
        trial(23, "of 1400 bytes", case(1400))
            .to4("ip.dst=198.51.100.7,192.0.2.2 icmp.type=3 icmp.code=4 icmp.mtu=1360")
            .to4(REQUEST)
            .to6(to_other())
            .to6(part(0, 1, 1360))
            .to6(part(169, 0, 156))
            .counts(
                "in-ipv6=2 in-ipv4=2 out-ipv6=2 out-ipv6-frag=2 out-ipv4=2 out-icmpv4-error=1 \
                 path-mtus=1",
            ),
        trial(23, "less than every path carries", case(1279))
            .to4(REQUEST)
            .to6(to_other())
            .to6(part(0, 1, 1456))
            .to6(part(181, 0, 60))
            .counts(
                "in-ipv6=2 in-ipv4=2 out-ipv6=2 out-ipv6-frag=2 out-ipv4=1 \
                 drop-too-small-mtu-icmpv6=1 drop-all-ipv6-iface=1",
            ),
    ]
}
